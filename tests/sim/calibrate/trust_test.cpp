#include "sim/calibrate/trust.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

class TrustOf : public testing::Test {
 protected:
  static Trust of(const std::string& gpu, std::int64_t gpus,
                  const std::optional<Anchor>& anchor = {}) {
    // 80 ms of compute, 10 of them contention, 10 exposed: a step of 90.
    TimeSummary time;
    time.step = Nanos(90'000'000);
    time.compute = Nanos(80'000'000);
    time.exposed_communication = Nanos(10'000'000);
    time.contention = Nanos(10'000'000);
    return trust_of(testing_cost::model_of(gpu, gpus),
                    {.kernel = 0.01, .collective = 0.05, .contention = 0.25}, time, anchor);
  }
};

TEST_F(TrustOf, AMeasuredGpuIsCalibratedInsideItsDomain) {
  const Trust trust = of("h200", 8);
  EXPECT_EQ(trust.tier, Tier::calibrated);
  EXPECT_EQ(trust.calibration, "measured");
  // (80 * 0.01 + 10 * 0.25 + 10 * 0.05) / 90 = 3.8 / 90
  EXPECT_NEAR(trust.expected_step_error, 3.8 / 90, 1e-12);
  EXPECT_THAT(trust.text, HasSubstr("calibrated by micro-benchmarks: step within about 4.2 %"));
}

TEST_F(TrustOf, ANetworkThatNobodyMeasuredIsADatasheet) {
  const Trust trust = of("h200", 16);
  EXPECT_EQ(trust.tier, Tier::datasheet);
  EXPECT_EQ(trust.expected_step_error, 0.147);
  EXPECT_THAT(trust.text, HasSubstr("datasheet only: step within 14.7 % at best; not measured: "
                                    "network"));
  const Trust other = of("h100", 8);
  EXPECT_EQ(other.expected_step_error, 0.084);
  EXPECT_THAT(other.text, HasSubstr("not measured: GEMM, attention, collectives"));
  EXPECT_EQ(other.calibration, "datasheet");
}

TEST_F(TrustOf, AnAnchorCountsMost) {
  Anchor anchor;
  anchor.run = "r";
  anchor.after = -0.01;
  const Trust trust = of("h100", 16, anchor);
  EXPECT_EQ(trust.tier, Tier::anchored);
  EXPECT_EQ(trust.calibration, "anchored");
  EXPECT_NEAR(trust.expected_step_error, 0.01 + 3.8 / 90, 1e-12);
  EXPECT_THAT(trust.text, HasSubstr("anchored by a measured run: step within about 5.2 %; run r"));
}

TEST(PriceErrors, AreFidelitys) {
  const CostTables tables = testing_cost::h200_tables();
  const PriceErrors errors = price_errors(tables, testing_cost::cluster_of("h200", 8));
  EXPECT_NEAR(errors.kernel, 0.01164, 1e-4);  // GEMM, all, leave-one-out of --fidelity
  EXPECT_GT(errors.collective, 0.01);
  EXPECT_LT(errors.collective, 0.10);
}

}  // namespace
}  // namespace mfsdp
