// Joins the members of one communicator for each of its collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"
#include "verify/cpu/machine/meeting_times.hpp"
#include "verify/cpu/machine/run_state.hpp"
#include "verify/cpu/machine/transfers.hpp"

namespace mfsdp {

/// As in NCCL, a rank's collectives on a communicator run in the order in which its host issued
/// them, on any stream. The n-th ones of all members belong together.
class Meeting {
 public:
  /// `ranks` of the world, ascending: the communicator's rank order.
  Meeting(RunState& run, std::string name, std::vector<std::int64_t> ranks);

  /// Joins collective number `ticket` (from 0). Returns when all members are done, or when the run
  /// has failed. Errors: another member's collective differs in kind, count, dtype or reduction.
  [[nodiscard]] Result<MeetingTimes> join(std::int64_t rank, std::int64_t ticket,
                                          const BoundOp& op);

  /// The ranks that have not joined that collective yet.
  [[nodiscard]] std::vector<std::int64_t> missing(std::int64_t ticket);

 private:
  /// A member that has joined; it lives until the collective has ended.
  struct Arrival {
    const BoundOp* op = nullptr;
    MeetingTimes times{};
  };

  [[nodiscard]] Result<void> arrive(std::size_t member);
  [[nodiscard]] Result<void> compare(std::size_t member, std::size_t other) const;
  [[nodiscard]] Result<void> complete();

  RunState& run_;
  std::string name_;
  std::vector<std::int64_t> ranks_;
  Gate gate_;
  std::int64_t round_ = 0;          ///< number of the collective that members join now
  std::vector<Arrival*> arrivals_;  ///< by member; null before it has joined
  std::chrono::steady_clock::time_point ended_{};  ///< end of the previous collective
};

/// The meetings of a program's communicators.
struct MeetingPlaces {
  std::vector<std::unique_ptr<Meeting>> all;
  std::vector<std::vector<Meeting*>> of;              ///< by communicator's position, then rank
  std::vector<std::unique_ptr<Transfers>> transfers;  ///< by communicator's position
};

[[nodiscard]] MeetingPlaces make_meetings(const Program& program, RunState& run);

}  // namespace mfsdp
