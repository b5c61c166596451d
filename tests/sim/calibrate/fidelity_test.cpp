#include "sim/calibrate/fidelity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/sim/calibrate/samples.hpp"
#include "tests/sim/cost/cost_fixture.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;
using testing_calibrate::kSource;

const std::filesystem::path kScenarios = kSource / "scenarios";

class Fidelity : public testing::Test {
 protected:
  static const std::vector<FidelityRow>& rows() {
    static const std::vector<FidelityRow> all = fidelity(kScenarios).value();
    return all;
  }

  static const FidelityRow& row(const std::string& group, const std::string& what,
                                Evaluation evaluation) {
    for (const FidelityRow& row : rows())
      if (row.group == group && row.what == what && row.evaluation == evaluation) return row;
    throw std::runtime_error("no row " + group + " " + what);
  }
};

TEST_F(Fidelity, CountsEveryRowOfTheTables) {
  std::size_t gemm = 0;
  std::size_t attention = 0;
  std::size_t collective = 0;
  std::size_t copies = 0;
  std::size_t contention = 0;
  std::size_t steps = 0;
  for (const FidelityRow& row : rows()) {
    if (row.group == "GEMM" && row.what == "all" && row.evaluation == Evaluation::fit)
      gemm += row.error.rows;
    const bool direction = row.what == "forward" || row.what == "backward";
    if (row.group == "attention" && direction && row.evaluation == Evaluation::leave_one_out)
      attention += row.error.rows;
    if (row.group == "collective" && row.evaluation == Evaluation::fit)
      collective += row.error.rows;
    if (row.group == "copy") copies += row.error.rows;
    contention += row.group == "contention" ? 1 : 0;
    steps += row.group == "step" ? 1 : 0;
  }
  EXPECT_EQ(gemm, 114u);
  EXPECT_EQ(attention, 24u);
  EXPECT_EQ(collective, 27u * 3);
  EXPECT_EQ(copies, 7u);
  EXPECT_EQ(contention, 13u);  // of 14 rows, without `none`
  EXPECT_EQ(steps, 10u);
}

TEST_F(Fidelity, KernelsMeetTheirLimits) {
  EXPECT_LT(row("GEMM", "all", Evaluation::fit).error.worst, 1e-9);
  EXPECT_LT(row("GEMM", "all, by the law's three constants", Evaluation::fit).error.mean, 0.015);
  EXPECT_LT(row("GEMM", "all", Evaluation::leave_one_out).error.mean, 0.015);
  for (const std::string kind : {"forward", "dgrad", "wgrad"})
    EXPECT_LT(row("GEMM", kind, Evaluation::leave_one_out).error.mean,
              row("GEMM", kind + ", best constant rate", Evaluation::comparison).error.mean);
  for (const char* direction : {"forward", "backward"})
    EXPECT_LT(row("attention", direction, Evaluation::leave_one_out).error.worst, 0.05);
  // Heads of 64 have three rows each way, of which the one of 2048 tokens is alone.
  for (const char* direction : {"forward, by our own kernels", "backward, by our own kernels"})
    EXPECT_LT(row("attention", direction, Evaluation::leave_one_out).error.worst, 0.07);
  EXPECT_LT(row("copy", "from 128 MiB moved", Evaluation::fit).error.worst, 0.011);
}

TEST_F(Fidelity, PublishedTablesAreNearerThanScaledOnes) {
  for (const std::string gpu : {"a100_80_pcie", "b200"})
    for (const std::string group : {"GEMM", "attention"}) {
      const double published =
          row(group, gpu + ", published", Evaluation::leave_one_out).error.mean;
      EXPECT_LT(published, 0.09) << gpu << " " << group;
      EXPECT_LT(published,
                row(group, gpu + ", published, by the H200's table, scaled", Evaluation::unseen)
                    .error.mean);
    }
}

TEST_F(Fidelity, LargeCollectivesMeetTheirLimits) {
  const ErrorSummary large =
      row("collective", "all-gather and reduce-scatter above 16 MiB", Evaluation::fit).error;
  EXPECT_EQ(large.rows, 24u);  // 64, 128, 436 and 1024 MiB on 2, 4 and 8, both kinds
  EXPECT_LT(large.mean, 0.05);
  EXPECT_LT(large.worst, 0.10);
}

TEST_F(Fidelity, OtherEnginesAreAComparison) {
  for (const FidelityRow& row : rows()) {
    if (row.group != "step") continue;
    EXPECT_EQ(row.evaluation, Evaluation::comparison);
    // An executor that loses nothing between kernels is faster than any of them, not by a fifth.
    EXPECT_LT(row.error.bias, 0) << row.what;
    EXPECT_GT(row.error.bias, -0.20) << row.what;
  }
}

