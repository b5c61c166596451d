// Where the members of one communicator meet, collective after collective.
#pragma once

#include <chrono>
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

/// When a collective was a member's: from its turn on, when the member had come and the collective
/// before it had ended, until it had ended for all members.
struct MeetingTimes {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
};

/// As NCCL has it: a rank's collectives on a communicator run in the order in which its host issued
/// them, whatever their streams, and the members' n-th ones are one.
class Meeting {
 public:
  /// `ranks` of the world, ascending: the communicator's rank order.
  Meeting(RunState& run, std::string name, std::vector<std::int64_t> ranks);

  /// Joins collective number `ticket` (from 0); returns when it is done for all members, or the run
  /// has failed. Errors: another member's collective differs in kind, count, dtype or reduction.
  [[nodiscard]] Result<MeetingTimes> join(std::int64_t rank, std::int64_t ticket,
                                          const BoundOp& op);

  /// The ranks that have not come to that collective yet.
  [[nodiscard]] std::vector<std::int64_t> missing(std::int64_t ticket);

 private:
  /// A member that has come; it lives until the collective has ended.
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
  std::int64_t round_ = 0;          ///< number of the collective that members come to
  std::vector<Arrival*> arrivals_;  ///< by member; null before it has come
  std::chrono::steady_clock::time_point ended_{};  ///< the collective before
};

/// The meetings of a program's communicators.
struct MeetingPlaces {
  std::vector<std::unique_ptr<Meeting>> all;
  std::vector<std::vector<Meeting*>> of;  ///< by communicator's position, then rank
};

[[nodiscard]] MeetingPlaces make_meetings(const Program& program, RunState& run);

}  // namespace mfsdp
