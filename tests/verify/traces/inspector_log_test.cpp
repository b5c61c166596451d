#include "verify/traces/inspector_log.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/verdict_words.hpp"

namespace mfsdp::traces {
namespace {

using test::messages;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A line in the form that the plugin's README shows.
std::string log_line(std::int64_t rank, std::int64_t number, const std::string& kind = "AllGather",
                     std::int64_t bytes = 4096, std::int64_t ranks = 2) {
  return fmt::format(
      R"({{"header": {{"id": "0x7f", "rank": {}, "n_ranks": {}, "nnodes": 1}}, "metadata": )"
      R"({{"inspector_output_format_version": "v4.0", "hostname": "h", "pid": 7}}, "coll_perf": )"
      R"({{"coll": "{}", "coll_sn": {}, "coll_msg_size_bytes": {}, "coll_exec_time_us": 61}}}})"
      "\n",
      rank, ranks, kind, number, bytes);
}

Result<std::vector<RecordedGroup>> read_logs(const std::vector<std::string>& logs) {
  std::vector<InspectorFile> files;
  for (const std::string& log : logs) files.push_back({fmt::format("{}.log", files.size()), log});
  return read_inspector_logs(files);
}
RuleVerdict judge_logs(const std::vector<std::string>& logs) {
  const auto groups = read_logs(logs);
  EXPECT_TRUE(groups) << groups.error().message();
  return groups ? judge_records(*groups) : RuleVerdict{};
}
std::string log_error(const std::vector<std::string>& logs) {
  const auto groups = read_logs(logs);
  return groups ? "" : groups.error().message();
}

TEST(InspectorLog, RanksThatAgreeWhereBothWroteAreFine) {
  EXPECT_TRUE(
      judge_logs({log_line(0, 1) + "\n" + log_line(0, 3), log_line(1, 2) + log_line(1, 3)}).good());
}

/// NCCL numbers the calls of each function separately (comm->seqNumber[func]).
TEST(InspectorLog, FunctionsAreNumberedByThemselves) {
  const std::string both = log_line(0, 1) + log_line(0, 1, "ReduceScatter", 8192);
  EXPECT_TRUE(judge_logs({both, log_line(1, 1) + log_line(1, 1, "ReduceScatter", 8192)}).good());
  const RuleVerdict verdict = judge_logs({both, log_line(1, 1) + log_line(1, 1, "AllReduce")});
  EXPECT_TRUE(verdict.findings.empty());
  ASSERT_EQ(verdict.not_judged.size(), 2U);
  EXPECT_EQ(verdict.not_judged[0].reason,
            "group 0x7f: no AllReduce is in the records of two ranks");
  EXPECT_EQ(verdict.not_judged[1].reason,
            "group 0x7f: no ReduceScatter is in the records of two ranks");
}

TEST(InspectorLog, SizesThatDifferAreFound) {
  EXPECT_THAT(messages(judge_logs({log_line(0, 1), log_line(1, 1, "AllGather", 8192)})),
              ElementsAre("MF816 group 0x7f, collective 1, AllGather: rank 0: 4096 bytes; rank 1: "
                          "8192 bytes"));
}

TEST(InspectorLog, RanksWithoutALogAreNotJudged) {
  const RuleVerdict verdict = judge_logs({log_line(0, 1)});
  ASSERT_EQ(verdict.not_judged.size(), 1U);
  EXPECT_EQ(verdict.not_judged[0].reason, "group 0x7f: there is no record of rank 1");
}

/// If a process is killed, its last line may be truncated.
TEST(InspectorLog, ALastLineThatIsCutOffIsLeftOut) {
  const std::string whole = log_line(0, 1);
  const std::string next = log_line(0, 2);
  for (const std::size_t size : {std::size_t{1}, next.size() / 2, next.size() - 2}) {
    const std::string cut = whole + next.substr(0, size);
    EXPECT_TRUE(ends_within_a_line(cut));
    EXPECT_TRUE(judge_logs({cut, log_line(1, 1)}).good());
  }
  EXPECT_FALSE(ends_within_a_line(whole + next));
  EXPECT_FALSE(ends_within_a_line(whole + next.substr(0, next.size() - 1)));
  EXPECT_FALSE(ends_within_a_line("{cut"));
}

TEST(InspectorLog, WrongLinesAreRefusedByFileAndLine) {
  EXPECT_THAT(log_error({log_line(0, 1) + "{cut\n"}),
              HasSubstr("0.log: line 2: expected a JSON object"));
  EXPECT_THAT(log_error({std::string("{cut")}), HasSubstr("0.log: line 1: expected a JSON object"));
  EXPECT_THAT(log_error({std::string("{}")}),
              HasSubstr("0.log: line 1.header: expected an object, got nothing"));
  EXPECT_THAT(log_error({std::string()}),
              HasSubstr("0.log: expected a line of JSON for each collective"));
  EXPECT_THAT(log_error({log_line(2, 1)}), HasSubstr("0.log: line 1.header.rank"));
  EXPECT_THAT(log_error({log_line(0, 1), log_line(0, 2)}),
              HasSubstr("1.log: line 1.header: rank 0 of communicator 0x7f is also in 0.log"));
  EXPECT_THAT(log_error({log_line(0, 1), log_line(1, 1, "AllGather", 1, 4)}),
              HasSubstr("communicator 0x7f has 4 ranks, but 2 at 0.log: line 1.header"));
  EXPECT_THAT(log_error({log_line(0, 1) + log_line(0, 1, "AllGather", 8192)}),
              HasSubstr("AllGather 1 appears twice with different contents"));
}

}  // namespace
}  // namespace mfsdp::traces
