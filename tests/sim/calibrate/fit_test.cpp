#include "sim/calibrate/fit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/calibrate/errors.hpp"
#include "sim/cost/collective.hpp"
#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

CopySample copy(double bytes, double ns) { return {.bytes = bytes, .ns = ns, .place = "c.csv:2"}; }

TEST(FitCopies, FindsTheLineThatMadeThem) {
  // 5 us + bytes at 0.8 of the H200's 4800 GB/s: 1 GB in 5 + 260.417 us.
  const Gpu gpu = testing_cost::cluster_of("h200", 1).gpu;
  std::vector<CopySample> samples{copy(1e6, 1000)};  // in a cache: not looked at
  for (const double bytes : {2e8, 1e9, 8e9}) samples.push_back(copy(bytes, 5000 + bytes / 3840));
  const auto fit = fit_copies(samples, gpu);
  ASSERT_TRUE(fit) << fit.error().message();
  EXPECT_NEAR(fit->copy_fraction, 0.8, 1e-6);
  EXPECT_EQ(fit->launch, Nanos(5000));
  EXPECT_LT(summarise(fit->errors).worst, 1e-6);
  EXPECT_EQ(fit->left_out.size(), 3u);
}

TEST(FitCopies, KeepsTheLaunchThatFewCopiesDoNotShow) {
  const Gpu gpu = testing_cost::cluster_of("h200", 1).gpu;
  // 3 us of the GPU's own, then 1e9 bytes in 250 us: 4000 of 4800 GB/s.
  const auto fit = fit_copies(std::vector{copy(1e9, 253'000)}, gpu);
  ASSERT_TRUE(fit) << fit.error().message();
  EXPECT_FALSE(fit->launch);
  EXPECT_NEAR(fit->copy_fraction, 4000.0 / 4800, 1e-9);
}

TEST(FitCopies, RefusesWhatNoMemoryDoes) {
  const Gpu gpu = testing_cost::cluster_of("h200", 1).gpu;
  EXPECT_THAT(fit_copies(std::vector{copy(1e6, 10'000)}, gpu).error().message(),
              HasSubstr("c.csv:2: no copy moves 128 MiB or more"));
  EXPECT_THAT(fit_copies(std::vector{copy(1e9, 103'000)}, gpu).error().message(),
              HasSubstr("c.csv:2: copies run at 1e+04 GB/s, but h200 has 4800 GB/s"));
  EXPECT_THAT(fit_copies(std::vector{copy(2e9, 1'000), copy(4e9, 2'000)}, gpu).error().message(),
              HasSubstr("c.csv:2: copies run at 2e+06 GB/s, but h200 has 4800 GB/s"));
  EXPECT_THAT(
      fit_copies(std::vector{copy(2e9, 2'000'000), copy(6e9, 1'000'000)}, gpu).error().message(),
      HasSubstr("c.csv:2: copies run at 6000 GB/s, but h200 has 4800 GB/s"));
}

TEST(FitNetwork, FindsTheNicsThatMadeTheSamples) {
  const std::vector<CollectiveRow> table = testing_cost::h200_tables().collective;
  Cluster cluster = testing_cost::cluster_of("h100", 32);
  Cluster truth = cluster;
  truth.nic_bandwidth = 22;
  truth.nic_latency = Nanos(9000);
  const CollectiveModel model(table, truth);
  std::vector<CollectiveSample> samples;
  for (const std::int64_t ranks : {16, 32})
    for (std::int64_t bytes = 1024; bytes <= (std::int64_t{1} << 33); bytes *= 8)
      for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::all_reduce})
        samples.push_back({.kind = kind,
                           .ranks = ranks,
                           .nodes = ranks / 8,
                           .bytes = Bytes(bytes),
                           .ns = static_cast<double>(
                               model.cost(kind, Bytes(bytes), {.ranks = ranks}).duration.value),
                           .place = ""});
  const NetworkFit fit = fit_network(samples, table, cluster);
  EXPECT_NEAR(fit.nic_bandwidth, 22, 22 * 0.01);
  EXPECT_NEAR(static_cast<double>(fit.nic_latency.value), 9000, 300);
  EXPECT_LT(summarise(fit.errors).worst, 0.02);
  EXPECT_EQ(fit.left_out.size(), samples.size());
  EXPECT_LT(summarise(fit.left_out).worst, 0.03);
}

}  // namespace
}  // namespace mfsdp
