#include "sim/hardware/power.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

Gpu h200() { return load_gpu("h200", test::kGpus).value(); }

TEST(Power, RatesFallAlmostAsTheLimitDoes) {
  EXPECT_EQ(power_rate(h200()), 1);
  // (5/7)^(7/8) = 0.745; public runs at 500 W are at about 0.75.
  EXPECT_NEAR(power_rate(*with_power_limit(h200(), 500)), std::pow(5.0 / 7, 0.875), 1e-12);
  EXPECT_NEAR(power_rate(*with_power_limit(h200(), 500)), 0.75, 0.01);
  // 10 to 15 % longer steps are published at 600 W.
  EXPECT_NEAR(power_rate(*with_power_limit(h200(), 600)), 0.874, 0.001);
}

TEST(Power, BelowItsTablesLimitNothingIsMeasured) {
  const Gpu same = *with_power_limit(h200(), 700);
  EXPECT_EQ(same.calibration, "measured");
  EXPECT_EQ(power_statement(same), "");
  const Gpu limited = *with_power_limit(h200(), 500);
  EXPECT_EQ(limited.calibration, "datasheet");
  EXPECT_FALSE(limited.measured.gemm);
  EXPECT_FALSE(limited.measured.attention);
  EXPECT_TRUE(limited.measured.collective);
  EXPECT_NE(power_statement(limited).find("power limit 500 W"), std::string::npos);
}

TEST(Power, RefusesLimitsThatNothingIsKnownOf) {
  for (const double watts : {701.0, 244.0}) {
    const auto limited = with_power_limit(h200(), watts);
    ASSERT_FALSE(limited);
    EXPECT_EQ(limited.error().where, "--power-limit");
    EXPECT_NE(limited.error().what.find("expected 245 to 700"), std::string::npos);
  }
  EXPECT_TRUE(check_power_is_stated(h200()));
  Gpu unknown = h200();
  unknown.power.reset();
  EXPECT_FALSE(with_power_limit(unknown, 500));
  EXPECT_EQ(power_rate(unknown), 1);
}

TEST(Power, IsAskedForWhereTheOwnerSetsIt) {
  const Gpu gpu = load_gpu("gh200_96", test::kGpus).value();
  const auto asked = check_power_is_stated(gpu);
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().message(),
            "--power-limit: is needed for gh200_96: its owner sets the limit, 450 to 1000 W; "
            "nvidia-smi shows it (Pwr:Usage/Cap)");
  EXPECT_LT(power_rate(*with_power_limit(gpu, 600)), 1);
  const Gpu most = *with_power_limit(gpu, 900);
  EXPECT_EQ(power_rate(most), 1);
  EXPECT_EQ(power_statement(most),
            "power limit 900 W: priced as at 700 W, above which nothing is known");
  EXPECT_FALSE(with_power_limit(gpu, 1001));
}

TEST(Power, AFileSaysBothLimitsOrNone) {
  const Gpu gpu = load_gpu("h100_96_500w", test::kGpus).value();
  EXPECT_EQ(gpu.power, (PowerLimits{.own = 500, .tables = 700}));
  EXPECT_NEAR(power_rate(gpu), 0.745, 0.001);
}

}  // namespace
}  // namespace mfsdp
