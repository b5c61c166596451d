#include "verify/traces/flight_recorder.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/read_file.hpp"
#include "tests/support/verdict_words.hpp"

namespace mfsdp::traces {
namespace {

using test::messages;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kFolder = MFSDP_SOURCE_DIR "/tests/verify/traces/data/flight_recorder/";

FlightDump dump_of(const std::string& text, std::int64_t rank, const std::string& where) {
  auto dump = read_flight_dump(text, where, rank);
  EXPECT_TRUE(dump) << dump.error().message();
  return dump ? *std::move(dump) : FlightDump{};
}
FlightDump file(const std::string& name, std::int64_t rank) {
  return dump_of(read_file(kFolder + name, "a dump", 1 << 20).value(), rank, name);
}

RuleVerdict judge_dumps(std::vector<FlightDump> dumps) {
  const auto groups = join_dumps(std::move(dumps));
  EXPECT_TRUE(groups) << groups.error().message();
  return groups ? judge_records(*groups) : RuleVerdict{};
}

/// Entries of group 7 of ranks 4 and 6, as `_dump_nccl_trace_json` writes them.
struct Dump {
  std::string entries;
  std::string ranks = "[4, 6]";
  std::string version = "2.10";
  int count = 0;

  Dump& add(const std::string& name, std::int64_t number, const std::string& in,
            const std::string& out, const std::string& state = "completed", bool p2p = false,
            bool retired = false) {
    entries += fmt::format(
        R"({}{{"record_id": {}, "process_group": ["7", "mesh_dp"], "collective_seq_id": {},
            "profiling_name": "nccl:{}", "input_sizes": {}, "input_dtypes": ["Float"],
            "output_sizes": {}, "output_dtypes": ["Float"], "state": "{}", "is_p2p": {},
            "retired": {}}})",
        count == 0 ? "" : ",", count, number, name, in, out, state, p2p, retired);
    ++count;
    return *this;
  }
  [[nodiscard]] FlightDump read(std::int64_t rank) const {
    return dump_of(fmt::format(R"({{"version": "{}", "pg_config": {{"7": {{"ranks": "{}"}}}},
                               "entries": [{}]}})",
                               version, ranks, entries),
                   rank, fmt::format("rank{}.json", rank));
  }
};

// ---- what PyTorch wrote

/// NCCL's watchdog also retires calls that timed out.
TEST(FlightRecorder, WhatNcclRetiredHasNotEnded) {
  std::vector<FlightDump> dumps;
  for (const std::int64_t rank : {4, 6})
    dumps.push_back(
        Dump().add("all_reduce", 1, "[[8]]", "[[8]]", "started", false, true).read(rank));
  EXPECT_THAT(messages(judge_dumps(std::move(dumps))),
              ElementsAre(HasSubstr("MF818 group 7 (mesh_dp), collective 1, all_reduce: all ranks "
                                    "launched it; it is unfinished on ranks 4, 6")));
}

TEST(FlightRecorder, DumpsWithoutACallAreNotJudged) {
  std::vector<FlightDump> empty;
  for (const std::int64_t rank : {4, 6}) {
    Dump dump;
    dump.ranks = "[]";
    empty.push_back(dump.read(rank));
  }
  EXPECT_FALSE(judge_dumps(std::move(empty)).good());
}

TEST(FlightRecorder, DumpsOfAHealthyRunAreFine) {
  EXPECT_TRUE(judge_dumps({file("fr_good_0", 0), file("fr_good_1", 1)}).good());
  EXPECT_TRUE(judge_dumps({file("fr_nccl.pickle", 0)}).good());
}

TEST(FlightRecorder, RealRanksThatDifferAreFoundWithTheirLines) {
  EXPECT_THAT(messages(judge_dumps({file("fr_order_0", 0), file("fr_order_1", 1)})),
              ElementsAre("MF815 group 0 (default_pg), collective 2: ranks call different "
                          "collectives, here first: rank 0: all_reduce at fr.py:9; rank 1: "
                          "broadcast at fr.py:10"));
  EXPECT_THAT(messages(judge_dumps({file("fr_missing_0", 0), file("fr_missing_1", 1)})),
              ElementsAre("MF817 group 0 (default_pg), collective 2, all_reduce: rank 0: launched "
                          "it (scheduled) at fr.py:14; rank 1: did not; its last there is number "
                          "1, all_reduce at fr.py:6"));
}

TEST(FlightRecorder, PickleAndJsonSayTheSame) {
  const FlightDump pickle = file("fr_nccl.pickle", 0);
  const FlightDump json = file("fr_nccl.json", 0);
  ASSERT_EQ(pickle.groups.size(), 1U);
  const FlightGroup& one = pickle.groups.at("0");
  const FlightGroup& other = json.groups.at("0");
  EXPECT_EQ(pickle.version, json.version);
  EXPECT_EQ(one.description, "default_pg");
  ASSERT_EQ(one.calls.size(), 9U);
  ASSERT_EQ(other.calls.size(), 9U);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(one.calls[i].kind, other.calls[i].kind);
    EXPECT_EQ(one.calls[i].input, other.calls[i].input);
    EXPECT_EQ(one.calls[i].state, other.calls[i].state);
  }
  EXPECT_EQ(one.calls[0].kind, "_all_gather_base");
  EXPECT_EQ(one.calls[0].input, (CallSide{1024, "BFloat16"}));
  EXPECT_THAT(one.ranks, ElementsAre(0));
}

