#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "sim/simulator/awaited.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

PlanConfig config_of(const std::string& model) {
  PlanConfig config;
  config.model = load_model(model, test::kScenarios / "models").value().shape;
  config.mesh = data_parallel_mesh(1, 4);
  config.seq_len = 128;
  config.microbatches = 2;
  return config;
}

/// The class according to names of mfsdp's schedule, which the classification does not read.
Awaited by_name(const Op& op, const Collective& collective) {
  const auto has = [&](std::string_view part) { return op.name.find(part) != std::string::npos; };
  if (op.name == "norm.all_gather") return Awaited::gradient_norm;
  if (has("loss")) return Awaited::others;
  if (has("keys.")) return Awaited::keys;
  if (has("reduce") || has("grad")) return Awaited::gradients;
  if (collective.kind == CollectiveKind::all_to_all)
    return op.phase == Phase::optimizer ? Awaited::others : Awaited::expert_rows;
  return op.phase == Phase::optimizer ? Awaited::others : Awaited::weights;
}

/// How many collectives of the train plan bring what, each held against its name.
std::map<Awaited, int> counted(const PlanConfig& config) {
  const auto program = build_program(config, {});
  EXPECT_TRUE(program) << program.error().message();
  if (!program) return {};
  const Plan& plan = *program->find_plan(PlanRole::train);
  const AwaitedKinds kinds(*program, plan);
  std::map<Awaited, int> counts;
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops) {
      const auto* collective = std::get_if<Collective>(&op.body);
      if (collective == nullptr) continue;
      const Awaited brings = kinds.of(op, *collective);
      EXPECT_EQ(brings, by_name(op, *collective)) << op.name;
      ++counts[brings];
    }
  return counts;
}

TEST(AwaitedKindsOf, WeightsGradientsTheNormAndTheLoss) {
  const auto counts = counted(config_of("llama_nano"));
  EXPECT_GT(counts.at(Awaited::weights), 0);
  EXPECT_GT(counts.at(Awaited::gradients), 0);
  EXPECT_EQ(counts.at(Awaited::gradient_norm), 1);
  EXPECT_GT(counts.at(Awaited::others), 0);
  EXPECT_FALSE(counts.contains(Awaited::expert_rows));
}

TEST(AwaitedKindsOf, GatheringUpdatedWeightsBringsWeights) {
  PlanConfig config = config_of("llama_nano");
  config.strategy = Strategy::optim;
  EXPECT_GT(counted(config).at(Awaited::weights), 0);
}

TEST(AwaitedKindsOf, ReplicasSumGradients) {
  PlanConfig config = config_of("llama_nano");
  config.mesh = data_parallel_mesh(2, 2);
  EXPECT_GT(counted(config).at(Awaited::gradients), 0);
}

TEST(AwaitedKindsOf, ExpertsThatAreDealtOutExchangeRows) {
  PlanConfig config = config_of("moe_nano");
  config.expert_parallel = 2;
  config.mesh = with_expert_grid(config.mesh, 2);
  EXPECT_GT(counted(config).at(Awaited::expert_rows), 0);
}

TEST(AwaitedKindsOf, RanksThatShareSequencesGatherKeys) {
  PlanConfig config = config_of("llama_nano");
  config.mesh.resize(Axis::cp, 2);
  config.cp_comm = ContextExchange::all_gather;
  const auto counts = counted(config);
  EXPECT_GT(counts.at(Awaited::keys), 0);
  EXPECT_GT(counts.at(Awaited::weights), 0);
}

}  // namespace
}  // namespace mfsdp
