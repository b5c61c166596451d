// How far a proof looks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mfsdp {

struct ProofSettings {
  std::int64_t steps = 2;           ///< that are unrolled
  std::int64_t repetitions = 2;     ///< of a repeated segment, at most, where no instances rotate
  std::size_t most_findings = 100;  ///< per rule; further ones are left out
  /// Checks each rank of the mesh separately (ranks/rank_sequences.hpp, ranks/rank_slices.hpp)
  /// in addition to the proof by class: some seconds for 16,384 ranks.
  bool expand_ranks = false;
  /// Plans with more ops are proved on two threads; the findings are the same.
  std::size_t ops_for_two_threads = 20'000;
};

}  // namespace mfsdp
