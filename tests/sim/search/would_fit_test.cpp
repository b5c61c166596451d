// Suggestions that make a prediction fit: each must equal the prediction with its settings.
#include "sim/search/would_fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <sstream>
#include <utility>

#include "sim/search/expert_capacity.hpp"
#include "sim/search/memory_settings.hpp"
#include "tests/sim/search/small_job.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

using test::job;
using test::SmallJobs;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

PredictedRun predicted(const JobOptions& job, PredictionRequests& requests) {
  const auto request = requests.read(job);
  EXPECT_TRUE(request) << request.error().message();
  auto prediction = predict(*request);
  EXPECT_TRUE(prediction) << prediction.error().message();
  return std::move(prediction->run);
}

/// The setting of a flag and a value that are suggested.
Setting suggested(const std::string& flag, const std::string& value) {
  if (flag == "--recompute") return full_recomputation();
  if (flag == "--strategy")
    return setting(flag, NamedStrategy{.strategy = *parse<Strategy>(value)});
  return setting(flag, std::int64_t{std::stoll(value)});
}

/// The suggestions, each checked against a prediction with its settings.
std::vector<WouldFit> checked(const JobOptions& job) {
  SmallJobs small;
  const PredictedRun run = predicted(job, small.requests());
  EXPECT_FALSE(run.memory.fits);
  std::vector<WouldFit> suggestions = would_fit(job, run, small.requests());
  for (const WouldFit& one : suggestions) {
    JobOptions changed = job;
    std::istringstream words(one.flags);
    for (std::string flag, value; words >> flag >> value;) apply(suggested(flag, value), changed);
    const PredictedRun again = predicted(changed, small.requests());
    EXPECT_TRUE(again.memory.fits) << one.flags;
    EXPECT_FALSE(again.memory.barely_fits()) << one.flags;
    EXPECT_EQ(again.memory.deciding(), one.memory) << one.flags;
    EXPECT_EQ(again.time.step, one.step) << one.flags;
    EXPECT_EQ(again.config.tokens_per_step() * again.config.mesh.world_size(), one.tokens);
  }
  return suggestions;
}

class WouldFitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static test::Sample sample;
    if (!sample.takes_next()) GTEST_SKIP() << "one case under sanitizers";
  }
};

auto with(const std::string& flags) { return Field("flags", &WouldFit::flags, flags); }

TEST_F(WouldFitTest, FullRecomputation) {
  const auto suggestions = checked(job("llama3_70b", 256));
  EXPECT_THAT(suggestions, Contains(with("--recompute full")));
  EXPECT_THAT(suggestions, Not(Contains(with("--gpus 512"))));  // activations stay
}

TEST_F(WouldFitTest, SmallerMicroBatchesOfTheSameStep) {
  JobOptions asked = job("llama3_8b");
  asked.common.config.micro_batch = 4;
  EXPECT_THAT(checked(asked), Contains(with("--micro-batch 2 --global-batch 32")));
}

TEST_F(WouldFitTest, MoreShardingAndMoreGpus) {
  JobOptions whole = job("llama3_8b");
  whole.common.config.strategy = Strategy::no_shard;
  EXPECT_THAT(checked(whole), Contains(with("--strategy optim_grads_params")));
  JobOptions alone = job("llama3_8b", 1);
  alone.common.config.recompute.kind = Recompute::full;
  EXPECT_THAT(checked(alone), Contains(with("--gpus 2")));
}

/// Neither recomputation nor GPUs alone are enough.
TEST_F(WouldFitTest, SettingsTogether) {
  // 62.18 GiB of 79.07: what slows the step further is not needed.
  EXPECT_THAT(checked(job("llama3_70b")), ElementsAre(with("--recompute full --gpus 32")));
}

/// The engine has neither --prefetch nor --grad-slots.
TEST_F(WouldFitTest, OfAnotherEngine) {
  JobOptions asked = job("llama3_8b");
  asked.common.config.micro_batch = 2;
  asked.engine = EngineKind::fsdp2;
  const auto suggestions = checked(asked);
  EXPECT_THAT(suggestions, Contains(with("--recompute full")));
  // Micro-batches of one fit within error alone.
  EXPECT_THAT(suggestions, Not(Contains(with("--micro-batch 1 --global-batch 16"))));
  EXPECT_THAT(suggestions, Not(Contains(Field(&WouldFit::flags, HasSubstr("--prefetch")))));
}

TEST_F(WouldFitTest, NothingHelpsIfTheReserveIsAll) {
  JobOptions asked = job("llama_nano", 2);
  asked.reserve = Bytes(std::int64_t{79} << 30);
  EXPECT_THAT(checked(asked), IsEmpty());
}

}  // namespace
}  // namespace mfsdp
