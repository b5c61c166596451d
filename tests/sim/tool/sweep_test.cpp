#include "sim/tool/sweep.hpp"

#include <gmock/gmock.h>

#include <fstream>
#include <utility>

#include "sim/tool/space_flags.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Sweep, WithoutListsTheArgumentsStay) {
  const std::vector<std::string> args{"--model", "llama3_8b", "--gpus=8"};
  const auto swept = split_lists(args);
  ASSERT_TRUE(swept);
  EXPECT_THAT(swept->lists, IsEmpty());
  EXPECT_EQ(swept->arguments, args);
}

TEST(Sweep, ArgumentsHaveTheFirstValues) {
  const auto swept = split_lists({"--gpus", "8,16", "--no-save", "--micro-batch=1,2"});
  ASSERT_TRUE(swept);
  ASSERT_EQ(swept->lists.size(), 2U);
  EXPECT_EQ(swept->lists[1].flag, "--micro-batch");
  EXPECT_THAT(swept->lists[1].values, ElementsAre("1", "2"));
  EXPECT_THAT(swept->arguments, ElementsAre("--gpus", "8", "--no-save", "--micro-batch=1"));
}

TEST(Sweep, OtherFlagsKeepTheirCommas) {
  const auto swept = split_lists({"--freeze", "embed,norm", "--price", "h100=2,h200=3"});
  ASSERT_TRUE(swept);
  EXPECT_THAT(swept->lists, IsEmpty());
}

TEST(Sweep, AFileWithACommaIsNoList) {
  const test::ScratchFolder folder;
  const std::string file = (folder.path() / "a,b.toml").string();
  std::ofstream(file) << "";
  const auto swept = split_lists({"--gpu", file});
  ASSERT_TRUE(swept);
  EXPECT_THAT(swept->lists, IsEmpty());
}

TEST(Sweep, TheLastOfARepeatedFlagIsTheList) {
  const auto swept = split_lists({"--gpus", "8,16,32", "--gpus=1,2"});
  ASSERT_TRUE(swept);
  ASSERT_EQ(swept->lists.size(), 1U);
  EXPECT_THAT(swept->lists[0].values, ElementsAre("1", "2"));
  const auto none = split_lists({"--gpus", "8,16", "--gpus", "32"});
  ASSERT_TRUE(none);
  EXPECT_THAT(none->lists, IsEmpty());
}

TEST(Sweep, RefusesWrongLists) {
  const auto error = [](const std::vector<std::string>& args) {
    const auto swept = split_lists(args);
    return swept ? std::string() : swept.error().message();
  };
  EXPECT_THAT(error({"--gpus", "8,,16"}), HasSubstr("--gpus: '8,,16' has an empty value"));
  EXPECT_THAT(error({"--gpus", "8,"}), HasSubstr("empty value"));
  EXPECT_THAT(error({"--gpus", "8,16,8"}), HasSubstr("lists '8' twice"));
  std::string many = "1";
  for (int i = 2; i <= 400; ++i) many += "," + std::to_string(i);
  EXPECT_THAT(error({"--gpus", many, "--micro-batch", many}),
              HasSubstr("more than 20,000 combinations"));
}

/// Settings of a flag set what the flag itself sets, and are named as they were given.
TEST(SpaceFlags, ACombinationIsThatOfItsFlagsAlone) {
  const std::vector<std::string> fixed{"--model",    "a", "--gpus", "16",     "--world-size=16",
                                       "--outer-dp", "2", "--find", "fastest"};
  const std::vector<std::pair<std::string, std::string>> lists{
      {"--strategy", "0,hsdp,hfsdp,optim_grads_params"},
      {"--recompute", "none,full:3"},
      {"--seq-len", "8k,1024"},
      {"--global-batch", "512,4M"},
      {"--gpu", "h100,h200"},
      {"--network-gbps", "100,0.5"},
      {"--power-limit", "300,700"},
      {"--tables", "own,published"},
      {"--engine", "mfsdp,fsdp2"},
      {"--ep", "1,2"},
      {"--capacity-factor", "0,1.25"},
      {"--expert-strategy", "1,3"},
      {"--reduce", "nccl,symmetric"}};
  for (const auto& [flag, values] : lists) {
    std::vector<std::string> args = fixed;
    args.insert(args.end(), {flag, values});
    const auto swept = split_lists(args);
    ASSERT_TRUE(swept);
    const auto space = read_space(*swept);
    const auto first = parse_sim_options(swept->arguments);
    ASSERT_TRUE(space && first) << flag;
    ASSERT_EQ(space->size(), swept->lists[0].values.size());
    for (std::size_t i = 0; i < space->size(); ++i) {
      args.back() = swept->lists[0].values[i];
      const auto alone = parse_sim_options(args);
      ASSERT_TRUE(alone);
      const std::vector<Setting> settings = space->combination(i);
      EXPECT_EQ(flags_text(settings), flag + " " + args.back());
      const JobOptions one = with_settings(*first, settings);
      EXPECT_EQ(one.common.config, alone->common.config) << flags_text(settings);
      EXPECT_EQ(one.common.outer_asked, alone->common.outer_asked);
      EXPECT_EQ(one.common.seq_len, alone->common.seq_len);
      EXPECT_EQ(one.common.global_batch, alone->common.global_batch);
      EXPECT_EQ(one.common.batch_tokens, alone->common.batch_tokens);
      EXPECT_EQ(one.common.gpu, alone->common.gpu);
      EXPECT_EQ(one.network_gbps, alone->network_gbps);
      EXPECT_EQ(one.power_limit, alone->power_limit);
      EXPECT_EQ(one.tables, alone->tables);
      EXPECT_EQ(one.engine, alone->engine);
      EXPECT_EQ(one.given, alone->given);
    }
  }
}

TEST(SpaceFlags, AWrongCombinationIsAnError) {
  const auto error = [](const std::vector<std::string>& args) {
    const auto space = read_space(*split_lists(args));
    return space ? std::string() : space.error().message();
  };
  EXPECT_EQ(error({"--model", "a", "--gpus", "8,16", "--world-size", "8"}),
            "--gpus: 16 contradicts --world-size 8; they mean the same");
  EXPECT_THAT(error({"--model", "a", "--strategy", "3,hsdp"}), HasSubstr("needs --outer-dp"));
  EXPECT_THAT(error({"--model", "a", "--engine", "mfsdp,fsdp2", "--prefetch", "2"}),
              HasSubstr("--engine fsdp2 has no such choice"));
}

}  // namespace
}  // namespace mfsdp
