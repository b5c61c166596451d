// Where the members of one communicator meet, collective after collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"
#include "verify/cpu/machine/run_state.hpp"

namespace mfsdp {

/// As NCCL has it: a rank's collectives on a communicator run in the order in which its host issued
/// them, whatever their streams, and the members' n-th ones are one.
class Meeting {
 public:
  /// `ranks` of the world, ascending: the communicator's rank order.
  Meeting(RunState& run, std::string name, std::vector<std::int64_t> ranks);

  /// Joins collective number `ticket` (from 0); returns when it is done for all members, or the run
  /// has failed. Errors: another member's collective differs in kind, count, dtype or reduction.
  [[nodiscard]] Result<void> join(std::int64_t rank, std::int64_t ticket, const BoundOp& op);

  /// The ranks that have not come to that collective yet.
  [[nodiscard]] std::vector<std::int64_t> missing(std::int64_t ticket);

 private:
  [[nodiscard]] Result<void> compare(std::size_t member, std::size_t other) const;
  [[nodiscard]] Result<void> complete();

  RunState& run_;
  std::string name_;
  std::vector<std::int64_t> ranks_;
  Gate gate_;
  std::int64_t round_ = 0;                ///< number of the collective that members come to
  std::vector<const BoundOp*> arrivals_;  ///< by member; null before it has come
};

/// The meetings of a program's communicators.
struct MeetingPlaces {
  std::vector<std::unique_ptr<Meeting>> all;
  std::vector<std::vector<Meeting*>> of;  ///< by communicator's position, then rank
};

[[nodiscard]] MeetingPlaces make_meetings(const Program& program, RunState& run);

}  // namespace mfsdp
