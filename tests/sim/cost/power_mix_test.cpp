#include "sim/cost/power_mix.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using enum KernelClass;
using testing_cost::number;

/// Times of kernels of each class when only their class runs: the table's rows of one class.
struct Alone {
  double products = 0;
  double forward = 0;
  double backward = 0;
  double copy = 0;
};

TEST(PowerMix, MixturesOfABlockTakeWhatWasMeasured) {
  const CsvTable table = testing_cost::csv("h100_mixtures.csv");
  ASSERT_EQ(table.rows(), 12U);
  const std::size_t last = table.rows() - 1;
  const Alone alone{
      .products = (number(table, 0, "products_ms") + number(table, last, "products_ms")) / 2,
      .forward = number(table, 1, "forward_ms"),
      .backward = number(table, 2, "backward_ms"),
      .copy = number(table, 3, "copy_ms")};
  for (std::size_t row = 4; row < last; ++row) {
    StepWork work;
    PerKernelClass<double>& times = work.alone;
    times[product] = alone.products * number(table, row, "products");
    times[attention_forward] = alone.forward * number(table, row, "forwards");
    times[attention_backward] = alone.backward * number(table, row, "backwards");
    times[memory] = alone.copy * number(table, row, "copies");
    const ClassFactors mix = power_mix(work);
    const auto expect = [&](const char* column, double of_one, KernelClass kind) {
      const double measured = number(table, row, column);
      if (measured > 0) {
        EXPECT_NEAR(mix[kind] * of_one / measured, 1, 0.026) << row << column;
      }
    };
    expect("products_ms", alone.products, product);
    expect("forward_ms", alone.forward, attention_forward);
    expect("backward_ms", alone.backward, attention_backward);
    EXPECT_EQ(mix[memory], 1);
  }
}

TEST(PowerMix, KindsThatRunAloneTakeWhatTheyTakeAlone) {
  for (const KernelClass kind : {product, attention_forward, attention_backward, memory}) {
    StepWork work;
    work.alone[kind] = 5e6;
    EXPECT_DOUBLE_EQ(power_mix(work)[kind], 1);
  }
  StepWork fp8;
  fp8.alone[product] = fp8.fp8 = 5e6;
  EXPECT_DOUBLE_EQ(power_mix(fp8).fp8_product, 1);
  EXPECT_EQ(power_mix({}), ClassFactors{});
}

TEST(IdleClock, WhatAWaitSparesLetsTheRestRise) {
  // 0.82 of 10 ns are spared: c^1.25 - 1 / c = 0.082.
  const double clock = idle_clock(100, 10);
  EXPECT_NEAR(std::pow(clock, 1.25) - 1 / clock, 0.082, 1e-9);
  EXPECT_NEAR(clock, 1.03694, 1e-5);
  EXPECT_GT(idle_clock(100, 20), clock);
  EXPECT_LT(idle_clock(100, 10, 0.5), clock);  // of a lower limit waiting draws more
  EXPECT_EQ(idle_clock(100, 0), 1);
  EXPECT_EQ(idle_clock(0, 100), 1);
  EXPECT_EQ(idle_clock(100, 100), 1.15);
}

TEST(IdleClock, ProductsAtTheLimitAreSlowerThanInBurstsByItsEnd) {
  const CsvTable bursts = testing_cost::csv("h100_products_beside_blocks.csv");
  const CsvTable limited = testing_cost::csv("h200_products_beside_blocks.csv");
  const auto same = [&](std::size_t a, std::size_t b) {
    return std::ranges::all_of(std::array{"kind", "M", "N", "K", "blocks"},
                               [&](const char* column) {
                                 return bursts.cell(a, bursts.column(column).value()) ==
                                        limited.cell(b, limited.column(column).value());
                               });
  };
  double sum = 0;
  int rows = 0;
  for (std::size_t a = 0; a < bursts.rows(); ++a)
    for (std::size_t b = 0; b < limited.rows(); ++b) {
      const double alone = number(limited, b, "solo_ms");
      if (number(limited, b, "blocks") != 8 || !same(a, b) || !is_limited(alone * 1e6)) continue;
      sum += alone / number(bursts, a, "solo_ms");
      ++rows;
    }
  ASSERT_EQ(rows, 9);
  EXPECT_NEAR(sum / rows, 1.15, 0.005);
}

TEST(IdleClock, NoKernelIsFasterThanAtTheHighestClock) {
  ClassFactors mixed;
  mixed.values = {0.9, 1.03, 1.03, 1};
  mixed.fp8_product = 0.85;
  const ClassFactors some = faster(mixed, 1.1);
  EXPECT_DOUBLE_EQ(some[product], 0.9 / 1.1);
  EXPECT_DOUBLE_EQ(some[attention_forward], 1.03 / 1.1);
  EXPECT_DOUBLE_EQ(some.fp8_product, 0.85 / 1.1);
  EXPECT_EQ(some[memory], 1);
  const ClassFactors most = faster(mixed, 1.22);
  EXPECT_DOUBLE_EQ(most[product], 1 / 1.29);
  EXPECT_DOUBLE_EQ(most.fp8_product, 0.96 / 1.29);
  EXPECT_DOUBLE_EQ(most[attention_backward], 1.147 / 1.29);
}

TEST(PowerMix, TheEnergyOfAStepIsThatOfItsParts) {
  StepWork work{.alone = {{600, 30, 90, 50}}};
  const auto step = [&] {
    const ClassFactors mix = power_mix(work);
    double sum = work.fp8 * (mix.fp8_product - mix[product]);
    for (std::size_t kind = 0; kind < kKernelClasses; ++kind)
      sum += work.alone.values[kind] * mix.values[kind];
    return sum;
  };
  EXPECT_NEAR(step(), 600 + 30 + 90 + 0.81 * 50, 1e-9);
  work.fp8 = 400;
  EXPECT_NEAR(step(), 600 + 30 + 90 + 0.81 * 50, 1e-9);
}

TEST(PowerMix, CollectivesTakeTheirEnergyFromTheClock) {
  const StepWork times{.alone = {{600, 30, 90, 50}}};
  const double clock = 1 / power_mix(times)[product];
  const double beside = 1 / power_mix(times, 10)[product];
  // GEMMs and attention, at the clock of GEMMs alone, relative to the power that the limit leaves
  // them.
  EXPECT_NEAR(clock, (600 + 1.147 * 120) / (720 - 0.19 * 50), 1e-9);
  EXPECT_NEAR(beside, (600 + 1.147 * 120) / (720 - 0.19 * 50 + 10), 1e-9);
  EXPECT_EQ(power_mix(times, 1000)[product], 1);
}

TEST(PowerMix, CollectivesGoByTheFourthRootOfTheClock) {
  EXPECT_DOUBLE_EQ(collective_slowdown({{1 / 1.29, 1, 1, 1}}), 1);  // the highest
  EXPECT_DOUBLE_EQ(collective_slowdown({{0.5, 1, 1, 1}}), 1);
  EXPECT_NEAR(collective_slowdown({{1 / 1.04, 1, 1, 1}}), std::pow(1.29 / 1.04, 0.25), 1e-9);
}

TEST(PowerMix, TheClockHasAnEnd) {
  EXPECT_DOUBLE_EQ(power_mix({.alone = {{10, 0, 0, 1000}}})[product], 1 / 1.29);
}

}  // namespace
}  // namespace mfsdp
