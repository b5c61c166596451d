// The op instances of one step by number, in host order. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/index.hpp"
#include "core/plan/plan.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp {

class StepInstances {
 public:
  /// The program's ids must resolve, and its steps must be small enough to be numbered.
  StepInstances(const Program& program, const Plan& plan);

  struct Instance {
    const Op* op = nullptr;
    std::optional<std::size_t> stream;  ///< position; none: the host's
    std::size_t segment = 0;
    std::int64_t repetition = 0;
  };

  [[nodiscard]] std::size_t ops() const { return ops_.size(); }
  /// Number of instances in a step.
  [[nodiscard]] std::size_t size() const { return size_; }

  /// The op's position among the plan's ops.
  [[nodiscard]] std::optional<std::size_t> find(OpId op) const { return op_index_.find(op); }
  /// Number of instances in a step of the op at that position.
  [[nodiscard]] std::int64_t repeat(std::size_t op) const;
  /// The number of its n-th instance, n below repeat().
  [[nodiscard]] std::size_t number(std::size_t op, std::int64_t n) const;
  [[nodiscard]] Instance at(std::size_t number) const;
  /// The place of an instance in step `step`, counted from 1 as in records.
  [[nodiscard]] Place place(std::size_t number, std::int64_t step) const;

 private:
  struct Part {
    const Segment* segment = nullptr;
    std::size_t first_op = 0;
    std::size_t first_instance = 0;
  };
  struct PlanOp {
    const Op* op = nullptr;
    std::size_t part = 0;
    std::optional<std::size_t> stream;
  };

  const Program& program_;
  const Plan& plan_;
  std::vector<Part> parts_;
  std::vector<PlanOp> ops_;
  IdIndex<OpId> op_index_;
  std::size_t size_ = 0;
};

}  // namespace mfsdp
