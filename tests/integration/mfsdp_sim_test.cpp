// The built tool from outside: what scripts rely on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/run_tool.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

const std::filesystem::path kModels =
    std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models";

nlohmann::json result(const std::string& arguments) {
  return nlohmann::json::parse(test::run_sim(arguments + " --no-save --output json").out);
}

TEST(MfsdpSim, CountsParametersExactlyFromNamesAndPaths) {
  const std::array<std::pair<const char*, std::int64_t>, 6> models{{
      {"llama3_8b", 8030261248},
      {"llama3_70b", 70553706496},
      {"llama3_405b", 405853388800},
      {"llama3_1b", 1235814400},
      {"qwen2.5_0.5b", 494032768},
      {"qwen2.5_7b", 7615616512},
  }};
  test::Sample sample;
  for (const auto& [name, parameters] : models) {
    if (!sample.takes_next()) continue;
    const auto by_name = result(fmt::format("--model {}", name));
    const std::string folder = (kModels / name).string();
    const auto by_folder = result(fmt::format("--model '{}'", folder));
    const auto by_file = result(fmt::format("--model '{}/config.json'", folder));
    for (const auto* run : {&by_name, &by_folder, &by_file})
      EXPECT_EQ((*run)["model"]["parameters"], parameters) << name;
    EXPECT_EQ(by_name["plan_hash"], by_folder["plan_hash"]);
    EXPECT_EQ(by_name["plan_hash"], by_file["plan_hash"]);
  }
}

TEST(MfsdpSim, AWrittenPlanReadsBackToTheSamePrediction) {
  const test::ScratchFolder folder;
  const std::string plan = (folder.path() / "plan.json").string();
  const auto built = result(fmt::format("--model llama_tiny --gpus 4 --plan-out '{}'", plan));
  const auto read = result(fmt::format("--plan '{}'", plan));
  for (const char* key : {"plan_hash", "plan", "memory", "time", "traffic", "config"})
    EXPECT_EQ(built[key], read[key]) << key;
}

TEST(MfsdpSim, TheHashKnowsTheConfigurationAndNotTheMachine) {
  const std::string base = "--model llama_tiny --gpus 4";
  const auto hash = result(base)["plan_hash"];
  EXPECT_EQ(result(base + " --gpu a100_80 --name other")["plan_hash"], hash);
  for (const char* flag : {"--prefetch 2", "--grad-slots 3", "--recompute none", "--clip 0",
                           "--allocator temporary", "--deterministic", "--seq-len 128"})
    EXPECT_NE(result(base + " " + flag)["plan_hash"], hash) << flag;
}

/// Too little to set streams up is an error of the machine, and no crash.
TEST(MfsdpSim, TooLittleMemoryToBeginIsOneLine) {
#ifdef MFSDP_SANITIZED
  GTEST_SKIP() << "sanitizers take more address space than the test leaves";
#endif
  // How much is too little depends on the libraries, and below that the loader ends it (127).
  for (int kibibytes = 30'000; kibibytes <= 80'000; kibibytes += 10'000) {
    const test::ToolRun ran = test::run_shell(
        fmt::format("(ulimit -v {}; '{}' --model llama3_8b --gpus 64 --no-save 2>&1)", kibibytes,
                    test::kSim.string()));
    EXPECT_THAT(ran.status, ::testing::AnyOf(0, 3, 127)) << ran.out;
    if (ran.status == 3) {
      EXPECT_EQ(ran.out, "mfsdp-sim: memory: this machine has not enough to begin\n");
    }
  }
}

}  // namespace
}  // namespace mfsdp