TEST_F(Fidelity, EnginesAreHeldToTheRunsOfTheirs) {
  EXPECT_EQ(row("engine", "all: step", Evaluation::unseen).error.rows, 10u);
  EXPECT_LT(row("engine", "all: step", Evaluation::unseen).error.mean, 0.05);
  EXPECT_LT(row("engine", "all: step", Evaluation::unseen).error.worst, 0.10);
  // Noted with three digits after the point: half of the last one of 27.523 GiB is 0.00002 of it.
  EXPECT_LT(row("engine", "all: allocated memory", Evaluation::unseen).error.worst, 0.0001);
  EXPECT_LT(row("engine", "all: reserved memory", Evaluation::unseen).error.worst, 0.002);
}

TEST_F(Fidelity, ContentionIsFittedOnThreeRowsAndNearOnTen) {
  int seen = 0;
  for (const FidelityRow& row : rows()) {
    if (row.group != "contention") continue;
    ++seen;
    const bool fitted = row.what.find("_default:") != std::string::npos;
    EXPECT_EQ(row.evaluation, fitted ? Evaluation::fit : Evaluation::unseen);
    EXPECT_LT(row.error.worst, 0.25) << row.what;
  }
  EXPECT_EQ(seen, 13);
}

TEST_F(Fidelity, NetworkPointsAreReadWhereTheyAre) {
  test::ScratchFolder folder;
  std::filesystem::create_directories(folder / "fidelity");
  std::filesystem::create_directory_symlink(kScenarios / "gpus", folder / "gpus");
  EXPECT_TRUE(network_fidelity(folder.path()).value().empty());
  test::write_file(folder / "fidelity/network_public.csv",
                   "# note\ncollective,gpu,gpus,nodes,bytes,busbw_gb_per_s,origin\n"
                   "all_gather,h100,16,2,1000000000,300,somewhere\n");
  const auto network = network_fidelity(folder.path());
  ASSERT_TRUE(network) << network.error().message();
  ASSERT_EQ(network->size(), 1u);
  EXPECT_EQ(network->front().trust_level, TrustLevel::datasheet);
  EXPECT_EQ(network->front().evaluation, Evaluation::unseen);
  // 15/16 GB at 300 GB/s are 3.125 ms.
  const CollectiveCost cost =
      testing_cost::model_of("h100", 16)
          .collective(CollectiveKind::all_gather, Bytes(1'000'000'000), {.ranks = 16});
  EXPECT_NEAR(network->front().error.bias, static_cast<double>(cost.duration.value) / 3'125'000 - 1,
              1e-12);
}

TEST(FidelityOutput, ListsRows) {
  const std::vector<FidelityRow> rows{
      {.group = "GEMM",
       .what = "all",
       .error = {.rows = 3, .mean = 0.0125, .worst = 0.05, .bias = -0.001},
       .evaluation = Evaluation::leave_one_out,
       .trust_level = TrustLevel::calibrated,
       .source = "t.csv"},
      {.group = "contention", .what = "x", .error = {}, .source = "o.csv"}};
  EXPECT_EQ(fidelity_cells(rows)[1],
            (std::vector<std::string>{"GEMM", "all", "3", "1.25 %", "5.00 %", "-0.10 %",
                                      "leave-one-out", "calibrated by micro-benchmarks", "t.csv"}));
  EXPECT_EQ(fidelity_cells(rows)[2][3], "not modelled");
  EXPECT_EQ(fidelity_csv(rows),
            "data,what,rows,mean_error,worst_error,bias,how,tier,source\n"
            "GEMM,\"all\",3,0.012500,0.050000,-0.001000,leave-one-out,calibrated by "
            "micro-benchmarks,t.csv\n"
            "contention,\"x\",0,0.000000,0.000000,0.000000,unseen,calibrated by "
            "micro-benchmarks,o.csv\n");
  const auto json = nlohmann::json::parse(fidelity_json(rows));
  EXPECT_EQ(json["schema"], "mfsdp.fidelity/1");
  EXPECT_EQ(json["rows"][0]["mean_error"], 0.0125);
}

TEST(ErrorSummary, ByHand) {
  const ErrorSummary summary = summarise(std::vector{0.1, -0.3, 0.05});
  EXPECT_EQ(summary.rows, 3u);
  EXPECT_DOUBLE_EQ(summary.mean, 0.15);
  EXPECT_DOUBLE_EQ(summary.worst, 0.3);
  EXPECT_DOUBLE_EQ(summary.bias, -0.05);
  EXPECT_EQ(summarise({}).rows, 0u);
}

}  // namespace
}  // namespace mfsdp
