// The one interpreter: walks a program's plans for one rank and hands every op to a backend.
//
//   Program + rank ──► pools allocated, operands resolved ──► for each step, segment, repetition:
//                                        each op in host order, at its turn ──► Backend
//
// It decides nothing: order, streams, waits and addresses are the plan's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "core/runtime/bound_plan.hpp"

namespace mfsdp {

/// Called before a copy from or to a port is issued, when its last instance has ended: the time to
/// fill the source of an h2d copy, or to read what the last d2h copy brought. `operands`
/// of the op are input and output; `ended` is when the last instance did, on the backend's clock,
/// or nothing.
using HostWork =
    std::function<Result<void>(const BoundOp& copy, std::int64_t step, std::optional<Nanos> ended)>;

class Interpreter {
 public:
  /// Allocates the program's pools, binds its plans for `rank` and has the backend prepare them.
  /// `program` and `backend` outlive the interpreter. Errors: those of the backend and of
  /// PlanBinder.
  [[nodiscard]] static Result<std::unique_ptr<Interpreter>> create(const Program& program,
                                                                   Backend& backend,
                                                                   std::int64_t rank,
                                                                   HostWork host_work = {});

  /// Waits for what was issued: the backend reads bound ops until then.
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// The number that the plan's next step has for the backend and host work; 0 if never called.
  void count_from(PlanRole plan, std::int64_t step);

  /// Issues `steps` steps of the plan of that name; returns before they have run. Between two
  /// plans the host waits for all streams. Errors: no such plan, a wait that is bound to another
  /// record than the latest one of its event, a failed backend.
  [[nodiscard]] Result<void> run(std::string_view plan, std::int64_t steps = 1);
  /// The same of the plan of that role.
  [[nodiscard]] Result<void> run(PlanRole role, std::int64_t steps = 1);

  /// Waits until everything issued has run.
  [[nodiscard]] Result<void> finish();

  /// When the last copy from or to that port ended, on the backend's clock; waits for it.
  /// Nothing where there was none in the plan that ran last.
  [[nodiscard]] Result<std::optional<Nanos>> copy_ended(BufferId host_buffer);

  /// After a failure: whether the latest copy from or to that port had run before it
  /// (Backend::ran_whole).
  [[nodiscard]] bool copied_whole(BufferId host_buffer) const;

  /// A buffer's memory; read and write it before the first step or after finish().
  [[nodiscard]] std::span<std::byte> buffer_bytes(BufferId id) const {
    return binder_.buffer_bytes(id);
  }

 private:
  Interpreter(const Program& program, Backend& backend, PoolBases bases, std::int64_t rank,
              HostWork host_work);

  /// Where the host is.
  struct Place {
    std::int64_t step = 0;
    std::size_t list = 0;
    std::int64_t begun = 0;  ///< microbatches of the step that have begun
    std::int64_t lag = 0;    ///< of the list's call
  };
  struct LatestRecord {
    OpId op;
    std::size_t list = 0;
    std::int64_t run = 0;  ///< of the list, as in ListRuns::count
  };
  struct ListRuns {
    std::int64_t count = 0;  ///< that have begun since the host last waited for all streams
    std::int64_t step = -1;  ///< in which the latest of them began
  };
  struct RunnablePlan {
    BoundPlan bound;
    std::int64_t steps = 0;  ///< number of the next one
    /// By list and listed op: for a copy from or to a port, the event recorded after it.
    std::vector<std::vector<std::optional<std::size_t>>> copied_events;
    std::unordered_map<OpId, std::size_t> lists;  ///< of each op that records an event
    std::vector<ListRuns> runs;                   ///< by list
  };

  /// A copy of the current plan whose end was recorded.
  struct CopyRecord {
    const BoundOp* op = nullptr;
    std::int64_t step = 0;
    std::size_t event = 0;
  };

  [[nodiscard]] std::optional<CopyRecord> latest_copy(BufferId host_buffer) const;
  [[nodiscard]] Result<void> bind_plans();
  [[nodiscard]] Result<void> find_copied_events(RunnablePlan& plan) const;
  [[nodiscard]] Result<void> run_step(RunnablePlan& plan);
  [[nodiscard]] Result<void> run_list(RunnablePlan& plan, const Place& place);
  [[nodiscard]] Result<void> issue(const RunnablePlan& plan, const BoundOp& op, const Place& place);
  [[nodiscard]] Result<std::int64_t> awaited(const RunnablePlan& plan, const auto& wait,
                                             const BoundOp& op, const Place& place) const;
  [[nodiscard]] Result<void> do_host_work(const BoundOp& op, std::size_t event, const Place& place);

  const Program& program_;
  Backend& backend_;
  PlanBinder binder_;
  HostWork host_work_;
  std::vector<RunnablePlan> plans_;
  const Plan* current_ = nullptr;
  /// By place in the event_list(): the latest record since the host last waited for all streams, and
  /// how many there were in the run.
  std::vector<std::optional<LatestRecord>> latest_;
  std::vector<std::int64_t> recorded_;
};

}  // namespace mfsdp