TEST(FlightRecorder, OneRankOfUnknownOnesIsNotJudged) {
  Dump dump = Dump().add("all_reduce", 1, "[[4]]", "[[4]]");
  dump.ranks = "[]";
  EXPECT_TRUE(judge_dumps({dump.read(4), dump.read(6)}).good());
  const RuleVerdict verdict = judge_dumps({dump.read(4)});
  EXPECT_TRUE(verdict.findings.empty());
  ASSERT_EQ(verdict.not_judged.size(), 1U);
  EXPECT_THAT(verdict.not_judged[0].reason, HasSubstr("no dump lists its ranks"));
}

TEST(FlightRecorder, RefusesRanksThatAreNone) {
  for (const char* config : {R"("x")", R"({"7": {"ranks": 7}})", R"({"7": {"ranks": "4, six"}})",
                             R"({"7": {"ranks": "[-1]"}})"}) {
    const auto dump = read_flight_dump(
        fmt::format(R"({{"version": "2.10", "pg_config": {}, "entries": []}})", config), "r", 0);
    ASSERT_FALSE(dump) << config;
    EXPECT_THAT(dump.error().message(), HasSubstr("r: pg_config: ")) << config;
  }
}

// ---- what is compared

TEST(FlightRecorder, ElementsCountAndShapesDoNot) {
  const Dump one = Dump().add("all_reduce", 1, "[[4, 8]]", "[[4, 8]]");
  EXPECT_TRUE(
      judge_dumps({one.read(4), Dump().add("all_reduce", 1, "[[32]]", "[[32]]").read(6)}).good());
  EXPECT_THAT(
      messages(judge_dumps({one.read(4), Dump().add("all_reduce", 1, "[[33]]", "[[33]]").read(6)})),
      ElementsAre(HasSubstr("MF816 group 7 (mesh_dp), collective 1, all_reduce: rank 4: in "
                            "32 of Float")));
}

TEST(FlightRecorder, WhatIsNotWrittenIsNotCompared) {
  const std::string in = R"("input_sizes": [[8]], )";
  Dump one = Dump().add("all_reduce", 1, "[[8]]", "[[8]]");
  Dump other = one;
  other.entries.erase(other.entries.find(in), in.size());
  EXPECT_TRUE(judge_dumps({one.read(4), other.read(6)}).good());
  Dump third = Dump().add("all_reduce", 1, "[[8]]", "[[9]]");
  third.entries.erase(third.entries.find(in), in.size());
  EXPECT_FALSE(judge_dumps({one.read(4), third.read(6)}).good());
}

TEST(FlightRecorder, PartsOfListsMayDiffer) {
  const auto both = [](const std::string& kind, const std::string& in, const std::string& out) {
    return judge_dumps(
        {Dump().add(kind, 1, "[[2]]", "[[2], [3]]").read(4), Dump().add(kind, 1, in, out).read(6)});
  };
  EXPECT_TRUE(both("all_gather", "[[3]]", "[[2], [3]]").good());
  EXPECT_FALSE(both("all_gather", "[[3]]", "[[2], [4]]").good());
  EXPECT_TRUE(both("all_to_all", "[[3]]", "[[9]]").good());
  EXPECT_FALSE(both("_all_gather_base", "[[3]]", "[[2], [3]]").good());
}

TEST(FlightRecorder, SendsMeetReceives) {
  const Dump sender = Dump()
                          .add("send 0->1", 0, "[[8]]", "[[8]]", "completed", true)
                          .add("send 0->1", 0, "[[8]]", "[[8]]", "scheduled", true);
  const auto with = [&](const Dump& receiver) {
    return judge_dumps({sender.read(4), receiver.read(6)});
  };
  Dump receiver = Dump().add("recv 1<-0", 0, "[[8]]", "[[8]]", "completed", true);
  EXPECT_THAT(messages(with(receiver)),
              ElementsAre("MF817 group 7, rank 4 to rank 6, transfer 2, transfer: rank 4: launched "
                          "it (scheduled); rank 6: did not; its last there is number 1, transfer"));
  receiver.add("recv 1<-0", 0, "[[9]]", "[[9]]", "scheduled", true);
  EXPECT_THAT(messages(with(receiver)), ElementsAre(HasSubstr("MF816 group 7, rank 4 to rank 6")));
}

// ---- what is wrong with the files

std::string refusal(const std::vector<FlightDump>& dumps) {
  const auto groups = join_dumps(dumps);
  return groups ? "" : groups.error().message();
}

