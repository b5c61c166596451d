#include "sim/cost/tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

const std::string kHeader = "kind,M,N,K,tflops\n";
const std::string kRows = "fwd,1,2,3,600\ndgrad,1,2,3,600\nwgrad,1,2,3,600\n";

std::string gemm_error(const std::string& text) {
  const auto rows = parse_gemm_table(text, "g.csv");
  return rows ? "no error" : rows.error().message();
}

std::string collective_error(const std::string& rows) {
  const auto table = parse_collective_table("n,mbytes,ag_ms,rs_ms,ar_ms\n" + rows, "c.csv");
  return table ? "no error" : table.error().message();
}

TEST(Tables, ShippedOnesHoldEveryMeasurement) {
  const CostTables tables = testing_cost::h200_tables();
  EXPECT_EQ(tables.gemm.size(), 114u);                 // 38 shapes, three GEMMs each
  EXPECT_EQ(tables.gemm_fp8->split.size(), 78u);       // 26 shapes, three GEMMs each
  EXPECT_EQ(tables.gemm_fp8->fast.size(), 78u);        // likewise
  EXPECT_EQ(tables.attention.size(), 24u);             // 12 shapes, two directions
  EXPECT_EQ(tables.attention_warpgroups.size(), 41u);  // 21 shapes, the longest forward alone
  EXPECT_EQ(tables.collective.size(), 27u);            // 9 sizes on 2, 4 and 8 GPUs
  EXPECT_EQ(tables.gemm[0].flops_per_ns, 627.4 * 1e3);
  EXPECT_EQ(tables.collective[0].bytes, 65536);  // 0.0625 MiB
}

TEST(Tables, Fp8HasEveryKindWithEachSum) {
  const std::string rows =
      "kind,accumulate,M,N,K,tflops\nfwd,split,1,2,3,6\ndgrad,split,1,2,3,6\n"
      "wgrad,split,1,2,3,6\nfwd,fast,1,2,3,7\nwgrad,fast,1,2,3,7\n";
  const auto error = [](const std::string& text) {
    const auto table = parse_fp8_gemm_table(text, "f.csv");
    return table ? "no error" : table.error().message();
  };
  EXPECT_EQ(error(rows), "f.csv: has no row with accumulate fast of kind dgrad");
  EXPECT_EQ(error(rows + "dgrad,fast,1,2,3,7\n"), "no error");
  EXPECT_EQ(error(rows + "dgrad,slow,1,2,3,7\n"),
            "f.csv:7: accumulate is \"slow\"; expected one of split, fast");
}

TEST(Tables, NotesAndLineEndsAreSkipped) {
  const auto rows = parse_gemm_table("# note\r\n\r\n" + kHeader + kRows, "g.csv");
  ASSERT_TRUE(rows) << rows.error().message();
  EXPECT_EQ(rows->size(), 3u);
}

TEST(Tables, ErrorsNameFileLineAndColumn) {
  EXPECT_EQ(gemm_error(""), "g.csv: holds no table; expected a header and rows");
  EXPECT_EQ(gemm_error("kind,M,N,K\n"
                       "fwd,1,2,3\ndgrad,1,2,3\nwgrad,1,2,3\n"),
            "g.csv: has no column \"tflops\"");
  EXPECT_EQ(gemm_error(kHeader + "fwd,1,2,3\n"), "g.csv:2: has 4 cells; the header has 5");
  EXPECT_EQ(gemm_error(kHeader + kRows + "fwd,1,2,3,x\n"),
            "g.csv:5: tflops is \"x\"; expected a number above 0 and at most 1e12");
  EXPECT_THAT(gemm_error(kHeader + kRows + "fwd,0,2,3,600\n"), HasSubstr("g.csv:5: M is \"0\""));
  EXPECT_THAT(gemm_error(kHeader + kRows + "fwd,1,2,3,nan\n"), HasSubstr("tflops is \"nan\""));
  EXPECT_THAT(gemm_error(kHeader + "sideways,1,2,3,6\n"),
              HasSubstr("g.csv:2: kind is \"sideways\"; expected one of fwd, dgrad, wgrad"));
  EXPECT_EQ(gemm_error(kHeader + "fwd,1,2,3,600\n"), "g.csv: has no row with kind dgrad");
}

TEST(Tables, CollectivesFormAGrid) {
  EXPECT_EQ(collective_error("2,1,1,1,1\n2,2,1,1,1\n"), "no error");
  const std::string uneven = "c.csv: must list the same two or more sizes for every n, each once";
  EXPECT_EQ(collective_error("2,1,1,1,1\n"), uneven);
  EXPECT_EQ(collective_error("2,1,1,1,1\n2,1,1,1,1\n"), uneven);
  EXPECT_EQ(collective_error("2,1,1,1,1\n2,2,1,1,1\n4,1,1,1,1\n"), uneven);
  EXPECT_EQ(collective_error("2,1,1,1,1\n2,2,1,1,1\n4,1,1,1,1\n4,3,1,1,1\n"), uneven);
}

TEST(Tables, CollectiveSamplesHaveTimesOrBandwidths) {
  const auto times =
      parse_collective_samples("collective,gpus,bytes,us\nreduce_scatter,8,1000000,20\n", "s.csv");
  ASSERT_TRUE(times) << times.error().message();
  EXPECT_EQ(times->front().kind, CollectiveKind::reduce_scatter);
  EXPECT_EQ(times->front().nodes, 1);
  EXPECT_EQ(times->front().ns, 20'000);
  EXPECT_EQ(times->front().place, "s.csv:2");
  const auto rates = parse_collective_samples(
      "collective,gpu,gpus,nodes,bytes,busbw_gb_per_s\nall_reduce,x,16,2,1000000,75\n", "s.csv");
  ASSERT_TRUE(rates) << rates.error().message();
  EXPECT_EQ(rates->front().nodes, 2);
  EXPECT_EQ(rates->front().ns, 25'000);  // 2 * 15/16 * 1 MB / 75 GB/s
}

TEST(MeanOfRepeats, KeepsOneOfEachSize) {
  CollectiveSample sample{.ranks = 16, .bytes = Bytes(64), .ns = 10, .place = "a:1"};
  CollectiveSample again = sample;
  again.ns = 20;
  CollectiveSample other = sample;
  other.kind = CollectiveKind::all_reduce;
  const auto means = mean_of_repeats(std::vector{other, again, sample});
  ASSERT_EQ(means.size(), 2u);
  EXPECT_EQ(means[0].kind, CollectiveKind::all_gather);
  EXPECT_EQ(means[0].ns, 15);
  EXPECT_EQ(means[1].ns, 10);
  EXPECT_TRUE(mean_of_repeats({}).empty());
}

TEST(CsvTable, SkipsAByteOrderMark) {
  const std::string text = "\xef\xbb\xbf# a note\na,b\n1,2\n";
  EXPECT_EQ(CsvTable::header_of(text), (std::vector<std::string>{"a", "b"}));
  const auto table = CsvTable::parse(text, "t.csv");
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_EQ(table->rows(), 1u);
  EXPECT_TRUE(table->has_column("a"));
}

}  // namespace
}  // namespace mfsdp
