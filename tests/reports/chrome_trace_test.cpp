#include "reports/trace/chrome_trace.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/sample_run.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;
using test::sample_run;
using test::ScratchFolder;

std::string gunzip(const std::filesystem::path& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  std::string text;
  std::array<char, 4096> block{};
  for (int n = 0; (n = gzread(file, block.data(), block.size())) > 0;)
    text.append(block.data(), static_cast<std::size_t>(n));
  EXPECT_EQ(gzclose(file), Z_OK);  // its checksum and length are right
  return text;
}

std::vector<Json> events_of(const Json& trace, const std::string& phase) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"])
    if (event["ph"] == phase) events.push_back(event);
  return events;
}

TEST(ChromeTrace, NamesTheProcessAndOneTrackAStream) {
  const ScratchFolder folder;
  ASSERT_TRUE(write_chrome_trace(sample_run(), folder / "t.json"));
  const Json trace = Json::parse(test::read_file(folder / "t.json"));
  std::map<std::string, std::string> names;
  for (const Json& event : events_of(trace, "M"))
    if (event["name"] != "thread_sort_index")
      names[event["name"].get<std::string>() + event["tid"].dump()] = event["args"]["name"];
  EXPECT_THAT(names["process_name0"], ::testing::EndsWith("llama3_8b on 64 x h100"));
  EXPECT_EQ(names["thread_name0"], "compute");
  EXPECT_EQ(names["thread_name1"], "all_gather");
  EXPECT_EQ(names.size(), 3U);
}

TEST(ChromeTrace, HasOneCompleteEventAnOp) {
  const ScratchFolder folder;
  const PredictedRun run = sample_run("r", 40);
  ASSERT_TRUE(write_chrome_trace(run, folder / "t.json"));
  const auto ops = events_of(Json::parse(test::read_file(folder / "t.json")), "X");
  ASSERT_EQ(ops.size(), 40U);
  for (const Json& event : ops) {
    const OpTime& op = run.timeline.at(event["args"]["op"].get<std::size_t>());
    EXPECT_EQ(event["name"], op.name);
    EXPECT_EQ(event["tid"], op.stream == "compute" ? 0 : 1);
    EXPECT_EQ(event["args"], (Json{{"op", op.op.value},
                                   {"segment", op.segment},
                                   {"instance", op.instance},
                                   {"kind", op.kind}}));
  }
}

