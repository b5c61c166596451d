#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "sim/calibrate/nccl_run.hpp"
#include "tests/sim/calibrate/samples.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;
using testing_calibrate::replaced;
using testing_calibrate::sample;
using testing_calibrate::until;

/// Samples of all runs, or the error as one line.
Result<std::vector<CollectiveSample>> read(const std::string& text) {
  MFSDP_LET(runs, read_nccl_text(text, "f.txt"));
  std::vector<CollectiveSample> all;
  for (const NcclRun& run : runs) {
    MFSDP_LET(samples, samples_of(run));
    all.insert(all.end(), samples.begin(), samples.end());
  }
  return all;
}

std::string error(const std::string& text) {
  const auto samples = read(text);
  if (samples) return "no error";
  EXPECT_EQ(samples.error().message().find('\n'), std::string::npos);
  return samples.error().message();
}

const std::string kH100 = "all_reduce_16_h100.txt";
const std::string kGb300 = "all_gather_8_gb300.txt";

TEST(NcclText, ReadsARunThatNamesItsBenchmark) {
  const auto runs = read_nccl_text(sample(kGb300), "f.txt");
  ASSERT_TRUE(runs) << runs.error().message();
  ASSERT_EQ(runs->size(), 1u);
  const NcclRun& run = runs->front();
  EXPECT_EQ(run.benchmark, "all_gather");
  EXPECT_EQ(run.ranks, 8);
  EXPECT_EQ(run.nodes, 2);
  EXPECT_EQ(run.device, "NVIDIA GB300");
  ASSERT_EQ(run.lines.size(), 23u);
  EXPECT_EQ(run.lines[8].size, 1048576);
  EXPECT_EQ(run.lines[8].count, 32768);  // 8 ranks x 32768 x 4 bytes = 1 MiB
  EXPECT_EQ(run.lines[8].out_of_place->us, 63.82);
  EXPECT_EQ(run.lines[8].in_place->bus_bandwidth, 14.32);
  EXPECT_EQ(*run.average, 146.047);
}

/// `text` with `label` before each line; '%' in it counts lines from 10 on.
std::string labelled(const std::string& text, const std::string& label) {
  std::string all;
  int number = 10;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1);
    for (const char c : label) all += c == '%' ? std::to_string(number) : std::string(1, c);
    all += text.substr(begin, end + 1 - begin);
    begin = end + 1;
    ++number;
  }
  return all;
}

/// mpirun --tag-output and --timestamp-output, torchrun, srun -l, Ray, logs of Kubernetes.
TEST(NcclText, ReadsWhateverALauncherPutsBeforeALine) {
  const auto plain = read(sample(kGb300));
  ASSERT_TRUE(plain) << plain.error().message();
  for (const char* label :
       {"[1,0]<stdout>:", "[0] ", "[default0]:", "0: ", " 3: ", "(RayTrainWorker pid=4242) ",
        "2026-11-28T10:00:%.123Z ", "Sat Nov 28 10:%:33 2026[1,0]<stdout>:", "node-7 | ",
        "\x1b[36m0: \x1b[0m"}) {
    const std::string text = labelled(sample(kGb300), label);
    ASSERT_TRUE(is_nccl_text(text)) << label;
    const auto samples = read(text);
    ASSERT_TRUE(samples) << label << samples.error().message();
    ASSERT_EQ(samples->size(), plain->size()) << label;
    for (std::size_t i = 0; i < plain->size(); ++i) {
      EXPECT_EQ((*samples)[i].ns, (*plain)[i].ns) << label;
      EXPECT_EQ((*samples)[i].nodes, (*plain)[i].nodes) << label;
    }
  }
}

/// Messages of other ranks stand between the lines of rank 0; a cut row is still one.
TEST(NcclText, LabelsHideNothingThatIsWrong) {
  const std::string good = labelled(sample(kGb300), "[1,0]<stdout>:");
  const std::string other = "[1,5]<stderr>:node-1: NCCL INFO done\n";
  const std::size_t row = good.rfind("[1,0]<stdout>:#", good.find("Avg bus"));
  EXPECT_EQ(error(good.substr(0, row) + other + good.substr(row)), "no error");
  EXPECT_THAT(error(good.substr(0, row)), HasSubstr("the run was cut short"));
}

