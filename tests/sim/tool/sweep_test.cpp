#include "sim/tool/sweep.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "sim/tool/sim_options.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Sweep, WithoutListsThereIsOneCombination) {
  const std::vector<std::string> args{"--model", "llama3_8b", "--gpus=8"};
  const auto sweep = expand_lists(args);
  ASSERT_TRUE(sweep);
  EXPECT_THAT(sweep->axes, IsEmpty());
  EXPECT_THAT(sweep->arguments, ElementsAre(args));
  EXPECT_THAT(sweep->values(0), IsEmpty());
}

TEST(Sweep, TheLastListChangesFastest) {
  const auto sweep = expand_lists({"--gpus", "8,16", "--no-save", "--micro-batch=1,2"});
  ASSERT_TRUE(sweep);
  ASSERT_EQ(sweep->axes.size(), 2U);
  EXPECT_EQ(sweep->axes[1].flag, "--micro-batch");
  EXPECT_THAT(sweep->arguments,
              ElementsAre(ElementsAre("--gpus", "8", "--no-save", "--micro-batch=1"),
                          ElementsAre("--gpus", "8", "--no-save", "--micro-batch=2"),
                          ElementsAre("--gpus", "16", "--no-save", "--micro-batch=1"),
                          ElementsAre("--gpus", "16", "--no-save", "--micro-batch=2")));
  EXPECT_THAT(sweep->values(2), ElementsAre("16", "1"));
}

TEST(Sweep, OtherFlagsKeepTheirCommas) {
  const auto sweep = expand_lists({"--freeze", "embed,norm", "--price", "h100=2,h200=3"});
  ASSERT_TRUE(sweep);
  EXPECT_EQ(sweep->arguments.size(), 1U);
}

TEST(Sweep, AFileWithACommaIsNoList) {
  const test::ScratchFolder folder;
  const std::string file = (folder.path() / "a,b.toml").string();
  std::ofstream(file) << "";
  const auto sweep = expand_lists({"--gpu", file});
  ASSERT_TRUE(sweep);
  EXPECT_EQ(sweep->arguments.size(), 1U);
}

TEST(Sweep, TheLastOfARepeatedFlagIsTheList) {
  const auto lists = expand_lists({"--gpus", "8,16,32", "--gpus=1,2"});
  ASSERT_TRUE(lists);
  ASSERT_EQ(lists->axes.size(), 1U);
  EXPECT_EQ(lists->axes[0].values, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(lists->arguments.size(), 2U);
  const auto none = expand_lists({"--gpus", "8,16", "--gpus", "32"});
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->axes.empty());
}

TEST(Sweep, RefusesWhatMakesNoList) {
  const auto error = [](const std::vector<std::string>& args) {
    const auto sweep = expand_lists(args);
    return sweep ? std::string() : sweep.error().message();
  };
  EXPECT_THAT(error({"--gpus", "8,,16"}), HasSubstr("--gpus: '8,,16' has an empty value"));
  EXPECT_THAT(error({"--gpus", "8,"}), HasSubstr("empty value"));
  EXPECT_THAT(error({"--gpus", "8,16,8"}), HasSubstr("lists '8' twice"));
  std::string many = "1";
  for (int i = 2; i <= 400; ++i) many += "," + std::to_string(i);
  EXPECT_THAT(error({"--gpus", many, "--micro-batch", many}),
              HasSubstr("more than 20,000 combinations"));
}

TEST(SweptOptions, AreThoseOfEachCombinationReadAlone) {
  const auto sweep = expand_lists({"--model", "a,b", "--gpus", "16", "--world-size=16",
                                   "--strategy", "0,optim_grads_params", "--recompute",
                                   "none,full:3", "--outer-dp=1,2", "--find", "fastest"});
  ASSERT_TRUE(sweep);
  auto swept = SweptOptions::parse(*sweep);
  ASSERT_TRUE(swept);
  ASSERT_EQ(sweep->arguments.size(), 16U);
  for (std::size_t i = 0; i < sweep->arguments.size(); ++i) {
    const auto one = swept->combination(i);
    const auto alone = parse_sim_options(sweep->arguments[i]);
    ASSERT_TRUE(one && alone);
    EXPECT_EQ(one->common.model, alone->common.model);
    EXPECT_EQ(one->common.gpus, 16);
    EXPECT_EQ(one->common.config.strategy, alone->common.config.strategy);
    EXPECT_EQ(one->common.config.recompute, alone->common.config.recompute);
    EXPECT_EQ(one->common.outer_dp, alone->common.outer_dp);
    EXPECT_EQ(one->given, alone->given);
  }
}

TEST(SweptOptions, AWrongCombinationIsAnError) {
  const auto sweep = expand_lists({"--model", "a", "--gpus", "8,16", "--world-size", "8"});
  auto swept = SweptOptions::parse(*sweep);
  ASSERT_TRUE(swept);
  EXPECT_TRUE(swept->combination(0));
  const auto wrong = swept->combination(1);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message(), "--gpus: 16 contradicts --world-size 8; they mean the same");
}

}  // namespace
}  // namespace mfsdp
