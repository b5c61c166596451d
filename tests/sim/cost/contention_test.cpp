// Kernels beside collectives, against h200_overlap.csv: fitted on the row ag_default alone.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

constexpr double kGemmsAlone = 33.15;  // ms, twelve 8192 x 28672 x 4096

/// Share of their speed that kernels lose beside it.
double lost_beside(const CollectiveCost& cost) {
  return static_cast<double>(cost.occupancy + cost.traffic) / static_cast<double>(kSlowdownUnit);
}

/// The GEMMs' time beside `count` collectives.
double beside(const CollectiveCost& cost, int count) {
  return kGemmsAlone + count * lost_beside(cost) * static_cast<double>(cost.duration.value) * 1e-6;
}

double measured(const std::string& name) {
  const CsvTable table = testing_cost::csv("h200_overlap.csv");
  const std::size_t names = table.column("collective").value();
  const std::size_t times = table.column("gemms_with_4_collectives_ms").value();
  for (std::size_t row = 0; row < table.rows(); ++row)
    if (table.cell(row, names) == name) return table.number(row, times).value();
  ADD_FAILURE() << name;
  return 0;
}

class Contention : public testing::Test {
 protected:
  CostModel model_ = testing_cost::model_of("h200", 8);
};

TEST_F(Contention, FitsTheRowItWasFittedOn) {
  // 33.15 + 4 * 1.148 ms * 0.465: the table's gather of 416 MiB is a little faster than the one
  // timed beside the GEMMs (1.208 ms), and its memory traffic so much denser.
  const CollectiveCost cost =
      model_.collective(CollectiveKind::all_gather, Bytes(436'000'000), {.ranks = 8});
  EXPECT_NEAR(beside(cost, 4), measured("ag_default"), 0.005 * 35.33);
  EXPECT_NEAR(lost_beside(cost), 0.451, 0.02);
}

TEST_F(Contention, PredictsRowsItHasNotSeen) {
  const CollectiveCost bf16 =
      model_.collective(CollectiveKind::reduce_scatter, Bytes(436'000'000), {.ranks = 8});
  const CollectiveCost fp32 =
      model_.collective(CollectiveKind::reduce_scatter, Bytes(872'000'000), {.ranks = 8});
  RecordProperty("rs_bf16_default_percent",
                 std::to_string(100 * (beside(bf16, 4) / measured("rs_bf16_default") - 1)));
  RecordProperty("rs_fp32_default_percent",
                 std::to_string(100 * (beside(fp32, 4) / measured("rs_fp32_default") - 1)));
  EXPECT_NEAR(beside(bf16, 4), measured("rs_bf16_default"), 0.01 * 35.45);
  EXPECT_NEAR(beside(fp32, 4), measured("rs_fp32_default"), 0.04 * 36.51);
}

TEST_F(Contention, SlowCollectivesTakeLessOfTheMemory) {
  const Bytes bytes(436'000'000);
  const CostModel wide = testing_cost::model_of("h200", 1024);
  const CollectiveCost node = wide.collective(CollectiveKind::all_gather, bytes, {.ranks = 8});
  const CollectiveCost network =
      wide.collective(CollectiveKind::all_gather, bytes, {.ranks = 1024});
  EXPECT_LT(network.traffic, node.traffic);
  EXPECT_EQ(network.occupancy, node.occupancy);
  // What is left at no bandwidth at all are the SMs: 24 / 132.
  const CollectiveCost tiny = wide.collective(CollectiveKind::all_gather, Bytes(64), {.ranks = 8});
  EXPECT_NEAR(lost_beside(tiny), 24.0 / 132, 1e-3);
}

}  // namespace
}  // namespace mfsdp
