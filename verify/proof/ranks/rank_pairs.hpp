// Sends and recvs of all ranks: each has another end at the peer that it names.
#pragma once

#include <cstdint>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/ranks/class_sequences.hpp"

namespace mfsdp::every_rank {

struct PairsCompared {
  std::int64_t meetings = 0;
  bool all_paired = true;  ///< each has another end, right or wrong
};

/// A rank's n-th send to a peer is the peer's n-th recv from it, of as many elements of one dtype
/// (MF201). A peer lies on the mesh, and the peers of one class are of one class (MF206).
[[nodiscard]] PairsCompared compare_pairs(const Ranks& ranks, FindingList& findings);

}  // namespace mfsdp::every_rank
