#include "sim/cost/gemm.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

GemmShape shape_of(const GemmRow& row) {
  return {.kind = row.kind,
          .m = static_cast<std::int64_t>(row.m),
          .n = static_cast<std::int64_t>(row.n),
          .k = static_cast<std::int64_t>(row.k)};
}

double measured_ns(const GemmRow& row) { return 2 * row.m * row.n * row.k / row.flops_per_ns; }

class GemmCostTest : public testing::Test {
 protected:
  CostTables tables_ = testing_cost::h200_tables();
  Gpu gpu_ = testing_cost::cluster_of("h200", 8).gpu;
  GemmCost cost_{tables_.gemm, gpu_};
};

TEST_F(GemmCostTest, ReproducesEveryRow) {
  for (const GemmRow& row : tables_.gemm) {
    const double measured = measured_ns(row);
    EXPECT_NEAR(cost_.nanoseconds(shape_of(row), false), measured, measured * 1e-3)
        << row.m << " " << row.n << " " << row.k;
  }
}

TEST_F(GemmCostTest, ShippedTimesAgreeWithTheirRates) {
  // fwd 8192 x 28672 x 4096: 2 mnk = 1.9242e12 FLOP at 656.0 TFLOP/s = 2.9332 ms, table 2.9331.
  EXPECT_NEAR(cost_.nanoseconds({.m = 8192, .n = 28672, .k = 4096}, false), 2'933'200, 1000);
}

// Each row predicted from the others must beat the best constant rate, per kind.
TEST_F(GemmCostTest, LeaveOneOutBeatsTheBestConstant) {
  for (const GemmKind kind : {GemmKind::forward, GemmKind::dgrad, GemmKind::wgrad}) {
    std::vector<double> rates;
    double error = 0;
    for (std::size_t i = 0; i < tables_.gemm.size(); ++i) {
      const GemmRow row = tables_.gemm[i];
      if (row.kind != kind) continue;
      std::vector<GemmRow> others = tables_.gemm;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      const double predicted = GemmCost(others, gpu_).nanoseconds(shape_of(row), false);
      error += std::abs(predicted / measured_ns(row) - 1);
      rates.push_back(row.flops_per_ns);
    }
    double best = 1;
    for (const double constant : rates) {
      double sum = 0;
      for (const double rate : rates) sum += std::abs(rate / constant - 1);
      best = std::min(best, sum / static_cast<double>(rates.size()));
    }
    error /= static_cast<double>(rates.size());
    RecordProperty("leave_one_out_percent_" + std::to_string(static_cast<int>(kind)),
                   std::to_string(100 * error));
    EXPECT_LT(error, best);
    EXPECT_LT(error, 0.025);
  }
}

TEST_F(GemmCostTest, FewTilesLeaveSmsIdle) {
  // [128, 256] output over k = 1024 is one tile, on one of 132 SMs. Its rate is an average of the
  // table's, which all lie from 608 to 692 TFLOP/s: 67.1e6 FLOP * 132 / 650e3 = 13.6 us.
  const double one = cost_.nanoseconds({.m = 128, .n = 256, .k = 1024}, false);
  EXPECT_NEAR(one, 13'600, 1'000);
  // 132 such tiles side by side take as long.
  EXPECT_NEAR(cost_.nanoseconds({.m = 128 * 132, .n = 256, .k = 1024}, false), one, one * 0.1);
  // A long reduction is split: m = 16384 tokens into a [128, 256] weight gradient is 8 slices, so
  // 16 times the FLOPs of m = 1024 take only twice as long.
  const double gradient =
      cost_.nanoseconds({.kind = GemmKind::wgrad, .m = 1024, .n = 128, .k = 256}, false);
  EXPECT_NEAR(cost_.nanoseconds({.kind = GemmKind::wgrad, .m = 16384, .n = 128, .k = 256}, false),
              2 * gradient, gradient * 0.2);
}

TEST_F(GemmCostTest, RowsFillWholeTiles) {
  // One token costs what 128 do, up to the rates' spread.
  const double one = cost_.nanoseconds({.m = 1, .n = 4096, .k = 4096}, false);
  EXPECT_NEAR(one, cost_.nanoseconds({.m = 128, .n = 4096, .k = 4096}, false), one * 0.1);
}

TEST_F(GemmCostTest, Fp32RunsAtItsShareOfThePeak) {
  const GemmShape shape{.m = 8192, .n = 4096, .k = 4096};
  EXPECT_NEAR(cost_.nanoseconds(shape, true) / cost_.nanoseconds(shape, false), 989.0 / 67, 1e-9);
}

TEST_F(GemmCostTest, OtherGpusScale) {
  const GemmShape shape{.m = 8192, .n = 4096, .k = 4096};
  const Gpu b200 = testing_cost::cluster_of("b200", 8).gpu;  // 1745 / 794 = 2.1977
  EXPECT_NEAR(
      cost_.nanoseconds(shape, false) / GemmCost(tables_.gemm, b200).nanoseconds(shape, false),
      1745.0 / 794, 1e-3);
}

RC_GTEST_FIXTURE_PROP(GemmCostTest, ALargerDimIsNotFaster, ()) {
  GemmShape shape{.kind = static_cast<GemmKind>(*rc::gen::inRange(0, 3)),
                  .m = *rc::gen::inRange(1, 1 << 17),
                  .n = *rc::gen::inRange(1, 1 << 17),
                  .k = *rc::gen::inRange(1, 1 << 17)};
  const double before = cost_.nanoseconds(shape, false);
  RC_ASSERT(before > 0);
  // Idle SMs can take 8 times the work at no cost; beyond that only rates differ, which
  // interpolation keeps within the table's 588 to 699 TFLOP/s.
  std::int64_t& dim = **rc::gen::element(&shape.m, &shape.n, &shape.k);
  dim *= 8;
  RC_ASSERT(cost_.nanoseconds(shape, false) > before * 0.84);
}

}  // namespace
}  // namespace mfsdp
