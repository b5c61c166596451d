#include "core/cli/sweep.hpp"

#include <gmock/gmock.h>

#include <fstream>

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

TEST(Sweep, RefusesWhatMakesNoList) {
  const auto error = [](const std::vector<std::string>& args) {
    const auto sweep = expand_lists(args);
    return sweep ? std::string() : sweep.error().message();
  };
  EXPECT_THAT(error({"--gpus", "8,,16"}), HasSubstr("--gpus: '8,,16' has an empty value"));
  EXPECT_THAT(error({"--gpus", "8,"}), HasSubstr("empty value"));
  EXPECT_THAT(error({"--gpus", "8,16,8"}), HasSubstr("lists '8' twice"));
  EXPECT_THAT(error({"--gpus", "8,16", "--gpus", "1,2"}), HasSubstr("is given twice"));
  std::string many = "1";
  for (int i = 2; i <= 400; ++i) many += "," + std::to_string(i);
  EXPECT_THAT(error({"--gpus", many, "--micro-batch", many}),
              HasSubstr("more than 20,000 combinations"));
}

}  // namespace
}  // namespace mfsdp
