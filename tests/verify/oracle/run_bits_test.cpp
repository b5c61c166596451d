// A plan computes the same each time, and a wrong one something else.
#include "verify/oracle/run_bits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/pipeline.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/verify/mutation/llama_run.hpp"

namespace mfsdp {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Key;

class RunBitsTest : public testing::Test {
 protected:
  RunBitsTest() : program_(test::built(test::llama_nano(2))) {
    settings_.folder = folder_.path();
    settings_.deadline = std::chrono::seconds(30);
  }

  test::ScratchFolder folder_;
  RunBitsSettings settings_;
  Program program_;
};

TEST_F(RunBitsTest, AreTheSameInEveryRun) {
  const auto once = plain_run_bits(program_, settings_);
  ASSERT_TRUE(once) << once.error().message();
  EXPECT_THAT(*once, Contains(Key("step 3, loss")));
  EXPECT_THAT(*once, Contains(Key("eval after step 2, loss")));
  const auto shaken = shaken_run_bits(program_, settings_);
  ASSERT_TRUE(shaken) << shaken.error().message();
  EXPECT_THAT(*shaken, Contains(Key("export, model.safetensors")));
  for (const auto& [name, bits] : *once) {
    for (const char* run : {"saving: ", "delays 0: ", "delays 3: "})
      EXPECT_EQ(shaken->at(run + name), bits) << run << name;
    // A run that goes on has not what was before its save.
    const auto resumed = shaken->find("resumed: " + name);
    if (resumed != shaken->end()) {
      EXPECT_EQ(resumed->second, bits) << name;
    }
  }
  EXPECT_TRUE(shaken->contains("resumed: step 3, loss"));
  EXPECT_EQ(folder_.file_count(), 0U);
}

TEST_F(RunBitsTest, TellAnotherEpsilon) {
  const auto right = plain_run_bits(program_, settings_);
  for (Segment& segment : program_.plans[0].segments)
    for (Op& op : segment.ops)
      if (auto* kernel = std::get_if<Kernel>(&op.body))
        for (Attribute& attribute : kernel->attributes)
          if (attribute.name == "epsilon") attribute.value = {.num = 1, .den = 1000};
  const auto wrong = plain_run_bits(program_, settings_);
  ASSERT_TRUE(right && wrong);
  EXPECT_NE(right->at("step 1, loss"), wrong->at("step 1, loss"));
}

TEST_F(RunBitsTest, LargePlansAreRefused) {
  program_.pools[0].height = Bytes(std::int64_t{1} << 40);
  EXPECT_TRUE(plain_run_bits(program_, settings_));  // no buffer reaches that high
  std::ranges::find(program_.buffers, program_.pools[0].id, &Buffer::pool)->size =
      program_.pools[0].height;
  const auto bits = plain_run_bits(program_, settings_);
  ASSERT_FALSE(bits);
  EXPECT_THAT(bits.error().message(), HasSubstr("pools: expected at most"));
}

/// Also when it is saved, exported and resumed, which takes parts of each stage.
TEST_F(RunBitsTest, OfAPipelineAreThoseOfOneRank) {
  const Job job = test::pipeline();
  PlanConfig config = job.programs.front().config;
  config.mesh = {};
  const auto alone = shaken_run_bits(test::built(config), settings_);
  ASSERT_TRUE(alone) << alone.error().message();
  const auto staged = shaken_run_bits(job, settings_);
  ASSERT_TRUE(staged) << staged.error().message();
  EXPECT_THAT(*staged, Contains(Key("export, model.safetensors")));
  EXPECT_THAT(*staged, Contains(Key("resumed: step 3, loss")));
  for (const auto& [name, bits] : *staged) {
    if (name.find(" on rank ") != std::string::npos) continue;
    EXPECT_EQ(alone->at(name), bits) << name;
  }
}

}  // namespace
}  // namespace mfsdp
