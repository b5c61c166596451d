#include "verify/traces/known_settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <regex>
#include <set>

#include "core/base/read_file.hpp"

namespace mfsdp::traces {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SettingsSeen seen_in(const std::string& text) {
  const auto configurations = read_configurations(text, "run");
  EXPECT_TRUE(configurations) << configurations.error().message();
  return configurations ? settings_seen(*configurations) : SettingsSeen{};
}

TEST(KnownSettings, AreToldFromThoseThatNoRuleLooksAt) {
  const SettingsSeen seen = seen_in(
      "export NCCL_IB_DISABLE=1\nTP=4 train.py --use-megatron-fsdp --bf16 --num-layers 4 "
      "--no-gradient-accumulation-fusion --optimizer adam");
  EXPECT_THAT(seen.looked_at, ElementsAre("NCCL_IB_DISABLE", "gradient_accumulation_fusion",
                                          "optimizer", "use_megatron_fsdp"));
  EXPECT_THAT(seen.passed_over, ElementsAre("bf16", "num_layers"));
  EXPECT_TRUE(seen.is_known_trainer);
  EXPECT_EQ(settings_words(seen),
            "settings looked at: NCCL_IB_DISABLE, gradient_accumulation_fusion, optimizer, "
            "use_megatron_fsdp; ignored: bf16, num_layers");
}

TEST(KnownSettings, AreNoneInFilesOfOtherPrograms) {
  for (const std::string text :
       {R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}})",
        R"({"model_type": "llama", "hidden_size": 64, "use_cache": true})", R"({"a": 1})",
        R"({"optimizer": "adam", "fp16": true, "save": null})"})
    EXPECT_FALSE(seen_in(text).is_known_trainer) << text;
  EXPECT_TRUE(seen_in(R"({"ddp": {"use_megatron_fsdp": false}})").is_known_trainer);
  EXPECT_TRUE(seen_in("--tensor-model-parallel-size $TP").is_known_trainer);
}

TEST(KnownSettings, OtherProgramsAreNamed) {
  EXPECT_EQ(configuration_of_others(R"({"zero_optimization": {"stage": 7}, "n": NaN})"),
            "a configuration of DeepSpeed (it has zero_optimization)");
  EXPECT_THAT(*configuration_of_others(R"({"architectures": [], "model_type": "llama"})"),
              HasSubstr("the config.json of a model"));
  EXPECT_THAT(*configuration_of_others(R"({"distributed_type": "FSDP", "fsdp_config": {}})"),
              HasSubstr("Accelerate"));
  EXPECT_EQ(configuration_of_others("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n"),
            "a configuration of Accelerate, in YAML (it has compute_environment)");
  EXPECT_EQ(configuration_of_others("# a run\n[training]\nsteps = 10\n"),
            "a configuration of torchtitan (it has [training])");
  for (const std::string text : {R"({"a": 1})", "[1]", "--a 1", "", "{"})
    EXPECT_EQ(configuration_of_others(text), std::nullopt) << text;
}

/// All quoted names in the rules' sources are known settings or values.
TEST(KnownSettings, AreAllThatRulesLookAt) {
  const std::set<std::string> values{"a2a",
                                     "p2p",
                                     "adam",
                                     "dist_muon",
                                     "fsdp_dtensor",
                                     "full_iteration",
                                     "no_shard",
                                     "off",
                                     "optim",
                                     "optim_grads",
                                     "optim_grads_params",
                                     "sgd",
                                     "torch_dcp",
                                     "torch_dist",
                                     "mfsdp_plan",
                                     "all_gather",
                                     "allgather",
                                     "none"};
  std::set<std::string> names;
  for (const char* file :
       {"fsdp_rules.cpp", "environment_rules.cpp", "axis_rules.cpp", "fsdp_facts.hpp"}) {
    const auto path = std::filesystem::path(MFSDP_SOURCE_DIR) / "verify/traces" / file;
    const std::string text = *read_file(path, "a source", std::size_t{1} << 20);
    const std::regex quoted("\"([a-z][a-z0-9_]*|[A-Z][A-Z0-9_]*_[A-Z0-9_]*)\"");
    for (auto at = std::sregex_iterator(text.begin(), text.end(), quoted);
         at != std::sregex_iterator(); ++at)
      if (!values.contains((*at)[1])) names.insert((*at)[1]);
  }
  EXPECT_GT(names.size(), 70U);
  Configuration all;
  for (const std::string& name : names) {
    all.settings.emplace(name, Setting{name, "1"});
    all.environment.emplace(name, "1");
  }
  const SettingsSeen seen = settings_seen(std::array{all});
  EXPECT_THAT(seen.looked_at, ::testing::ElementsAreArray(names));
  for (const std::string& name : seen.passed_over)  // variables, which are no settings
    EXPECT_EQ(name.find_first_of("abcdefghijklmnopqrstuvwxyz"), std::string::npos) << name;
}

}  // namespace
}  // namespace mfsdp::traces
