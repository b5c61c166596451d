// State of the gradient ledger (gradients.hpp), and what its steps have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/ledger/gradient_memory.hpp"
#include "verify/proof/ledger/gradient_verdict.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp::ledger {

/// A gradient in a buffer that belongs to no group, such as a sum that is cast later.
struct UngroupedGradient {
  Held held;
  std::int64_t offset = 0;
  std::int64_t count = -1;
};

struct Ledger {
  Ledger(const UnrolledPlan& its_plan, const Layouts& its_layouts, const FollowedOps& its_ops,
         FindingList& findings)
      : unrolled(its_plan),
        layouts(its_layouts),
        config(its_plan.program->config),
        followed(its_ops),
        memory(its_layouts),
        verdict(its_plan, its_layouts, findings),
        ungrouped(its_plan.program->buffers.size()) {}

  const UnrolledPlan& unrolled;
  const Layouts& layouts;
  const PlanConfig& config;
  const FollowedOps& followed;
  GradientMemory memory;
  GradientVerdict verdict;
  std::vector<UngroupedGradient> ungrouped;     ///< by buffer
  Held made;                                    ///< scratch, for its memory
  Held reduced;                                 ///< likewise
  std::uint32_t now = 0;                        ///< the instance that runs
  std::span<const FollowedOperand> operands{};  ///< of it
};

/// The entry of an operand of the instance that runs, or null where it is not a gradient.
[[nodiscard]] const FollowedOperand* gradient(const Ledger& s, const Operand& operand);
[[nodiscard]] std::uint32_t buffer_of(const Ledger& s, const Operand& operand);
/// Reports an operand whose gradient cannot be followed, and follows its group no further.
void go_astray(Ledger& s, const char* rule, const FollowedOperand& operand,
               const std::string& what);
/// Writes or adds a value. Microbatches must be summed in the dtype of main gradients or a wider
/// one: a sum that was narrower before may not be added to either.
void put(Ledger& s, Held& edited, const Held& held, bool adds, std::uint32_t group,
         const Operand& output);
/// Writes or adds one value to all atoms of a spot, at its level and all finer ones.
void put(Ledger& s, const Spot& at, const Held& held, bool adds, const Operand& output);
/// Whether a repetition that stands for further ones uses a gradient of an earlier repetition: in
/// further ones it would be of ever earlier ones.
[[nodiscard]] bool is_late(const Ledger& s, const Held& held);
[[nodiscard]] bool is_late(const Ledger& s, const Spot& from);
/// The axis over which the gradient in the operand's buffer is not summed yet: each rank's
/// contribution is by itself.
[[nodiscard]] std::optional<Axis> unsummed_in(const Ledger& s, const FollowedOperand& operand);
void report_width(Ledger& s, std::uint32_t group, DType narrow, DType wide, const char* what);
/// Contributions of this rank become contributions of every rank of the axis.
void add_axis(const Ledger& s, Held& held, Axis axis);

}  // namespace mfsdp::ledger
