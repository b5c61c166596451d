// For random configurations: memory by the formulas, consistent plans, and no two live buffers in
// one place in any interleaving of the streams.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "core/plan/check.hpp"
#include "core/plan/lifetimes.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/races.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/random_execution.hpp"

namespace mfsdp {
namespace {

using test::any_config;
using test::RandomExecution;

/// Bytes of a category's persistent buffers.
std::int64_t resident(const Program& program, Category category) {
  std::int64_t sum = 0;
  for (const Buffer& buffer : program.buffers)
    if (buffer.persistent && buffer.category == category) sum += buffer.size.value;
  return sum;
}

/// The formulas of Megatron-FSDP's buffers, written from the strategy's number and B alone, B being
/// what a rank has of a group before it is cut.
void check_resident_formulas(const Program& program) {
  const PlanConfig& config = program.config;
  const std::int64_t outer_parts =
      config.outer_strategy == Strategy::optim ? config.mesh.size(Axis::dp_outer) : 1;
  std::map<Category, std::int64_t> expected;
  for (const Group& group : program.groups) {
    const std::int64_t b = group.elements;
    // A rank has the experts of one in ep ranks, and shares them with the others that do.
    const std::int64_t ranks =
        config.mesh.size(Axis::dp_shard) / (group.shard.empty() ? 1 : config.expert_parallel);
    const Strategy strategy = group.shard.empty() ? config.strategy : config.strategy_of_experts();
    const int zero = ranks > 1 ? static_cast<int>(strategy) : 0;
    const std::int64_t s = b / ranks;
    const std::int64_t weights = zero >= 3 ? s : b;
    const std::int64_t updated = (zero >= 1 ? s : b) / outer_parts;
    // A group whose casts are gathered has main weights and casts of a byte, and nothing in bf16.
    expected[Category::model_weight] +=
        group.fp8 ? updated * size_of(config.main_dtype) + weights : weights * 2;
    if (!group.requires_grad) continue;
    if (config.main_dtype == DType::fp32 && !group.fp8)
      expected[Category::main_weight] += updated * 4;
    expected[Category::main_grad] += (zero >= 2 ? s : b) * size_of(config.grad_dtype);
    const std::int64_t states = *group.optimizer == Optimizer::adamw ? 2
                                : *group.optimizer == Optimizer::sgd ? 0
                                                                     : 1;
    std::int64_t each = updated * 4;
    if (config.state_dtype == StateDtype::bf16) each = updated * 2;
    if (config.state_dtype == StateDtype::blockwise8) each = updated + updated / 256 * 4;
    expected[Category::optimizer_state] += states * each;
  }
  for (const Category category : {Category::model_weight, Category::main_weight,
                                  Category::main_grad, Category::optimizer_state})
    RC_ASSERT(resident(program, category) == expected[category]);
}

void check_live_bounds(const Program& program) {
  const PlanConfig& config = program.config;
  for (const Plan& plan : program.plans) {
    const auto weights = max_live_buffers(program, plan, Category::unsharded_weight);
    RC_ASSERT(weights.has_value());
    RC_ASSERT(*weights <= config.prefetch + 1 + config.keep_gathered);
    const auto gradients = max_live_buffers(program, plan, Category::unsharded_grad);
    RC_ASSERT(gradients.has_value());
    // A tied unit's slot is one more.
    RC_ASSERT(*gradients <= config.grad_slots + (config.model.tied_embeddings ? 1 : 0));
  }
}

void check_execution(const Program& program) {
  for (const Plan& plan : program.plans) {
    RandomExecution execution(program, plan, *rc::gen::arbitrary<std::uint32_t>());
    const auto complaint = execution.run(2);
    if (complaint) RC_FAIL(plan.name + ": " + *complaint);
    for (const Category category : {Category::unsharded_weight, Category::unsharded_grad})
      RC_ASSERT(execution.most_live(category) <= *max_live_buffers(program, plan, category));
  }
}

void check_json(const Program& program) {
  const std::string text = to_canonical_json(program);
  const auto back = program_from_json(text, "plan.json");
  if (!back) RC_FAIL(back.error().message());
  RC_ASSERT(to_canonical_json(*back) == text);
  RC_ASSERT(back->meta.stored_hash == plan_hash(*back));
}

/// Configurations per case of rapidcheck's 100: 2,000 in all, fewer in slow sanitizer builds.
int per_case() {
  const char* wanted = std::getenv("MFSDP_PROPERTY_RUNS");
  return wanted == nullptr ? 20 : std::max(1, std::atoi(wanted) / 100);
}

RC_GTEST_PROP(BuildProperty, EveryConfigurationGivesASoundProgram, ()) {
  for (int built = 0; built < per_case();) {
    const PlanConfig config = *any_config();
    // Rejected are only frozen patterns that match nothing or everything.
    if (!validate(config)) continue;
    ++built;
    const auto program = build_program(config, {});
    if (!program) RC_FAIL(program.error().message());
    const auto structure = check_structure(*program);
    if (!structure) RC_FAIL(structure.error().message());
    check_resident_formulas(*program);
    check_live_bounds(*program);
    check_execution(*program);
    if (built == 1) check_json(*program);
  }
}

RC_GTEST_PROP(BuildProperty, ConflictingAccessesAreAlwaysOrdered, ()) {
  for (int built = 0; built < std::max(1, per_case() / 20);) {
    const PlanConfig config = *any_config();
    if (!validate(config)) continue;
    ++built;
    const auto program = build_program(config, {});
    if (!program) RC_FAIL(program.error().message());
    for (const Plan& plan : program->plans)
      if (const auto race = test::find_race(*program, plan)) RC_FAIL(plan.name + ": " + *race);
  }
}

}  // namespace
}  // namespace mfsdp
