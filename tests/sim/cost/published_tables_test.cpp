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
  EXPECT_NE(published.published_prices.find("GEMMs, attention, GEMMs of experts and all-to-alls"),
            std::string::npos);
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

TEST(PublishedTables, PriceProductsOfExpertsAndExchanges) {
  const Gpu own = load_gpu("b200", test::kGpus).value();
  const CostModel costs = costs_of(*with_published_tables(own)).value();
  const auto product = [](std::int64_t experts, std::int64_t rows, std::int64_t n, std::int64_t k,
                          std::int64_t gradient) {
    return Kernel{.kind = KernelKind::grouped_weight_gradient,
                  .operands = {},
                  .attributes = {{"experts", experts},
                                 {"gradient", gradient},
                                 {"k", k},
                                 {"m", experts * rows},
                                 {"n", n}}};
  };
  // Rows of the file, 32 experts of 1024 rows: 2 x 32 x 1024 x 4096 x 7168 = 1.924e12 at 649.8
  // TFLOP/s where gradients are fp32, at 780.6 where they are bf16.
  EXPECT_NEAR(milliseconds(costs, product(32, 1024, 4096, 7168, 4)), 2.961, 0.03);
  EXPECT_NEAR(milliseconds(costs, product(32, 1024, 4096, 7168, 2)), 2.465, 0.03);
  // 1 GiB of which 7 / 8 leave the rank at 537.1 GB/s: 1.749 ms, and the latency.
  const CostModel eight =
      make_cost_model(make_cluster(*with_published_tables(own), 8, 8).value()).value();
  const CollectiveCost exchange =
      eight.collective(CollectiveKind::all_to_all, Bytes(std::int64_t{1} << 30), {.ranks = 8});
  EXPECT_NEAR(static_cast<double>((exchange.duration - exchange.latency).value) / 1e6, 1.749,
              0.002);
}

// Tables of another GPU, scaled: all kernels of a B300 are 1.0138 times as fast.
TEST(PublishedTables, AreScaledFromAnotherGpu) {
  const CostModel b200 =
      costs_of(*with_published_tables(load_gpu("b200", test::kGpus).value())).value();
  const Gpu other = *with_published_tables(load_gpu("b300", test::kGpus).value());
  EXPECT_NE(other.published_prices.find("of b200, scaled"), std::string::npos);
  const CostModel b300 = costs_of(other).value();
  for (const KernelKind kind : {KernelKind::grouped_product, KernelKind::grouped_weight_gradient}) {
    const Kernel kernel{.kind = kind,
                        .operands = {},
                        .attributes = {{"experts", 16}, {"k", 2880}, {"m", 65536}, {"n", 5760}}};
    EXPECT_NEAR(milliseconds(b200, kernel) / milliseconds(b300, kernel), 1.0138, 1e-4);
  }
}

TEST(PublishedTables, LeaveWhatIsNotPublished) {
  const Gpu own = load_gpu("h100", test::kGpus).value();
  const Gpu published = *with_published_tables(own);
  EXPECT_NE(published.tables.gemm, own.tables.gemm);
  EXPECT_EQ(published.tables.attention, own.tables.attention);
  EXPECT_EQ(published.published_prices.find("attention"), std::string::npos);
}

// The scale belongs to the published tables.
TEST(PublishedTables, OfAttentionReplaceThatOfOurOwnKernelsToo) {
  Gpu own = load_gpu("h100", test::kGpus).value();
  EXPECT_EQ(with_published_tables(own)->tables.attention_warpgroups,
            own.tables.attention_warpgroups);
  own.published->attention = own.tables.attention;
  EXPECT_TRUE(with_published_tables(own)->tables.attention_warpgroups.empty());
}

TEST(PublishedTables, AreReadOfEveryGpuThatNamesThem) {
  for (const char* name : {"b200", "a100_80_pcie", "h100", "b300", "gb200", "gb300"})
    EXPECT_TRUE(costs_of(*with_published_tables(load_gpu(name, test::kGpus).value()))) << name;
  const auto none = with_published_tables(load_gpu("h200", test::kGpus).value());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().where, "--tables");
}

TEST(PriceTables, AreTheFilesDefaultUnlessAskedFor) {
  const Gpu b200 = load_gpu("b200", test::kGpus).value();
  const Gpu by_default = with_price_tables(b200, std::nullopt).value();
  EXPECT_EQ(by_default.tables.gemm, b200.published->gemm);
  EXPECT_NE(by_default.priced_by.find("b200 is priced by published tables, its default: 12 "),
            std::string::npos);
  const Gpu asked = with_price_tables(b200, PriceTables::own).value();
  EXPECT_EQ(asked.tables.gemm, b200.tables.gemm);
  EXPECT_EQ(asked.published_prices, "");
  EXPECT_NE(asked.priced_by.find("b200 is priced by its own tables (h200_gemm_bf16.csv, "
                                 "h200_attention_bf16.csv, scaled), as asked for"),
            std::string::npos);
  // A file without a default keeps its own tables, even if others were published.
  const Gpu h100 = with_price_tables(load_gpu("h100", test::kGpus).value(), std::nullopt).value();
  EXPECT_EQ(h100.published_prices, "");
  EXPECT_EQ(h100.priced_by, "");
  EXPECT_FALSE(with_price_tables(load_gpu("h200", test::kGpus).value(), PriceTables::published));
}

}  // namespace
}  // namespace mfsdp
