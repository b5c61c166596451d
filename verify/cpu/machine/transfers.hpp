// Matches the sends and receives on one communicator.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/bound_plan.hpp"
#include "verify/cpu/machine/meeting_times.hpp"
#include "verify/cpu/machine/run_state.hpp"

namespace mfsdp {

/// A send or a recv of a rank that has begun. It stays where it is until it has ended.
struct RankTransfer {
  const BoundOp* op = nullptr;
  std::int64_t rank = 0;
  std::int64_t number = 0;  ///< among those of its kind with its peer, from 0
  MeetingTimes times{};
  bool ended = false;
};

/// As in NCCL, the n-th send of a rank to a peer belongs to the peer's n-th recv from it, and both
/// end when the data has arrived. A rank may have several in flight: those of a group begin
/// together, so two ranks can exchange data. Unlike in NCCL, transfers of one rank on different
/// streams do not wait for each other.
class Transfers {
 public:
  /// `name`: the communicator's, for messages.
  Transfers(RunState& run, std::string name);

  /// Returns at once; the second of the two ranks to begin moves the data. Errors: the peer's count
  /// or dtype differs.
  [[nodiscard]] Result<void> begin(RankTransfer& transfer);

  /// Returns when it has ended, or when the run has failed. It may go then.
  void await(const RankTransfer& transfer);

  /// The peers that have not begun their parts of this rank's transfers.
  [[nodiscard]] std::vector<std::int64_t> missing(std::int64_t rank);

 private:
  /// The sending rank, the receiving rank, and the number of the transfer.
  using Key = std::array<std::int64_t, 3>;

  RunState& run_;
  std::string name_;
  Gate gate_;
  std::map<Key, RankTransfer*> open_;  ///< begun on one of their two ranks
};

}  // namespace mfsdp