TEST(NcclText, TellsAllReduceByItsCountsWhereNoLineNamesIt) {
  const auto samples = read(sample(kH100));
  ASSERT_TRUE(samples) << samples.error().message();
  ASSERT_EQ(samples->size(), 31u);
  const CollectiveSample& last = samples->back();
  EXPECT_EQ(last.kind, CollectiveKind::all_reduce);
  EXPECT_EQ(last.ranks, 16);
  EXPECT_EQ(last.nodes, 2);
  EXPECT_EQ(last.bytes, Bytes(8'589'934'592));
  EXPECT_EQ(last.ns, 47'535'000);
}

TEST(NcclText, ReadsLabelledLines) {
  const auto samples = read(sample("all_reduce_4_gh200_srun_labels.txt"));
  ASSERT_TRUE(samples) << samples.error().message();
  EXPECT_EQ(samples->size(), 30u);
  EXPECT_EQ(samples->back().nodes, 1);
  EXPECT_EQ(samples->back().ranks, 4);
}

TEST(NcclText, ReadsSeveralRunsAndOtherOutputBetweenThem) {
  const std::string text = "$ mpirun ./all_reduce_perf -b 8\n" + sample(kH100) +
                           "srun: job done\n$ ./all_gather_perf -g 1\n" + sample(kGb300) +
                           "all is well\n";
  const auto samples = read(text);
  ASSERT_TRUE(samples) << samples.error().message();
  EXPECT_EQ(samples->size(), 31u + 23u);
  EXPECT_EQ(samples->back().kind, CollectiveKind::all_gather);
}

TEST(NcclText, ACommandLineNamesTheBenchmarkOfAnOldHeader) {
  const std::string old =
      replaced(sample(kGb300), "# Collective test starting: all_gather_perf\n", "");
  EXPECT_THAT(error(old), HasSubstr("f.txt:16: no line names the benchmark; all_gather and others "
                                    "print the same table"));
  EXPECT_EQ(error("$ mpirun -np 8 ./build/all_gather_perf -b 4K\n" + old), "no error");
  EXPECT_THAT(error("$ ./build/alltoall_perf -b 4K\n" + old),
              HasSubstr("measures alltoall; expected all_gather, all_reduce or reduce_scatter"));
}

TEST(NcclText, RefusesTruncatedRuns) {
  const std::string text = sample(kGb300);
  const std::string cut =
      "f.txt:17: the table has no closing line \"# Avg bus bandwidth\"; the run "
      "was cut short";
  EXPECT_EQ(error(until(text, "# Out of bounds")), cut);
  EXPECT_EQ(error(until(text, "# Avg bus")), cut);
  EXPECT_EQ(error(until(text, "# Out of bounds") + text), cut);  // and another run follows
  // In the middle of the last row: size, count, type, redop, root, time and algbw are left.
  EXPECT_EQ(error(until(text, "  357.13")), "f.txt:41: has 7 cells; the header has 13");
  // A header without rows.
  EXPECT_THAT(
      error(until(text, "        4096           128") + text.substr(text.find("# Out of bounds"))),
      HasSubstr("f.txt:17: has a header, but no row follows"));
  // A row in the middle is gone: (146.047 * 46 - 337.55 - 361.78) / 44 = 136.79 GB/s are left.
  const std::size_t row = text.find("  1073741824");
  std::string missing = text;
  missing.erase(row, missing.find('\n', row) + 1 - row);
  EXPECT_THAT(error(missing), HasSubstr("the rows' busbw is 136.79"));
  EXPECT_THAT(error(missing), HasSubstr("the closing line has 146.047; rows are missing"));
}

TEST(NcclText, RefusesListsOfDevicesThatAreCutOrSplit) {
  const std::string text = sample(kGb300);
  EXPECT_THAT(error(replaced(text, "#  Rank  3 ", "#  Rink  3 ")),
              HasSubstr("the list of devices names 7 ranks up to 7; some are cut"));
  EXPECT_THAT(error(text.substr(text.find("#                        "))),
              HasSubstr("no list of devices"));
  EXPECT_THAT(error(replaced(text, "Rank  3 Group  0", "Rank  3 Group  1")),
              HasSubstr("split into groups"));
  EXPECT_THAT(error(replaced(text, "host-b device  3", "host-c device  3")),
              HasSubstr("ran 8 ranks on 3 hosts; expected as many on each"));
}

TEST(NcclText, RefusesOtherUnitsAndColumns) {
  const std::string text = sample(kGb300);
  EXPECT_EQ(error(replaced(text, "(us)", "(ms)")),
            "f.txt:18: unit (ms); expected (B), (elements), (us) and (GB/s)");
  EXPECT_THAT(error(replaced(text, "(GB/s)", "(Gb/s)")), HasSubstr("unit (Gb/s)"));
  EXPECT_THAT(error(replaced(text, "#        (B)", "         (B)")), HasSubstr("no line of units"));
  EXPECT_THAT(error(replaced(text, "   time ", "cputime ")), HasSubstr("reports CPU times (-C)"));
}

TEST(NcclText, RefusesNumbersThatContradictEachOther) {
  const std::string text = sample(kGb300);
  // 4294967296 B / 10579.7 us = 405.96 GB/s; times 7/8 = 355.22.
  EXPECT_EQ(error(replaced(text, "355.22", "405.96")),
            "f.txt:39: busbw is 405.96 GB/s, but 4294967296 bytes in 10579.7 us by all_gather of 8 "
            "ranks make 355.2");
  EXPECT_THAT(error(replaced(text, "10579.7", "10.5797")), HasSubstr("algbw is 405.96 GB/s, but"));
  EXPECT_THAT(error(replaced(text, "134217728     float", "134217729     float")),
              HasSubstr("4294967296 bytes are not 134217729 elements of 4 bytes on 8 ranks"));
  EXPECT_THAT(error(replaced(text, "8192           256     float", "8192           256     int32")),
              HasSubstr("f.txt:20: mixes data types: int32 after float"));
  EXPECT_THAT(error(replaced(sample(kH100), "16             4     float     sum",
                             "16             4     float     max")),
              HasSubstr("mixes reductions: max after sum"));
  EXPECT_THAT(error(replaced(text, "none", "sum ")), HasSubstr("mixes reductions: none after sum"));
}

TEST(NcclText, RefusesWrongResultsAndNoNumbers) {
  const std::string text = sample(kGb300);
  EXPECT_EQ(error(replaced(text, "28.51    0.14    0.13      0", "28.51    0.14    0.13      7")),
            "f.txt:19: has 7 wrong values; a run that computes wrong results measures nothing");
  EXPECT_EQ(error(replaced(text, "28.51    0.14    0.13      0", "28.51    0.14    0.13    N/A")),
            "no error");
  EXPECT_THAT(error(replaced(text, "values : 0 OK", "values : 3 FAILED")),
              HasSubstr("values out of bounds; its data are corrupt"));
  EXPECT_THAT(error(replaced(text, "  28.51", "    nan")), HasSubstr("time is nan"));
  EXPECT_THAT(error(replaced(text, "  28.51", "    inf")), HasSubstr("time is inf"));
  EXPECT_THAT(error(replaced(text, "  28.51", " -28.51")), HasSubstr("time is -28.51"));
  EXPECT_THAT(error(replaced(text, "  28.51", "   0.00")), HasSubstr("time is 0"));
  EXPECT_THAT(error(replaced(text, "  28.51", "  28,51")), HasSubstr("expected numbers for time"));
  EXPECT_THAT(error(replaced(text, "        4096  ", "       -4096  ")),
              HasSubstr("expected a size and a count from 0 to 1e15"));
  EXPECT_THAT(error(replaced(text, "        4096  ", "9999999999999999999999  ")),
              HasSubstr("expected a size in bytes first"));
  EXPECT_THAT(error(replaced(text, "float", "fp128")), HasSubstr("unknown data type fp128"));
}

// Whatever is cut off a run's end, no part of it is taken for the whole.
RC_GTEST_PROP(NcclTextProperty, NoPrefixOfARunIsARun, ()) {
  static const std::string text = sample(kH100);
  static const std::size_t whole = text.find("70.742");
  const auto length = *rc::gen::inRange<std::size_t>(0, whole);
  const auto samples = read(text.substr(0, length));
  RC_ASSERT(!samples || samples->empty());
}

}  // namespace
}  // namespace mfsdp