TEST(ChromeTrace, TimesAreMicrosecondsExactToTheNanosecond) {
  const ScratchFolder folder;
  PredictedRun run = sample_run("r", 0, 0);
  run.timeline = {{.op = OpId(0),
                   .name = "a",
                   .stream = "compute",
                   .kind = "gemm",
                   .segment = "first",
                   .instance = 0,
                   .start = Nanos(-1'002),
                   .end = Nanos(5)},
                  {.op = OpId(1),
                   .name = "b",
                   .stream = "compute",
                   .kind = "gemm",
                   .segment = "first",
                   .instance = 0,
                   .start = Nanos(5),
                   .end = Nanos(9'007'199'254'740'993)}};
  ASSERT_TRUE(write_chrome_trace(run, folder / "t.json"));
  const std::string text = test::read_file(folder / "t.json");
  // The trace begins with the op that runs ahead; the step is 1.002 us later.
  EXPECT_THAT(text, HasSubstr(R"("step_begin_ns":1002})"));
  EXPECT_THAT(text, HasSubstr(R"("ts":0.000,"dur":1.007,)"));
  EXPECT_THAT(text, HasSubstr(R"("ts":1.007,"dur":9007199254740.988,)"));
  EXPECT_THAT(text, HasSubstr(R"("step begins","ph":"i","s":"p","ts":1.002,)"));
}

TEST(ChromeTrace, CountsLiveBytesByCategoryAndInTotal) {
  const ScratchFolder folder;
  PredictedRun run = sample_run("r", 0, 0);
  MemoryPoint point{.at = Nanos(1500), .categories = {}};
  point.categories.at(0) = Bytes(30);
  point.categories.at(6) = Bytes(12);
  run.memory_timeline = {point};
  ASSERT_TRUE(write_chrome_trace(run, folder / "t.json"));
  const auto counters = events_of(Json::parse(test::read_file(folder / "t.json")), "C");
  ASSERT_EQ(counters.size(), 2U);
  EXPECT_EQ(counters[0]["ts"], 1.5);
  EXPECT_EQ(counters[0]["args"], (Json{{"model_weight", 30}, {"activation", 12}}));
  EXPECT_EQ(counters[1]["args"], (Json{{"total", 42}}));
}

TEST(ChromeTrace, CompressesByName) {
  const ScratchFolder folder;
  const PredictedRun run = sample_run("r", 3000, 3000);  // several blocks
  ASSERT_TRUE(write_chrome_trace(run, folder / "t.json"));
  ASSERT_TRUE(write_chrome_trace(run, folder / "t.json.gz"));
  ASSERT_TRUE(write_chrome_trace(run, folder / "again.json.gz"));
  const std::string text = test::read_file(folder / "t.json");
  EXPECT_EQ(gunzip(folder / "t.json.gz"), text);
  EXPECT_LT(std::filesystem::file_size(folder / "t.json.gz"), text.size() / 5);
  EXPECT_EQ(test::read_file(folder / "t.json.gz"), test::read_file(folder / "again.json.gz"));
  EXPECT_EQ(folder.file_count(), 3U);
}

TEST(ChromeTrace, TextIsEscaped) {
  const ScratchFolder folder;
  PredictedRun run = sample_run();
  run.name = "\"\\\n\xff";
  run.timeline[0].name = "quote\" \x02 \xff";
  ASSERT_TRUE(write_chrome_trace(run, folder / "t.json"));
  const Json trace = Json::parse(test::read_file(folder / "t.json"));
  EXPECT_EQ(events_of(trace, "X")[0]["name"], "quote\" \x02 \uFFFD");
}

TEST(ChromeTraceErrors, OpsOfOneStreamMayTouchButNotOverlap) {
  const ScratchFolder folder;
  PredictedRun run = sample_run("r", 2);
  run.timeline[1] = run.timeline[0];
  run.timeline[1].name = "next";
  run.timeline[1].start = run.timeline[0].end;
  run.timeline[1].end = run.timeline[0].end + Nanos(1);
  EXPECT_TRUE(write_chrome_trace(run, folder / "t.json"));

  run.timeline[1].start = run.timeline[0].end - Nanos(1);
  const auto outcome = write_chrome_trace(run, folder / "u.json");
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(),
            "timeline: stream compute: op next starts at 149999 ns, before op layers.0.op ends at "
            "150000 ns");
  EXPECT_FALSE(std::filesystem::exists(folder / "u.json"));

  run.timeline[1].stream = "all_gather";
  EXPECT_TRUE(write_chrome_trace(run, folder / "u.json"));
}

TEST(ChromeTraceErrors, AnOpEndsAfterItsStart) {
  const ScratchFolder folder;
  PredictedRun run = sample_run("r", 1);
  run.timeline[0].end = run.timeline[0].start - Nanos(1);
  const auto outcome = write_chrome_trace(run, folder / "t.json");
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(), "timeline: op layers.0.op: ends before it starts");
}

TEST(ChromeTraceErrors, AFullDiskLeavesNothing) {
  const ScratchFolder folder;
  const auto full = write_chrome_trace(sample_run("r", 3000), "/dev/full");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().message(), "/dev/full: cannot write: No space left on device");
  EXPECT_EQ(full.error().fault, Fault::environment);
  for (const char* name : {"t.json", "t.json.gz"}) {
    const auto path = folder / name;
    const pid_t child = test::start_child([&] {
      test::limit_file_size(2000);
      const auto outcome = write_chrome_trace(sample_run("r", 3000), path);
      if (outcome) return 1;
      return outcome.error().what == "cannot write: File too large" ? 0 : 2;
    });
    EXPECT_EQ(test::wait_for(child), 0);
  }
  EXPECT_EQ(folder.file_count(), 0U);
}

TEST(MemoryTrace, CsvHasAColumnACategoryAndTheTotal) {
  const ScratchFolder folder;
  PredictedRun run = sample_run("r", 0, 0);
  MemoryPoint point{.at = Nanos(-3), .categories = {}};
  point.categories.at(1) = Bytes(40);
  point.categories.at(9) = Bytes(2);
  run.memory_timeline = {MemoryPoint{}, point};
  constexpr auto expected =
      "time_ns,model_weight,main_weight,main_grad,optimizer_state,unsharded_weight,"
      "unsharded_grad,activation,logits,workspace,runtime,total\n"
      "0,0,0,0,0,0,0,0,0,0,0,0\n"
      "-3,0,40,0,0,0,0,0,0,0,2,42\n";
  ASSERT_TRUE(write_memory_trace(run, folder / "m.csv"));
  EXPECT_EQ(test::read_file(folder / "m.csv"), expected);
  ASSERT_TRUE(write_memory_trace(run, folder / "m.csv.gz"));
  EXPECT_EQ(gunzip(folder / "m.csv.gz"), expected);
}

TEST(MemoryTrace, JsonHasTheSameRows) {
  const ScratchFolder folder;
  const PredictedRun run = sample_run("r\"", 0, 30);
  ASSERT_TRUE(write_memory_trace(run, folder / "m.json"));
  const Json trace = Json::parse(test::read_file(folder / "m.json"));
  EXPECT_EQ(trace["schema"], "mfsdp.memory/1");
  EXPECT_EQ(trace["run_id"], "r\"");
  ASSERT_EQ(trace["columns"].size(), 12U);
  ASSERT_EQ(trace["rows"].size(), 30U);
  for (const Json& row : trace["rows"]) {
    ASSERT_EQ(row.size(), 12U);
    std::int64_t sum = 0;
    for (std::size_t i = 1; i <= 10; ++i) sum += row[i].get<std::int64_t>();
    EXPECT_EQ(row[11], sum);
  }
  EXPECT_EQ(trace["rows"][29][0], 29 * 70'007);
  ASSERT_TRUE(write_memory_trace(sample_run("r", 0, 0), folder / "empty.json"));
  EXPECT_TRUE(Json::parse(test::read_file(folder / "empty.json"))["rows"].empty());
}

TEST(MemoryTrace, AFullDeviceIsAnError) {
  const auto full = write_memory_trace(sample_run(), "/dev/full");
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message(), StartsWith("/dev/full: cannot write: "));
}

}  // namespace
}  // namespace mfsdp
