// Nothing is inferred from names, ids or the order of tables: a plan under other ones is predicted,
// proved and run alike.
#include "tests/support/renamed_plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "core/plan/check.hpp"
#include "core/plan/plan_json.hpp"
#include "sim/hardware/catalogue.hpp"
#include "sim/predict/predict.hpp"
#include "tests/gpu_backend/train/training.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/scenarios.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

/// The figures of a prediction, without names.
std::vector<std::int64_t> figures_of(const Program& program) {
  const Gpu gpu = load_gpu("h100", test::kScenarios / "gpus").value();
  const auto costs =
      make_cost_model(make_cluster(gpu, program.config.mesh.world_size(), 1).value()).value();
  const PredictedRun run = predict(program, costs).value().run;
  const TimeSummary& time = run.time;
  std::vector<std::int64_t> figures{time.step.value,
                                    time.compute.value,
                                    time.communication.value,
                                    time.exposed_communication.value,
                                    time.idle.value,
                                    time.contention.value,
                                    run.traffic.all_gather.value,
                                    run.traffic.reduce_scatter.value,
                                    run.traffic.all_reduce.value,
                                    run.memory.allocated.value,
                                    run.live_peak.value_or(Bytes()).value,
                                    run.plan.collectives,
                                    run.plan.max_live_full_weights,
                                    run.plan.max_live_full_gradients,
                                    run.plan.padding.value};
  for (const Bytes bytes : run.memory.categories) figures.push_back(bytes.value);
  std::vector<std::pair<std::int64_t, std::int64_t>> pools;
  for (const PoolSummary& pool : run.plan.pools)
    pools.emplace_back(pool.height.value, pool.lower_bound.value);
  std::ranges::sort(pools);
  for (const auto& [height, bound] : pools) figures.insert(figures.end(), {height, bound});
  return figures;
}

/// How often each rule has a finding, and the bounds, without names.
std::pair<std::map<std::string, int>, std::vector<std::int64_t>> verdict_of(
    const Program& program) {
  const Proof proof = prove(program, {.expand_ranks = true}).value();
  std::map<std::string, int> rules;
  for (const Finding& finding : proof.findings) ++rules[finding.rule];
  const Bounds& bounds = proof.bounds;
  std::vector<std::int64_t> figures{
      bounds.live_full_weights,      bounds.live_full_gradients,         bounds.peak.value,
      bounds.concurrent_collectives, std::ssize(bounds.redundant_waits), proof.instances,
      proof.expansion.collectives,   proof.expansion.parameter_intervals};
  return {rules, figures};
}

RC_GTEST_PROP(RenamedPlan, IsPredictedAndProvedAlike, (std::uint32_t seed)) {
  for (int i = 0; i < 2; ++i) {  // 200 plans where a property has 100 cases
    const Program program = build_program(*test::any_config(), {}).value();
    const Program other = test::renamed(program, seed + static_cast<std::uint32_t>(i));
    RC_ASSERT(plan_hash(other) != plan_hash(program));
    const auto checked = check_structure(other);
    if (!checked) RC_FAIL(checked.error().message());
    RC_ASSERT(figures_of(other) == figures_of(program));
    RC_ASSERT(verdict_of(other) == verdict_of(program));
  }
}

/// Whether two runs end with the same weights, bit for bit.
bool same(const test::Weights& a, const test::Weights& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && std::ranges::equal(x.second, y.second, test::same_bits);
  });
}

RC_GTEST_PROP(RenamedPlan, TrainsToTheSameBits, (std::uint32_t seed)) {
  for (int i = 0; i < 2; ++i) {
    PlanConfig config = *test::any_config();
    config.capacity_factor = {};  // a rank with more rows for another than that ends the run
    if (config.mesh.size(Axis::dp_shard) > 3) {
      const bool deals = config.is_expert_parallel();
      config.mesh.resize(Axis::dp_shard, deals ? config.expert_parallel : 2);
      if (deals) config.mesh = with_expert_grid(config.mesh, config.expert_parallel);
    }
    test::Counting data;
    data.vocab = config.model.vocab;
    const Program program = build_program(config, {}).value();
    const Program other = test::renamed(program, seed + static_cast<std::uint32_t>(i));
    const test::Told a = test::train(program, 2, data);
    const test::Told b = test::train(other, 2, data);
    if (!a.end) RC_FAIL(a.end.error().message());
    if (!b.end) RC_FAIL(b.end.error().message());
    RC_ASSERT(a.losses() == b.losses());
    RC_ASSERT(same(a.weights, b.weights));
    RC_ASSERT(same(a.gradients, b.gradients));
  }
}

}  // namespace
}  // namespace mfsdp