TEST(FlightRecorder, DumpsOfOneJobAreExpected) {
  const Dump dump = Dump().add("all_reduce", 1, "[[1]]", "[[1]]");
  EXPECT_EQ(refusal({dump.read(4), dump.read(4)}),
            "rank4.json: has rank 4, as rank4.json: expected one file for each rank");
  EXPECT_THAT(refusal({dump.read(5)}), HasSubstr("rank 5 recorded calls of group 7, which has "
                                                 "ranks 4, 6"));
  Dump other = dump;
  other.ranks = "[4, 5, 6]";
  EXPECT_EQ(refusal({dump.read(4), other.read(6)}),
            "rank6.json: group 7 has ranks 4-6, but ranks 4, 6 in rank4.json: expected dumps of "
            "one job");
  other = dump;
  other.version = "2.9";
  EXPECT_THAT(refusal({dump.read(4), other.read(6)}), HasSubstr("version 2.9, but 2.10 in"));
  EXPECT_EQ(refusal({dump.read(4), dump.read(6)}), "");
}

/// A dump of another job is skipped, and the rest is judged.
TEST(FlightRecorder, DumpsThatMostOthersContradictAreLeftOut) {
  Dump dump = Dump().add("all_reduce", 1, "[[1]]", "[[1]]");
  dump.ranks = "[0, 1, 2, 3]";
  const std::vector good{dump.read(0), dump.read(1), dump.read(2)};
  const auto with = [&](const FlightDump& other) {
    std::vector<FlightDump> dumps = good;
    dumps.insert(dumps.begin() + 1, other);
    return join_agreeing_dumps(dumps);
  };
  const auto all = with(dump.read(3));
  ASSERT_TRUE(all);
  EXPECT_THAT(all->left_out, IsEmpty());
  Dump foreign = dump;
  foreign.ranks = "[0, 3]";
  Dump older = dump;
  older.version = "2.1";
  const FlightDump pending_connection = dump.read(9);  // this rank is not in the group
  for (const FlightDump& other : {foreign.read(3), older.read(3), pending_connection}) {
    const auto joined = with(other);
    ASSERT_TRUE(joined) << joined.error().message();
    ASSERT_EQ(joined->left_out.size(), 1U);
    EXPECT_EQ(joined->left_out[0].where, other.where);
    ASSERT_EQ(joined->groups.size(), 1U);
    EXPECT_EQ(joined->groups[0].members.size(), 3U);
  }
  // With two dumps it is not known which one is right.
  EXPECT_FALSE(join_agreeing_dumps({dump.read(0), foreign.read(3)}));
  EXPECT_FALSE(join_agreeing_dumps({dump.read(0), dump.read(1), foreign.read(0), foreign.read(3)}));
}

TEST(FlightRecorder, GroupsOfOneNameAndOtherRanksAreOthers) {
  Dump left = Dump().add("all_reduce", 1, "[[1]]", "[[1]]");
  Dump right = Dump().add("broadcast", 1, "[[1]]", "[[1]]");
  left.ranks = "[4]";
  right.ranks = "[6]";
  EXPECT_TRUE(judge_dumps({left.read(4), right.read(6)}).good());
}

std::string dump_error(const std::string& text) {
  const auto dump = read_flight_dump(text, "d", 0);
  return dump ? "" : dump.error().message();
}

TEST(FlightRecorder, WrongDumpsAreRefusedByName) {
  EXPECT_THAT(dump_error("{\"version\": "), HasSubstr("d: byte 13: expected JSON"));
  EXPECT_THAT(dump_error("nonsense"), HasSubstr("d: byte 0"));
  EXPECT_THAT(dump_error("\x80\x04K\x01."), HasSubstr("d: expected a dump of the flight recorder"));
  EXPECT_THAT(dump_error("{}"), HasSubstr("d: expected a dump of the flight recorder"));
  EXPECT_THAT(dump_error(R"({"entries": []})"), HasSubstr("d: version: expected a text"));
  EXPECT_THAT(dump_error(R"({"version": "2", "entries": [{}]})"),
              HasSubstr("d: entry 0: record_id: expected an integer"));
  EXPECT_THAT(dump_error(R"({"version": "2", "entries": [{"record_id": 0}]})"),
              HasSubstr("d: entry 0: process_group: expected a group's name and description"));
  EXPECT_THAT(dump_error(R"({"version": "2", "entries": [{"record_id": 0, "process_group": ["0"],
                          "profiling_name": "nccl:x", "collective_seq_id": 1, "state": "lost"}]})"),
              HasSubstr("d: entry 0: state: expected scheduled, started or completed"));
  for (const std::string sizes : {"-1", "\"x\"", "[3]", "[[1.5]]", "[[-1]]"})
    EXPECT_THAT(dump_error(fmt::format(
                    R"({{"version": "2", "entries": [{{"record_id": 0, "process_group": ["0"],
                 "profiling_name": "nccl:all_reduce", "collective_seq_id": 1,
                 "state": "completed", "input_sizes": {}}}]}})",
                    sizes)),
                HasSubstr("d: entry 0: input_sizes: expected a list with the sizes of each tensor"))
        << sizes;
}

}  // namespace
}  // namespace mfsdp::traces
