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
  const NetworkFit fit = fit_network(samples, table, cluster, cluster.nic_bandwidth);
  EXPECT_EQ(fit.bound, NicBound::samples);
  EXPECT_TRUE(fit.shows_latency);
  EXPECT_NEAR(fit.nic_bandwidth, 22, 22 * 0.01);
  EXPECT_NEAR(static_cast<double>(fit.nic_latency.value), 9000, 300);
  EXPECT_LT(summarise(fit.errors).worst, 0.02);
  EXPECT_EQ(fit.left_out.size(), samples.size());
  EXPECT_LT(summarise(fit.left_out).worst, 0.03);
}

/// Gathers of two nodes of eight H100, 64 MiB to 8 GiB, with this large messages' bus bandwidth.
std::vector<CollectiveSample> gathers_of_two_nodes(double bus_gb_per_s, double fixed_ns) {
  std::vector<CollectiveSample> samples;
  for (std::int64_t bytes = std::int64_t{1} << 26; bytes <= (std::int64_t{1} << 33); bytes *= 2)
    samples.push_back({.kind = CollectiveKind::all_gather,
                       .ranks = 16,
                       .nodes = 2,
                       .bytes = Bytes(bytes),
                       .ns = fixed_ns + static_cast<double>(bytes) * 15 / 16 / bus_gb_per_s,
                       .place = ""});
  return samples;
}

/// 340 GB/s is within what eight NICs of 50 GB/s carry in the model, 355 above it, and above what
/// the links inside the nodes do: both NICs are of 50 GB/s.
TEST(FitNetwork, NoNicPassesItsLineRate) {
  const std::vector<CollectiveRow> table = testing_cost::h200_tables().collective;
  const Cluster cluster = testing_cost::cluster_of("h100", 16);
  for (const double bus : {340.0, 355.0, 420.0}) {
    const NetworkFit fit =
        fit_network(gathers_of_two_nodes(bus, 60'000), table, cluster, cluster.nic_bandwidth);
    EXPECT_LE(fit.nic_bandwidth, 50) << bus;
    EXPECT_GT(fit.nic_bandwidth, 48) << bus;
    EXPECT_TRUE(bus < 350 || fit.bound == NicBound::line_rate) << bus;
    // 64 MiB take 250 us: a latency of 2 us does not show.
    EXPECT_FALSE(fit.shows_latency && fit.nic_latency < cluster.nic_latency) << bus;
  }
}

/// PCIe of the L40S carries less than eight NICs of 50 GB/s: how fast these are does not show.
TEST(FitNetwork, ATestThatTheLinkBoundsShowsTheLeastOfANic) {
  const std::vector<CollectiveRow> table = testing_cost::h200_tables().collective;
  Cluster cluster = testing_cost::cluster_of("l40s", 16);
  cluster.nics_per_node = 8;
  cluster.nic_bandwidth = 50;
  const CollectiveModel model(table, cluster);
  std::vector<CollectiveSample> samples = gathers_of_two_nodes(1, 0);
  for (CollectiveSample& sample : samples)
    sample.ns = static_cast<double>(
        model.cost(sample.kind, sample.bytes, {.ranks = sample.ranks}).duration.value);
  const NetworkFit fit = fit_network(samples, table, cluster, cluster.nic_bandwidth);
  EXPECT_EQ(fit.bound, NicBound::link);
  EXPECT_EQ(fit.nic_bandwidth, 50);
  EXPECT_GT(fit.least_bandwidth, 0.5);
  EXPECT_LT(fit.least_bandwidth, 25);
  // Slower NICs than that fit worse.
  Cluster slower = cluster;
  slower.nic_bandwidth = fit.least_bandwidth / 2;
  const CollectiveCost cost =
      CollectiveModel(table, slower)
          .cost(CollectiveKind::all_gather, samples.back().bytes, {.ranks = 16});
  EXPECT_GT(static_cast<double>(cost.duration.value), 1.05 * samples.back().ns);
}

TEST(FitNetwork, SmallMessagesShowALatencyAlone) {
  const std::vector<CollectiveRow> table = testing_cost::h200_tables().collective;
  const Cluster cluster = testing_cost::cluster_of("h100", 16);
  Cluster truth = cluster;
  truth.nic_latency = Nanos(8000);
  const CollectiveModel model(table, truth);
  std::vector<CollectiveSample> samples;
  for (std::int64_t bytes = 1024; bytes <= 16384; bytes *= 2)
    samples.push_back(
        {.kind = CollectiveKind::all_gather,
         .ranks = 16,
         .nodes = 2,
         .bytes = Bytes(bytes),
         .ns = static_cast<double>(
             model.cost(CollectiveKind::all_gather, Bytes(bytes), {.ranks = 16}).duration.value),
         .place = ""});
  const NetworkFit fit = fit_network(samples, table, cluster, cluster.nic_bandwidth);
  EXPECT_EQ(fit.bound, NicBound::latency);
  EXPECT_EQ(fit.nic_latency, Nanos(8000));
}

}  // namespace
}  // namespace mfsdp
