#include "sim/cost/network_ratios.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

class NetworkRatiosTest : public testing::Test {
 protected:
  /// A sample that takes `ratio` times the modelled time.
  CollectiveSample off_by(double ratio, std::int64_t mebibytes, std::int64_t ranks = 16) const {
    const Bytes bytes(mebibytes * kMebibyte);
    const CollectiveCost cost = model_.cost(CollectiveKind::all_gather, bytes, {.ranks = ranks});
    return {.kind = CollectiveKind::all_gather,
            .ranks = ranks,
            .nodes = ranks / 8,
            .bytes = bytes,
            .ns = ratio * static_cast<double>(cost.duration.value),
            .place = ""};
  }

  double at(const std::vector<CollectiveSample>& samples, double mebibytes,
            const CommunicatorShape& shape,
            CollectiveKind kind = CollectiveKind::all_gather) const {
    return NetworkRatios(samples, model_, cluster_).at(kind, mebibytes * kMebibyte, shape);
  }

  Cluster cluster_ = testing_cost::cluster_of("h100", 64);
  CollectiveModel model_{testing_cost::h200_tables().collective, cluster_};
};

TEST_F(NetworkRatiosTest, IsLinearBetweenSizesAndConstantBeyond) {
  const std::vector<CollectiveSample> samples{off_by(3, 5), off_by(2, 1), off_by(1.5, 9)};
  EXPECT_DOUBLE_EQ(at(samples, 1, {.ranks = 16}), 2);
  EXPECT_DOUBLE_EQ(at(samples, 2, {.ranks = 16}), 2.25);  // a quarter of the way from 2 to 3
  EXPECT_DOUBLE_EQ(at(samples, 5, {.ranks = 16}), 3);
  EXPECT_DOUBLE_EQ(at(samples, 0.001, {.ranks = 16}), 2);
  EXPECT_DOUBLE_EQ(at(samples, 1000, {.ranks = 16}), 1.5);
  EXPECT_DOUBLE_EQ(at({off_by(2, 1), off_by(3, 1)}, 1, {.ranks = 16}), 2.5);
}

TEST_F(NetworkRatiosTest, TakesTheCurveOfTheNearestRanks) {
  const std::vector<CollectiveSample> samples{off_by(2, 1, 16), off_by(3, 1, 64)};
  EXPECT_DOUBLE_EQ(at(samples, 1, {.ranks = 24}), 2);  // 1.5 times 16, 64 is 2.7 times 24
  EXPECT_DOUBLE_EQ(at(samples, 1, {.ranks = 48}), 3);
  EXPECT_DOUBLE_EQ(at(samples, 1, {.ranks = 1024}), 3);
}

TEST_F(NetworkRatiosTest, SaysNothingOfWhatWasNotMeasured) {
  const std::vector<CollectiveSample> samples{off_by(2, 1)};
  EXPECT_EQ(at(samples, 1, {.ranks = 16}, CollectiveKind::reduce_scatter), 1);
  EXPECT_EQ(at(samples, 1, {.ranks = 8, .spacing = 8}), 1);
  EXPECT_EQ(at({}, 1, {.ranks = 16}), 1);
  CollectiveSample inside = off_by(2, 1);
  inside.ranks = 8;  // a domain
  EXPECT_TRUE(NetworkRatios(std::vector{inside}, model_, cluster_).empty());
  inside.ranks = 12;  // one and a half
  EXPECT_TRUE(NetworkRatios(std::vector{inside}, model_, cluster_).empty());
}

TEST_F(NetworkRatiosTest, PricesTheNetworkAlone) {
  CostTables tables = testing_cost::h200_tables();
  const CostModel plain(cluster_, tables);
  tables.network = {off_by(2, 1)};
  const CostModel measured(cluster_, tables);
  EXPECT_FALSE(plain.network_measures(CollectiveKind::all_gather));
  EXPECT_TRUE(measured.network_measures(CollectiveKind::all_gather));
  EXPECT_FALSE(measured.network_measures(CollectiveKind::reduce_scatter));
  const auto price = [](const CostModel& costs, std::int64_t ranks) {
    return costs.collective(CollectiveKind::all_gather, Bytes(kMebibyte), {.ranks = ranks})
        .duration.value;
  };
  EXPECT_NEAR(static_cast<double>(price(measured, 16)), 2 * static_cast<double>(price(plain, 16)),
              1);
  EXPECT_EQ(price(measured, 8), price(plain, 8));
}

RC_GTEST_FIXTURE_PROP(NetworkRatiosTest, StaysBetweenItsRatios, ()) {
  const std::vector<CollectiveSample> samples{off_by(2, 1), off_by(0.5, 64), off_by(3, 1024)};
  const auto kibibytes = *rc::gen::inRange(0, 1 << 24);
  const double ratio = at(samples, kibibytes / 1024.0, {.ranks = 16});
  RC_ASSERT(ratio >= 0.5 - 1e-12);
  RC_ASSERT(ratio <= 3 + 1e-12);
}

}  // namespace
}  // namespace mfsdp
