// Comparison of ranks' records. For each rule: records that obey it and records that break it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/verdict_words.hpp"
#include "verify/traces/recorded_calls.hpp"

namespace mfsdp::traces {
namespace {

using test::messages;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RecordedCall call(std::int64_t number, const std::string& kind = "all_reduce",
                  std::int64_t elements = 1024, const std::string& dtype = "Float") {
  return {.key = {number, 0},
          .kind = kind,
          .input = {elements, dtype},
          .output = {elements, dtype},
          .state = CallState::completed,
          .ended = true,
          .place = ""};
}
RecordedCall open_call(std::int64_t number, CallState state = CallState::scheduled) {
  RecordedCall row = call(number);
  row.state = state;
  row.ended = false;
  return row;
}

using Calls = std::vector<RecordedCall>;

/// Ranks 0, 1, ... in their order.
RecordedGroup group_of(const std::vector<Calls>& calls, const std::string& name = "0") {
  RecordedGroup group{.name = name, .ranks = {}, .members = {}};
  for (const Calls& row : calls) {
    const std::int64_t rank = std::ssize(group.ranks);
    group.ranks.push_back(rank);
    group.members.push_back({.rank = rank, .calls = row, .whole = true});
  }
  return group;
}

RuleVerdict judge_group(const RecordedGroup& group) { return judge_records(std::vector{group}); }

TEST(JudgeRecords, RanksThatDoTheSameAreFine) {
  EXPECT_TRUE(
      judge_group(group_of({{call(1), call(2, "broadcast")}, {call(1), call(2, "broadcast")}}))
          .good());
}

TEST(JudgeRecords, TheFirstCallThatDiffersIsTold) {
  const RuleVerdict verdict =
      judge_group(group_of({{call(1), call(2), call(3, "broadcast"), call(4)},
                            {call(1), call(2), call(3, "broadcast"), call(4)},
                            {call(1), call(2, "broadcast"), call(3), call(4)}}));
  EXPECT_THAT(messages(verdict),
              ElementsAre("MF815 group 0, collective 2: ranks call different collectives, here "
                          "first: ranks 0, 1: all_reduce; rank 2: broadcast; rank 2 calls "
                          "all_reduce later, as number 3: the order differs"));
}

TEST(JudgeRecords, SizesAndTypesMustAgree) {
  EXPECT_THAT(messages(judge_group(group_of({{call(1)}, {call(1, "all_reduce", 2048)}}))),
              ElementsAre("MF816 group 0, collective 1, all_reduce: rank 0: in 1024 of Float, out "
                          "1024 of Float; rank 1: in 2048 of Float, out 2048 of Float"));
  EXPECT_THAT(messages(judge_group(group_of({{call(1)}, {call(1, "all_reduce", 1024, "Half")}}))),
              ElementsAre(HasSubstr("rank 1: in 1024 of Half")));
}

TEST(JudgeRecords, ARankThatDidNotJoinIsTold) {
  const RuleVerdict verdict = judge_group(group_of({{call(1), open_call(2)}, {call(1)}, {}}));
  EXPECT_THAT(messages(verdict),
              ElementsAre("MF817 group 0, collective 1, all_reduce: ranks 0, 1: launched it "
                          "(completed); rank 2: did not, and nothing before it"));
  const RuleVerdict last = judge_group(group_of({{call(1), open_call(2)}, {call(1)}}));
  EXPECT_THAT(messages(last),
              ElementsAre("MF817 group 0, collective 2, all_reduce: rank 0: launched it "
                          "(scheduled); rank 1: did not; its last there is number 1, all_reduce"));
}

TEST(JudgeRecords, WhatAllLaunchedAndHasNotEndedIsTold) {
  const CallState started = CallState::started;
  EXPECT_THAT(messages(judge_group(group_of(
                  {{call(1), open_call(2), open_call(3)}, {call(1), open_call(2), open_call(3)}}))),
              ElementsAre("MF818 group 0, collective 2, all_reduce: all ranks launched it; it is "
                          "unfinished on ranks 0, 1"));
  EXPECT_THAT(
      messages(judge_group(group_of({{open_call(1, started)}, {open_call(1)}}))),
      ElementsAre(HasSubstr(
          "; it began on rank 0 and has not begun on rank 1: the former wait for the latter")));
}

/// Nothing is claimed about ranks without records.
TEST(JudgeRecords, OnlyRanksThatWereSeenAreSaidToHaveLaunched) {
  RecordedGroup group = group_of({{open_call(1)}, {open_call(1)}, {open_call(1)}, {open_call(1)}});
  group.members.erase(group.members.begin() + 2);
  EXPECT_THAT(messages(judge_group(group)),
              ElementsAre("MF818 group 0, collective 1, all_reduce: ranks 0, 1, 3 launched it; "
                          "it is unfinished on ranks 0, 1, 3; rank 2 left no record of it"));
  group.members.resize(1);
  EXPECT_THAT(messages(judge_group(group)),
              ElementsAre("MF818 group 0, collective 1, all_reduce: rank 0 launched it; it is "
                          "unfinished on rank 0; ranks 1-3 left no record of it"));
  // A rank whose records are all overwritten counts as a rank without records.
  RecordedGroup overwritten = group_of({{open_call(1)}, {open_call(1)}, {}});
  overwritten.members[2].whole = false;
  EXPECT_THAT(messages(judge_group(overwritten)),
              ElementsAre(HasSubstr("; rank 2 left no record of it")));
  RecordedGroup unknown = group_of({{open_call(1)}, {open_call(1)}});
  unknown.ranks.clear();
  EXPECT_THAT(messages(judge_group(unknown)),
              ElementsAre(AllOf(HasSubstr("ranks 0, 1 launched it"),
                                HasSubstr("; the group's other ranks are not known"))));
}

TEST(JudgeRecords, RanksThatWaitForEachOtherAreTold) {
  // Rank 0 has called group a but not yet b; rank 1 has called b but not yet a.
  const std::vector groups{group_of({{open_call(1)}, {}}, "a"),
                           group_of({{}, {open_call(1)}}, "b")};
  const std::vector<std::string> told = messages(judge_records(groups));
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[2],
            "MF819 rank 0 waits for rank 1 in group a, rank 1 waits for rank 0 in group b");
  EXPECT_EQ(messages(judge_records(std::span(groups).first(1))).size(), 1U) << "no cycle";
}

TEST(JudgeRecords, OverwrittenCallsAreNotMissed) {
  RecordedGroup group = group_of({{call(1), call(2), call(3)}, {call(3)}});
  group.members[1].whole = false;
  EXPECT_TRUE(judge_group(group).good());
  group.members[1].whole = true;
  EXPECT_THAT(messages(judge_group(group)), ElementsAre(HasSubstr("rank 1: nothing")));
  group.members[1] = {.rank = 1, .calls = {}, .whole = false};
  const RuleVerdict verdict = judge_group(group);
  EXPECT_THAT(verdict.findings, IsEmpty());
  ASSERT_EQ(verdict.not_judged.size(), 1U);
  EXPECT_THAT(verdict.not_judged[0].reason, HasSubstr("older records of rank 1 are overwritten"));
}

TEST(JudgeRecords, RanksWithoutRecordsAreNotJudged) {
  RecordedGroup group = group_of({{call(1)}, {call(1)}});
  group.ranks = {0, 1, 2, 3};
  const RuleVerdict verdict = judge_group(group);
  EXPECT_THAT(verdict.not_judged,
              ElementsAre(NotJudged{"MF817", "group 0: there is no record of ranks 2, 3"}));
  EXPECT_FALSE(verdict.good());
}

TEST(JudgeRecords, SampledRecordsMissNothing) {
  RecordedGroup group = group_of({{call(1), call(5)}, {call(3), call(5)}});
  group.every_call = false;
  EXPECT_TRUE(judge_group(group).good());
  group.members[1].calls[1].kind = "broadcast";
  EXPECT_THAT(messages(judge_group(group)),
              ElementsAre(HasSubstr("collective 5: ranks call different")));
}

TEST(JudgeRecords, PartsOfACoalescedCallAreComparedOneByOne) {
  RecordedCall second = call(1, "broadcast");
  second.key.part = 1;
  const RuleVerdict verdict =
      judge_group(group_of({{call(1), second, call(2)}, {call(1), call(2)}}));
  EXPECT_THAT(messages(verdict),
              ElementsAre("MF815 group 0, collective 1, part 2: ranks call different collectives, "
                          "here first: rank 0: broadcast; rank 1: nothing"));
}

TEST(JudgeRecords, TransfersAreCountedOnlyWhereAllAreThere) {
  RecordedGroup group =
      group_of({{call(1, "transfer"), call(2, "transfer")}, {call(1, "transfer")}});
  group.pairs = true;
  EXPECT_THAT(messages(judge_group(group)), ElementsAre(HasSubstr("transfer 2, transfer: rank 0")));
  group.members[0].whole = false;
  const RuleVerdict verdict = judge_group(group);
  EXPECT_THAT(verdict.findings, IsEmpty());
  EXPECT_EQ(verdict.not_judged.size(), 1U);
}

}  // namespace
}  // namespace mfsdp::traces
