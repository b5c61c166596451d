// A plan's ops, each once, and their runs in host order.
//
// Each op is in one list. Tables of ops have an entry for each op of each list, in this order:
// list s, below the number of segments n, has the ops of segment s itself, which are none if it
// calls passes; list n + p has the ops of pass p. So a plan without
// passes has the numbers of its segments. A new pass changes no other number. An op that is called
// at several places has one entry.
//
//   segments   warm_up x 2   calls forward                       list 0  no ops
//              steady x 5    calls forward, backward (lag 2)          1  no ops
//              optimizer     ops of its own                           2  update ...
//   passes     forward, backward                                   3, 4  attention ...
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/plan/rotation.hpp"

namespace mfsdp {

[[nodiscard]] inline std::size_t count_op_lists(const Plan& plan) {
  return plan.segments.size() + plan.passes.size();
}

/// The ops of a list, by the numbering above. `AnyPlan` is Plan or const Plan.
template <class AnyPlan>
[[nodiscard]] auto& op_list(AnyPlan& plan, std::size_t list) {
  return list < plan.segments.size() ? plan.segments[list].ops
                                     : plan.passes[list - plan.segments.size()].ops;
}

/// The name of the segment or the pass that has the list.
[[nodiscard]] inline const std::string& list_name(const Plan& plan, std::size_t list) {
  return list < plan.segments.size() ? plan.segments[list].name
                                     : plan.passes[list - plan.segments.size()].name;
}

/// Each op of a plan once, in the order of the lists.
template <class AnyPlan>
class PlanOps {
 public:
  using Entry = std::conditional_t<std::is_const_v<AnyPlan>, const Op, Op>;

  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Op;
    using difference_type = std::ptrdiff_t;
    using pointer = Entry*;
    using reference = Entry&;

    Iterator() = default;
    Iterator(AnyPlan& plan, std::size_t list) : plan_(&plan), list_(list) { pass_empty_lists(); }

    reference operator*() const { return op_list(*plan_, list_)[position_]; }
    pointer operator->() const { return &**this; }
    Iterator& operator++() {
      ++position_;
      pass_empty_lists();
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++*this;
      return before;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    void pass_empty_lists() {
      while (list_ < count_op_lists(*plan_) && position_ == op_list(*plan_, list_).size()) {
        ++list_;
        position_ = 0;
      }
    }

    AnyPlan* plan_ = nullptr;
    std::size_t list_ = 0;
    std::size_t position_ = 0;
  };

  explicit PlanOps(AnyPlan& plan) : plan_(&plan) {}

  [[nodiscard]] Iterator begin() const { return {*plan_, 0}; }
  [[nodiscard]] Iterator end() const { return {*plan_, count_op_lists(*plan_)}; }

 private:
  AnyPlan* plan_;
};

template <class AnyPlan>
[[nodiscard]] PlanOps<AnyPlan> ops_of(AnyPlan& plan) {
  return PlanOps<AnyPlan>(plan);
}

[[nodiscard]] inline std::int64_t count_ops(const Plan& plan) {
  std::size_t count = 0;
  for (std::size_t list = 0; list < count_op_lists(plan); ++list)
    count += op_list(plan, list).size();
  return static_cast<std::int64_t>(count);
}

/// A call of a list of ops: of a pass, or of a segment's own.
struct ListCall {
  std::size_t list = 0;
  PassCall of{};  ///< `pass` means nothing for a segment's own ops

  [[nodiscard]] std::int64_t lag_in(std::int64_t repetition) const { return of.lag_in(repetition); }
};

/// The calls of each repetition of segment `s`, in host order. Calls of passes that the plan does not
/// have are left out (MF001).
[[nodiscard]] inline std::vector<ListCall> calls_of(const Plan& plan, std::size_t s) {
  const Segment& segment = plan.segments[s];
  if (segment.calls.empty()) return {{.list = s}};
  std::vector<ListCall> calls;
  calls.reserve(segment.calls.size());
  for (const PassCall& call : segment.calls) {
    const auto pass = std::ranges::find(plan.passes, call.pass, &Pass::id);
    if (pass == plan.passes.end()) continue;
    const auto position = static_cast<std::size_t>(pass - plan.passes.begin());
    calls.push_back({.list = plan.segments.size() + position, .of = call});
  }
  return calls;
}

/// Ops that one repetition of segment `s` runs.
[[nodiscard]] inline std::int64_t ops_in_run(const Plan& plan, std::size_t s) {
  std::size_t count = 0;
  for (const ListCall& call : calls_of(plan, s)) count += op_list(plan, call.list).size();
  return static_cast<std::int64_t>(count);
}

/// Calls visit(op) for each op that one repetition of segment `s` runs, in host order: an op of a
/// pass as often as that is called.
void for_each_op_of_run(const Plan& plan, std::size_t s, auto visit) {
  for (const ListCall& call : calls_of(plan, s))
    for (const Op& op : op_list(plan, call.list)) visit(op);
}

/// The run of an op.
struct OpRun {
  std::int64_t step = 0;
  std::size_t segment = 0;  ///< position in the plan
  std::int64_t repetition = 0;
  std::size_t list = 0;      ///< of the op
  std::size_t position = 0;  ///< of the op in its list
  std::int64_t begun = 0;  ///< microbatches of this step, with those that begin in this repetition
  std::int64_t lag = 0;    ///< of the call in this repetition, and of the op

  /// The number of the instance that the op uses, where a buffer or event has `instances`.
  [[nodiscard]] std::int64_t instance(std::int64_t instances) const {
    return instance_of(begun, lag, instances);
  }
};

/// How much of a plan is gone through.
struct Unrolling {
  std::int64_t steps = 1;
  std::int64_t repetitions = std::numeric_limits<std::int64_t>::max();  ///< of a segment, at most
};

/// Calls visit(run, op) for each run of each op, in host order.
void for_each_instance(const Plan& plan, const Unrolling& of, auto visit) {
  std::vector<std::vector<ListCall>> calls;
  for (std::size_t s = 0; s < plan.segments.size(); ++s) calls.push_back(calls_of(plan, s));
  OpRun run;
  for (run.step = 0; run.step < of.steps; ++run.step) {
    run.begun = 0;
    for (run.segment = 0; run.segment < plan.segments.size(); ++run.segment) {
      const Segment& segment = plan.segments[run.segment];
      const std::int64_t repetitions = std::min(segment.repeat, of.repetitions);
      for (run.repetition = 0; run.repetition < repetitions; ++run.repetition) {
        run.begun += segment.microbatches;
        for (const ListCall& call : calls[run.segment]) {
          run.list = call.list;
          const std::vector<Op>& ops = op_list(plan, call.list);
          for (run.position = 0; run.position < ops.size(); ++run.position) {
            const Op& op = ops[run.position];
            run.lag = call.lag_in(run.repetition) + op.lag;
            visit(std::as_const(run), op);
          }
        }
      }
    }
  }
}

}  // namespace mfsdp
