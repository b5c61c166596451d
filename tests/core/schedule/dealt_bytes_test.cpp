// The bytes that a rank keeps with expert parallelism, computed from the shapes of a model's
// parameters only, without the plan's groups, layouts and placements.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

std::int64_t pick(std::int64_t low, std::int64_t high) {
  return *rc::gen::inRange<std::int64_t>(low, high + 1);
}

/// Shapes of which every parameter is a multiple of 64 elements a rank, so that nothing is padded.
PlanConfig any_dealt_config() {
  PlanConfig config = test::small_config(1, pick(1, 4));
  const std::int64_t ep = pick(2, 6);
  const std::int64_t ranks = ep * pick(1, 5);
  ModelShape& model = config.model;
  if (*rc::gen::arbitrary<bool>()) model.family = Family::mixtral;
  model.hidden = 64 * ranks * pick(1, 2);
  model.vocab = pick(2, 40);
  model.tied_embeddings = *rc::gen::arbitrary<bool>();
  std::vector<std::int64_t> dense;
  if (model.family == Family::llama && model.layers > 1 && pick(0, 1) == 1) dense = {0};
  test::add_experts(model, ep * pick(1, 3), 2, dense);
  model.expert_intermediate = pick(1, 9);
  if (model.family == Family::llama) model.shared_intermediate = pick(0, 3);
  config.mesh = with_expert_grid(data_parallel_mesh(1, ranks), ep);
  config.expert_parallel = ep;
  config.strategy = static_cast<Strategy>(pick(0, 3));
  config.optimizer = *rc::gen::element(Optimizer::adamw, Optimizer::lion, Optimizer::sgd);
  if (config.optimizer != Optimizer::sgd && pick(0, 1) == 1) config.state_dtype = StateDtype::bf16;
  config.grad_dtype = *rc::gen::element(DType::fp32, DType::bf16);
  config.main_dtype = *rc::gen::element(DType::fp32, DType::bf16);
  config.recompute.kind = static_cast<Recompute>(pick(0, 2));
  config.microbatches = pick(1, 3);
  return config;
}

/// Elements of all parameters: those that every rank has, and those of all experts.
struct Elements {
  std::int64_t dense = 0;
  std::int64_t experts = 0;
};

Elements elements_of(const ModelShape& model) {
  const std::int64_t h = model.hidden;
  const std::int64_t heads = model.heads + 2 * model.kv_heads;
  Elements all{.dense = model.vocab * h * (model.tied_embeddings ? 1 : 2) + h, .experts = 0};
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    // Two norms, query, key and value, the projection of what attention makes.
    all.dense += 2 * h + heads * model.head_dim * h + model.heads * model.head_dim * h;
    const bool is_dense = layer == 0 && !model.dense_layers.empty();
    if (is_dense) {
      all.dense += 3 * model.intermediate * h;  // gate, up, down
      continue;
    }
    all.dense += model.experts * h;  // router
    if (model.shared_intermediate != 0) all.dense += 3 * model.shared_intermediate * h + h;
    all.experts += model.experts * 3 * model.expert_intermediate * h;
  }
  return all;
}

std::map<Category, std::int64_t> kept_by_formula(const PlanConfig& config) {
  const Elements all = elements_of(config.model);
  const std::int64_t ranks = config.mesh.size(Axis::dp_shard);
  const std::int64_t ep = config.expert_parallel;
  std::map<Category, std::int64_t> kept;
  // For each: bytes of a rank before sharding, and the number of ranks over which these are
  // sharded.
  for (const auto& [b, n] :
       {std::pair{all.dense, ranks}, std::pair{all.experts / ep, ranks / ep}}) {
    const auto cut_from = [&](Strategy first) { return config.strategy >= first ? b / n : b; };
    const std::int64_t updated = cut_from(Strategy::optim);
    kept[Category::model_weight] += cut_from(Strategy::optim_grads_params) * 2;
    kept[Category::main_weight] += config.main_dtype == DType::fp32 ? updated * 4 : 0;
    kept[Category::main_grad] +=
        cut_from(Strategy::optim_grads) * (config.grad_dtype == DType::fp32 ? 4 : 2);
    const std::int64_t states = config.optimizer == Optimizer::adamw  ? 2
                                : config.optimizer == Optimizer::lion ? 1
                                                                      : 0;
    kept[Category::optimizer_state] +=
        states * updated * (config.state_dtype == StateDtype::bf16 ? 2 : 4);
  }
  return kept;
}

RC_GTEST_PROP(DealtBytes, AreThoseOfTheFormula, ()) {
  const PlanConfig config = any_dealt_config();
  const auto program = build_program(config, {});
  if (!program) RC_FAIL(program.error().message());
  std::map<Category, std::int64_t> kept;
  for (const auto& [category, bytes] : kept_by_formula(config)) kept[category] = 0;
  for (const Buffer& buffer : program->buffers)
    if (const auto found = kept.find(buffer.category); buffer.persistent && found != kept.end())
      found->second += buffer.size.value;
  RC_ASSERT(kept == kept_by_formula(config));
}

// Two ranks, ep 2, one block of 2 experts; hidden 128, 2 heads and 1 key head of 4, 5 inner
// columns, vocabulary 24. Dense: 2 x 24 x 128 + 128 + 2 x 128 + 16 x 128 + 8 x 128 + 2 x 128 =
// 9,856. Experts: 2 x 3 x 5 x 128 = 3,840, of which each rank has 1,920, not sharded.
TEST(DealtBytes, OfASmallModel) {
  PlanConfig config = test::small_config(2, 1);
  config.model.hidden = 128;
  test::add_experts(config.model, 2, 1);
  config.mesh = with_expert_grid(config.mesh, 2);
  config.expert_parallel = 2;
  const Program program = build_program(config, {}).value();
  std::int64_t weights = 0;
  std::int64_t states = 0;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.category == Category::model_weight) weights += buffer.size.value;
    if (buffer.category == Category::optimizer_state) states += buffer.size.value;
  }
  EXPECT_EQ(weights, (9'856 / 2 + 1'920) * 2);
  EXPECT_EQ(states, (9'856 / 2 + 1'920) * 4 * 2);
}

}  // namespace
}  // namespace mfsdp
