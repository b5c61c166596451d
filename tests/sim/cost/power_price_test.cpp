// Effect of a power limit on prices (sim/hardware/power.hpp).
#include <gtest/gtest.h>

#include <cmath>

#include "sim/cost/cost_model.hpp"
#include "sim/hardware/power.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

TEST(PowerPrice, OnlyProductsAndAttentionTakeLonger) {
  const auto costs = [](double watts) {
    const Gpu gpu = *with_power_limit(load_gpu("h200", test::kGpus).value(), watts);
    return make_cost_model(*make_cluster(gpu, 8, 8)).value();
  };
  const CostModel full = costs(700);
  const CostModel limited = costs(500);
  const auto ratio = [&](const Kernel& kernel) {
    return static_cast<double>(limited.kernel(kernel).value) /
           static_cast<double>(full.kernel(kernel).value);
  };
  const double slower = std::pow(7.0 / 5, 0.875);
  const Kernel gemm{.kind = KernelKind::gemm,
                    .operands = {},
                    .attributes = {{"k", 4096}, {"kind", 0}, {"m", 8192}, {"n", 14336}}};
  EXPECT_NEAR(ratio(gemm), slower, 0.001);
  const Kernel attention{
      .kind = KernelKind::attention_forward,
      .operands = {},
      .attributes = {{"batch", 1}, {"head_dim", 128}, {"heads", 32}, {"seq", 8192}}};
  EXPECT_NEAR(ratio(attention), slower, 0.02);  // it has a fixed part
  const Kernel cast{.kind = KernelKind::cast, .operands = {}, .attributes = {{"bytes", 1 << 30}}};
  EXPECT_EQ(ratio(cast), 1);
  EXPECT_EQ(limited.copy(CopyKind::d2d, Bytes(1 << 30)), full.copy(CopyKind::d2d, Bytes(1 << 30)));
}

}  // namespace
}  // namespace mfsdp
