#include "sim/hardware/published_tables.hpp"

#include <gtest/gtest.h>

#include "sim/cost/cost_model.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

Result<CostModel> costs_of(const Gpu& gpu) { return make_cost_model(*make_cluster(gpu, 1, 8)); }

double milliseconds(const CostModel& costs, const Kernel& kernel) {
  return static_cast<double>(costs.kernel(kernel).value) / 1e6;
}

TEST(PublishedTables, PriceWhatTheyHave) {
  const Gpu own = load_gpu("b200", test::kGpus).value();
  const Gpu published = *with_published_tables(own);
  EXPECT_EQ(published.gemm_scale, 1);
  EXPECT_EQ(published.attention_scale, 1);
  EXPECT_EQ(published.table_sms, 148);
  EXPECT_EQ(published.calibration, "datasheet");
  EXPECT_NE(published.published_prices.find("products and attention"), std::string::npos);
  EXPECT_EQ(own.published_prices, "");
  const CostModel costs = costs_of(published).value();
  // A row of the file: 4096 x 10240 x 8192 at 1451.6 TFLOP/s, 2 x 343.6e9 / 1451.6e12 = 0.473 ms.
  const Kernel gemm{.kind = KernelKind::gemm,
                    .operands = {},
                    .attributes = {{"k", 8192}, {"kind", 0}, {"m", 4096}, {"n", 10240}}};
  EXPECT_NEAR(milliseconds(costs, gemm), 0.473, 0.01);
  // 32 heads over 8 of 4096 tokens: 0.388 ms backward.
  const Kernel attention{
      .kind = KernelKind::attention_backward,
      .operands = {},
      .attributes = {{"batch", 1}, {"head_dim", 128}, {"heads", 32}, {"seq", 4096}}};
  EXPECT_NEAR(milliseconds(costs, attention), 0.388, 0.02);
}

TEST(PublishedTables, LeaveWhatIsNotPublished) {
  const Gpu own = load_gpu("h100", test::kGpus).value();
  const Gpu published = *with_published_tables(own);
  EXPECT_NE(published.tables.gemm, own.tables.gemm);
  EXPECT_EQ(published.tables.attention, own.tables.attention);
  EXPECT_EQ(published.published_prices.find("attention"), std::string::npos);
}

TEST(PublishedTables, AreReadOfEveryGpuThatNamesThem) {
  for (const char* name : {"b200", "a100_80_pcie", "h100"})
    EXPECT_TRUE(costs_of(*with_published_tables(load_gpu(name, test::kGpus).value()))) << name;
  const auto none = with_published_tables(load_gpu("h200", test::kGpus).value());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().where, "--tables");
}

}  // namespace
}  // namespace mfsdp
