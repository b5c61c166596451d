// What makes a prediction fit: each setting is what asking for it gives.
#include "sim/tool/would_fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "sim/tool/room.hpp"
#include "tests/sim/tool/asking.hpp"

namespace mfsdp {
namespace {

using test::Asking;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

PredictedRun predicted(const SimOptions& options, Asker& asker) {
  const auto question = asker.question(options);
  EXPECT_TRUE(question) << question.error().message();
  auto prediction = answer(*question);
  EXPECT_TRUE(prediction) << prediction.error().message();
  return std::move(prediction->run);
}

/// The settings, each checked against a prediction with its flags.
std::vector<WouldFit> checked(const std::vector<std::string>& arguments) {
  Asking asking;
  const SimOptions options = Asking::options(arguments);
  const PredictedRun run = predicted(options, asking.asker());
  EXPECT_FALSE(run.memory.fits);
  std::vector<WouldFit> settings = would_fit(options, run, asking.asker());
  for (const WouldFit& one : settings) {
    // A flag that is given twice is an error: the setting's counts.
    std::vector<std::string> given = arguments;
    std::istringstream words(one.flags);
    for (std::string flag, value; words >> flag >> value;) {
      const auto place = std::ranges::find(given, flag);
      if (place != given.end()) given.erase(place, place + 2);
      given.insert(given.end(), {flag, value});
    }
    const PredictedRun again = predicted(Asking::options(given), asking.asker());
    EXPECT_TRUE(again.memory.fits) << one.flags;
    EXPECT_FALSE(again.memory.barely_fits()) << one.flags;
    EXPECT_EQ(again.memory.deciding(), one.memory) << one.flags;
    EXPECT_EQ(again.time.step, one.step) << one.flags;
    EXPECT_EQ(again.config.tokens_per_step() * again.config.mesh.world_size(), one.tokens);
  }
  return settings;
}

auto with(const std::string& flags) { return Field("flags", &WouldFit::flags, flags); }

TEST(WouldFit, FullRecomputation) {
  const auto settings = checked({"--model", "llama3_70b", "--gpus", "256"});
  EXPECT_THAT(settings, Contains(with("--recompute full")));
  EXPECT_THAT(settings, Not(Contains(with("--gpus 512"))));  // activations stay
}

TEST(WouldFit, SmallerMicroBatchesOfTheSameStep) {
  const auto settings = checked({"--model", "llama3_8b", "--micro-batch", "4"});
  EXPECT_THAT(settings, Contains(with("--micro-batch 2 --global-batch 32")));
}

TEST(WouldFit, MoreShardingAndMoreGpus) {
  const auto settings = checked({"--model", "llama3_8b", "--gpus", "8", "--strategy", "no_shard"});
  EXPECT_THAT(settings, Contains(with("--strategy optim_grads_params")));
  const auto more = checked({"--model", "llama3_8b", "--gpus", "1", "--recompute", "full"});
  EXPECT_THAT(more, Contains(with("--gpus 2")));
}

/// Neither recomputation nor GPUs alone are enough.
TEST(WouldFit, SettingsTogether) {
  const auto settings = checked({"--model", "llama3_70b", "--gpus", "8"});
  // 62.18 GiB of 79.07: what slows the step further is not needed.
  EXPECT_THAT(settings, ElementsAre(with("--recompute full --gpus 32")));
}

/// What the engine offers: it has neither --prefetch nor --grad-slots.
TEST(WouldFit, OfAnotherEngine) {
  const auto settings =
      checked({"--model", "llama3_8b", "--gpus", "8", "--micro-batch", "2", "--engine", "fsdp2"});
  EXPECT_THAT(settings, Contains(with("--recompute full")));
  // Micro-batches of one fit within error alone.
  EXPECT_THAT(settings, Not(Contains(with("--micro-batch 1 --global-batch 16"))));
  EXPECT_THAT(settings, Not(Contains(Field(&WouldFit::flags, HasSubstr("--prefetch")))));
}

TEST(WouldFit, NothingHelpsWhereTheReserveIsAll) {
  EXPECT_THAT(checked({"--model", "llama_nano", "--gpus", "2", "--memory-reserve", "79GiB"}),
              IsEmpty());
}

}  // namespace
}  // namespace mfsdp
