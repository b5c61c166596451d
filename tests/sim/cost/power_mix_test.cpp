#include "sim/cost/power_mix.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using enum KernelClass;

double value_of(const CsvTable& table, std::size_t row, const char* column) {
  return std::stod(table.cell(row, table.column(column).value()));
}

/// Of one of each kind when it runs alone: the table's rows of one kind.
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
      .products = (value_of(table, 0, "products_ms") + value_of(table, last, "products_ms")) / 2,
      .forward = value_of(table, 1, "forward_ms"),
      .backward = value_of(table, 2, "backward_ms"),
      .copy = value_of(table, 3, "copy_ms")};
  for (std::size_t row = 4; row < last; ++row) {
    PerKernelClass<double> times;
    times[product] = alone.products * value_of(table, row, "products");
    times[attention_forward] = alone.forward * value_of(table, row, "forwards");
    times[attention_backward] = alone.backward * value_of(table, row, "backwards");
    times[memory] = alone.copy * value_of(table, row, "copies");
    const ClassFactors mix = power_mix(times);
    const auto expect = [&](const char* column, double of_one, KernelClass kind) {
      const double measured = value_of(table, row, column);
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
    PerKernelClass<double> times;
    times[kind] = 5e6;
    EXPECT_DOUBLE_EQ(power_mix(times)[kind], 1);
  }
  EXPECT_EQ(power_mix({}), (ClassFactors{{1, 1, 1, 1}}));
}

TEST(PowerMix, TheEnergyOfAStepIsThatOfItsParts) {
  PerKernelClass<double> times{{600, 30, 90, 50}};
  const ClassFactors mix = power_mix(times);
  double step = 0;
  for (std::size_t kind = 0; kind < kKernelClasses; ++kind)
    step += times.values[kind] * mix.values[kind];
  EXPECT_NEAR(step, 600 + 30 + 90 + 0.81 * 50, 1e-9);
}

TEST(PowerMix, TheClockHasAnEnd) {
  PerKernelClass<double> times{{10, 0, 0, 1000}};
  EXPECT_DOUBLE_EQ(power_mix(times)[product], 1 / 1.29);
}

}  // namespace
}  // namespace mfsdp
