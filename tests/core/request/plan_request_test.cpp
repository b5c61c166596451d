#include "core/request/plan_request.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "core/plan/plan_json.hpp"
#include "core/request/plan_file.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::kScenarios;
using test::ScratchFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

CommonOptions nano() {
  CommonOptions options;
  options.model = "llama_nano";
  options.gpus = 4;
  return options;
}

/// A cluster file with that number of GPUs.
CommonOptions on_cluster(const ScratchFolder& folder, std::int64_t gpus) {
  CommonOptions options = nano();
  options.cluster = (folder / "c.toml").string();
  test::write_file(*options.cluster, "gpu = \"h100\"\ngpus = " + std::to_string(gpus) + "\n");
  return options;
}

TEST(PlanRequest, FlagsAreAConfigurationAndAProgram) {
  PlanRequests requests(kScenarios);
  const auto request = requests.read(nano(), {.gpus_are_chosen = true});
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->config.mesh.world_size(), 4);
  EXPECT_EQ(request->meta.model_name, "llama_nano");
  EXPECT_EQ(request->program, nullptr);
  const auto built = build_requested(*request);
  ASSERT_TRUE(built) << built.error().message();
  EXPECT_EQ((*built)->programs.front().config, request->config);
  EXPECT_EQ(plan_hash(**requests.program(nano(), {.gpus_are_chosen = true})), plan_hash(**built));
}

TEST(PlanRequest, AFileIsItsProgramAndIsReadOnce) {
  const ScratchFolder folder;
  PlanRequests requests(kScenarios);
  const auto built = requests.program(nano(), {.gpus_are_chosen = true});
  CommonOptions written = nano();
  written.plan_out = (folder / "plan.json").string();
  ASSERT_TRUE(write_plan(written, **built));
  CommonOptions asked;
  asked.plan = written.plan_out;
  const auto first = requests.read(asked, {});
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(plan_hash(*first->program), plan_hash(**built));
  EXPECT_EQ(first->config, (*built)->config);
  EXPECT_EQ(requests.program(asked, {}).value(), first->program);
}

TEST(PlanRequest, AClustersFileSaysTheGpusWhereNoFlagDoes) {
  const ScratchFolder folder;
  PlanRequests requests(kScenarios);
  const CommonOptions options = on_cluster(folder, 16);
  EXPECT_EQ(requests.read(options, {})->config.mesh.world_size(), 16);
  EXPECT_EQ(requests.read(options, {.gpus_are_chosen = true})->config.mesh.world_size(), 4);
  EXPECT_EQ(requests.gpus_of_cluster(options).value(), 16);
  EXPECT_EQ(requests.gpus_of_cluster(nano()).value(), std::nullopt);
  EXPECT_TRUE(say_gpus({"--model", "--world-size"}));
  EXPECT_TRUE(say_gpus({"--gpus"}));
  EXPECT_FALSE(say_gpus({"--gpus-per-node"}));
}

/// Mistral-7B with a scaling of RoPE whose table nothing here makes.
std::string dynamic_model(const ScratchFolder& folder) {
  std::string text = test::read_file(test::kModels / "mistral_7b" / "config.json");
  const std::string theta = "\"rope_theta\"";
  const std::string path = (folder / "config.json").string();
  const std::string scaling = R"("rope_scaling": {"type": "dynamic", "factor": 2.0}, )";
  test::write_file(path, text.insert(text.find(theta), scaling));
  return path;
}

TEST(PlanRequest, GapsAreWarnedOfOnceAndRefusedWhereThePlanRuns) {
  const ScratchFolder folder;
  std::vector<std::string> warnings;
  PlanRequests requests(kScenarios,
                        {.note = {}, .warn = [&](const std::string& w) { warnings.push_back(w); }});
  CommonOptions options = nano();
  options.model = dynamic_model(folder);
  for (int asked = 0; asked < 2; ++asked) ASSERT_TRUE(requests.read(options, {}));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("dynamic")));
  const auto run = requests.read(options, {.runs = true});
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().where, "--model");
}

Program planned(const CommonOptions& options) {
  return **PlanRequests(kScenarios).program(options, {.gpus_are_chosen = true});
}

TEST(PlanRequest, TheHashKnowsTheLayout) {
  std::set<std::string> hashes;
  for (const LayoutRule layout : {LayoutRule::packed, LayoutRule::megatron_fsdp}) {
    CommonOptions options = nano();
    options.config.layout = layout;
    hashes.insert(plan_hash(planned(options)));
  }
  EXPECT_THAT(hashes, SizeIs(2));
}

/// Where each parameter lies in its group, and how large the group is with its padding: what saves,
/// norms and equal bits between strategies rest on.
std::vector<std::string> layout_of(const Program& program) {
  std::vector<std::string> lines;
  for (const Group& group : program.groups) {
    lines.push_back(fmt::format("group {}: chunk {}, {} elements", group.id.value, group.chunk,
                                group.elements));
    for (const PlacedParameter& parameter : group.parameters)
      lines.push_back(fmt::format("{} at {}", parameter.name, parameter.offset));
  }
  return lines;
}

TEST(PlanRequest, EveryStrategyHasTheLayoutOfItsMesh) {
  for (const LayoutRule layout : {LayoutRule::packed, LayoutRule::megatron_fsdp})
    for (const std::int64_t outer : {1, 2}) {
      CommonOptions options = nano();
      options.config.layout = layout;
      options.outer_dp = outer;
      const auto expected = layout_of(planned(options));  // of optim_grads_params
      for (const Strategy strategy : {Strategy::no_shard, Strategy::optim, Strategy::optim_grads}) {
        options.config.strategy = strategy;
        EXPECT_EQ(layout_of(planned(options)), expected)
            << to_string(layout) << ", " << to_string(strategy) << ", outer-dp " << outer;
      }
    }
}

TEST(PlanRequest, AChangedPlanIsNoted) {
  const ScratchFolder folder;
  Program program = **PlanRequests(kScenarios).program(nano(), {.gpus_are_chosen = true});
  program.meta.stored_hash = plan_hash(program);
  const std::string path = (folder / "plan.json").string();
  std::string text = to_canonical_json(program);
  test::write_file(path, text);
  std::ostringstream heard;
  ASSERT_TRUE(load_plan(path, notes_on(heard, "tool")));
  EXPECT_THAT(heard.str(), IsEmpty());
  const std::string name = "\"purpose\":\"world\"";
  ASSERT_NE(text.find(name), std::string::npos);
  test::write_file(path, text.replace(text.find(name), name.size(), "\"purpose\":\"all\""));
  const auto changed = load_plan(path, notes_on(heard, "tool"));
  ASSERT_TRUE(changed) << changed.error().message();
  EXPECT_EQ(heard.str(), "tool: note: " + path +
                             ": the plan was changed since it was written, its hash is " +
                             plan_hash(*changed) + "\n");
  EXPECT_TRUE(load_plan(path, {}));
}

}  // namespace
}  // namespace mfsdp
