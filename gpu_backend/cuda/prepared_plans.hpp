// The prepared plans of the program: the launch of each op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/bound_plan.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

struct PreparedOp {
  Launch launch;  ///< none if nothing is queued
  /// For a record: the op before it on its stream, if that op takes time.
  const BoundOp* work = nullptr;
};

struct PreparedList {
  std::span<const BoundOp> bound;
  bool timed = false;         ///< whether the ops of its plan may be timed
  std::int64_t first = 0;     ///< number of its first op in its plan, each turn counted
  std::int64_t plan_ops = 0;  ///< number of ops of its plan, likewise
  std::vector<PreparedOp> ops;
};

/// The place of an op among the prepared ones.
struct PreparedPlace {
  const PreparedList* list = nullptr;
  std::size_t position = 0;

  [[nodiscard]] const PreparedOp& op() const { return list->ops[position]; }
  /// The op's number in its plan, from 0, each turn counted.
  [[nodiscard]] std::int64_t number() const {
    return list->first + static_cast<std::int64_t>(position);
  }
};

class PreparedPlans {
 public:
  using BindOp = std::function<Result<Launch>(const BoundOp& op)>;

  /// Binds every op of a plan, whose address must not change. An error names the plan and the op.
  [[nodiscard]] Result<void> add(const BoundPlan& plan, bool timed, const BindOp& bind);

  /// None for an op of another plan.
  [[nodiscard]] std::optional<PreparedPlace> find(const BoundOp& op) const;

 private:
  std::vector<PreparedList> lists_;  ///< of all plans: a handful
};

}  // namespace mfsdp::cuda
