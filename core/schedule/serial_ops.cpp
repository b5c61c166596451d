// Ops that a microbatch certainly runs one after another, from its tables.
#include <algorithm>
#include <utility>

#include "core/schedule/microbatch.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp::schedule {

std::vector<MicrobatchSchedule::SerialOp> MicrobatchSchedule::serial_ops() const {
  std::vector<SerialOp> ops;
  for (std::size_t i = 0; i < steps_.size(); ++i)
    if (!steps_[i].beside)
      ops.push_back(
          {.recipe = steps_[i].op, .owner = steps_[i].owner, .forward = i < backward_begin_});
  return ops;
}

std::vector<std::size_t> MicrobatchSchedule::least_gathers() const {
  std::vector<std::size_t> units;
  const std::vector<std::vector<std::size_t>> resident = residents(false);
  for (std::size_t use = 1; use < resident.size(); ++use)
    for (const std::size_t unit : resident[use])
      if (state_.gathers(unit) &&
          std::ranges::find(resident[use - 1], unit) == resident[use - 1].end())
        units.push_back(unit);
  return units;
}

OpBody MicrobatchSchedule::body_of(const RecipeOp& recipe) const {
  const auto operand_of = [&](const RecipeOperand& stated, bool adds) {
    Operand made;
    made.role = stated.role;
    made.access = stated.access;
    if (stated.adds) made.access = adds ? Access::read_write : Access::write;
    made.dtype =
        stated.source == Source::weight_grad ? weight_gradient_dtype(config_) : stated.dtype;
    made.shape = stated.shape;
    made.strides = stated.strides;
    return made;
  };
  if (const RecipeKernel* kernel = recipe.kernel()) {
    Kernel made{.kind = kernel->kind,
                .operands = {},
                .attributes = kernel->attributes,
                .flops = kernel->flops};
    const bool adds = made.attribute("beta") != 0;
    for (const RecipeOperand& stated : recipe.operands)
      made.operands.push_back(operand_of(stated, adds));
    return made;
  }
  const auto& collective = std::get<RecipeCollective>(recipe.body);
  const auto found = [&](std::string_view role) {
    return operand_of(*std::ranges::find(recipe.operands, role, &RecipeOperand::role), false);
  };
  Collective made{.kind = collective.kind,
                  .communicator = e_.communicator(activations_over(collective.axis)),
                  .reduction = collective.reduction,
                  .count = collective.count,
                  .dtype = {},
                  .input = found("input"),
                  .output = found("output")};
  made.dtype = made.input.dtype;
  return made;
}

}  // namespace mfsdp::schedule
