#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/predict/routing.hpp"
#include "sim/predict/routing_file.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// 512 tokens of two choices each: 1024 rows from each of four ranks, 256 to each in balance. Two
/// experts a rank; blocks 1 and 2 have them.
PlanConfig four_ranks() {
  PlanConfig config;
  config.model.layers = 3;
  config.model.dense_layers = {0};
  config.model.experts = 8;
  config.model.experts_per_token = 2;
  config.seq_len = 512;
  config.expert_parallel = 4;
  return config;
}

Routing counted(std::vector<std::vector<std::int64_t>> counts) {
  return {.text = "counts.json", .zipf = {}, .counts = std::move(counts), .blocks = {}};
}

std::string refusal(const Routing& routing, const PlanConfig& config = four_ranks()) {
  const auto blocks = routed_blocks(routing, config);
  return blocks ? "none" : blocks.error().message();
}

/// The third of 10 rows ends at 3.3, two thirds at 6.7: rounded 3 and 7.
TEST(Routing, RowsAreWithinOneOfTheirShareWhereverTheyEnd) {
  EXPECT_THAT(rows_by_weight({1, 1, 1}, 10), ElementsAre(3, 4, 3));
  EXPECT_THAT(rows_by_weight({0, 5, 0, 5}, 8), ElementsAre(0, 4, 0, 4));
}

/// 1, 1/2, 1/3, 1/4 are 12, 6, 4, 3 of 25.
TEST(Routing, ZipfsShares) {
  EXPECT_THAT(rows_by_weight(zipf_weights(1, 4, 1), 100), ElementsAre(48, 24, 16, 12));
  EXPECT_THAT(rows_by_weight(zipf_weights(0, 4, 2), 100), ElementsAre(25, 25, 25, 25));
}

/// Two choices, by 1, 1/4, 1/9, 1/16: the first would have 70 % of all, and has each token once,
/// half of all. The other half is the others', 36 : 16 : 9 of 61: 59.02, 26.2, 14.8 of 100.
TEST(Routing, AnExpertHasATokenOnce) {
  EXPECT_THAT(rows_by_weight(zipf_weights(2, 4, 2), 200), ElementsAre(100, 59, 26, 15));
  EXPECT_THAT(rows_by_weight(zipf_weights(10, 4, 4), 400), ElementsAre(100, 100, 100, 100));
}

/// Rank 0 has 4 * 300 and 4 * 200 rows, in tiles of 128 1280 and 896.
TEST(Routing, TheSlowestRankAndWhatItNeeds) {
  const PlanConfig config = four_ranks();
  const Routing routing = counted({{300, 200, 100, 100, 100, 100, 100, 24}});
  const auto blocks = routed_blocks(routing, config);
  ASSERT_TRUE(blocks) << blocks.error().message();
  ASSERT_EQ(blocks->size(), 2U);
  EXPECT_EQ(blocks->front().block, 1);
  EXPECT_THAT(rows_on_rank(blocks->front(), config, 0).rows, ElementsAre(1200, 800));
  const RoutingReport report = routing_report(routing, *blocks, config);
  EXPECT_EQ(report.slowest_rank, 0);
  EXPECT_FALSE(report.slowest_block);
  EXPECT_EQ(report.rows, 2000);
  EXPECT_EQ(report.mean_rows, 1024);
  EXPECT_EQ(report.tiled_rows, 1280 + 896);
  EXPECT_DOUBLE_EQ(report.imbalance, 2000.0 / 1024);
  EXPECT_EQ(report.busiest_expert, 0);
  EXPECT_DOUBLE_EQ(report.expert_imbalance, 300.0 / 128);
  ASSERT_TRUE(report.room);
  EXPECT_EQ(report.room->needed, 500);
  EXPECT_EQ(report.room->rows, 1024);  // --capacity-factor 0: for all
  EXPECT_TRUE(report.room->holds);
  // 1.949219 * 256 = 499.00006, rounded up 500; 1.949218 * 256 = 498.9998, rounded up 499.
  EXPECT_EQ(report.room->least_factor, (Rational{1'949'219, 1'000'000}));
}

TEST(Routing, TheLeastFactorHoldsAndNoLesserOne) {
  PlanConfig config = four_ranks();
  for (const std::int64_t rows : {257, 300, 511, 512, 1000, 1024}) {
    config.capacity_factor = least_capacity_factor(rows, config);
    EXPECT_GE(config.rows_per_peer(), rows);
    const Rational least = config.capacity_factor;
    config.capacity_factor = {.num = least.num * (1'000'000 / least.den) - 1, .den = 1'000'000};
    EXPECT_LT(config.rows_per_peer(), rows);
  }
  EXPECT_EQ(least_capacity_factor(100, config), (Rational{1, 1}));
  EXPECT_EQ(least_capacity_factor(256, config), (Rational{1, 1}));
}

/// 126 + 130 rows are three tiles, 128 + 128 two.
TEST(Routing, TheSlowestHasTheMostTiles) {
  PlanConfig config = four_ranks();
  config.expert_parallel = 2;
  config.model.experts = 4;
  const RoutedBlock block{.block = 0, .rows = {64, 64, 63, 65}};  // twice, of two ranks
  EXPECT_EQ(rows_on_rank(block, config, 1).tiled(), 3 * 128);
  EXPECT_EQ(slowest_rank(block, config), 1);
}

TEST(Routing, BlocksDiffer) {
  const Routing routing = counted({{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 3, 3}});
  const auto blocks = routed_blocks(routing, four_ranks());
  ASSERT_TRUE(blocks) << blocks.error().message();
  const RoutingReport report = routing_report(routing, *blocks, four_ranks());
  EXPECT_EQ(report.slowest_block, 2);
  EXPECT_EQ(report.slowest_rank, 3);
  EXPECT_EQ(report.rows, 4 * 1024 / 2);  // 6 of 12 parts, from four ranks
  EXPECT_EQ(report.busiest_expert, 6);
}

TEST(Routing, OneRankHasAllExperts) {
  PlanConfig config = four_ranks();
  config.expert_parallel = 0;
  Routing routing;
  routing.zipf = 0.0;
  const auto blocks = routed_blocks(routing, config);
  ASSERT_TRUE(blocks);
  const RoutingReport report = routing_report(routing, *blocks, config);
  EXPECT_EQ(report.rows, 1024);
  EXPECT_EQ(report.tiled_rows, 1024);
  EXPECT_DOUBLE_EQ(report.imbalance, 1);
  EXPECT_FALSE(report.room);
}

TEST(Routing, Refusals) {
  EXPECT_THAT(refusal(counted({{1, 2, 3}})),
              HasSubstr("expected 8 counts, one for each of the model's experts, got 3"));
  EXPECT_THAT(refusal(counted({{0, 0, 0, 0, 0, 0, 0, 0}})), HasSubstr("at least one expert"));
  EXPECT_THAT(refusal(counted({{8, 1, 1, 1, 1, 1, 1, 1}})), HasSubstr("expert 0 has 8 of 15"));
  const std::vector<std::int64_t> even(8, 1);
  EXPECT_THAT(refusal(counted({even, even, even})), HasSubstr("model's 2 with experts, got 3"));
  Routing other = counted({even, even});
  other.blocks = {0, 1};
  EXPECT_THAT(refusal(other), HasSubstr("has counts of block 0; expected block 1"));
  PlanConfig dense;
  EXPECT_EQ(refusal({}, dense),
            "--routing: expected none: the model has no experts, got 'balanced'");
}

TEST(RoutingFile, JsonAndCsv) {
  EXPECT_THAT(read_routing("[3, 1]", "f")->counts, ElementsAre(ElementsAre(3, 1)));
  EXPECT_THAT(read_routing(R"({"counts": [[3, 1], [2, 2]]})", "f")->counts,
              ElementsAre(ElementsAre(3, 1), ElementsAre(2, 2)));
  EXPECT_THAT(read_routing("expert,tokens\n1,1\n0,3\n", "f")->counts,
              ElementsAre(ElementsAre(3, 1)));
  const auto routing = read_routing("block,expert,tokens\n4,0,3\n4,1,1\n2,0,2\n2,1,2\n", "f");
  ASSERT_TRUE(routing) << routing.error().message();
  EXPECT_THAT(routing->counts, ElementsAre(ElementsAre(2, 2), ElementsAre(3, 1)));
  EXPECT_THAT(routing->blocks, ElementsAre(2, 4));
}

TEST(RoutingFile, Refusals) {
  const auto message = [](const char* text) {
    const auto routing = read_routing(text, "f");
    return routing ? std::string("none") : routing.error().message();
  };
  EXPECT_THAT(message("[1, -2]"), HasSubstr("f[1]: expected tokens of an expert"));
  EXPECT_THAT(message("[1, 2.5]"), HasSubstr("got 2.5"));
  EXPECT_THAT(message("[[1, 2], 3]"), HasSubstr("f[1]: expected a list"));
  EXPECT_THAT(message("[]"), HasSubstr("expected a list of tokens by expert"));
  EXPECT_THAT(message(R"({"tokens": [1]})"), HasSubstr("\"counts\""));
  EXPECT_THAT(message("expert,tokens\n0,1\n2,1\n"), HasSubstr("no tokens of expert 1"));
  EXPECT_THAT(message("expert,tokens\n0,1\n0,1\n"), HasSubstr("f:3: expert 0 occurs twice"));
  EXPECT_THAT(message("expert,tokens\n0,-1\n"), HasSubstr("f:2: column tokens has \"-1\""));
  EXPECT_THAT(message("expert,share\n0,1\n"), HasSubstr("no column \"tokens\""));
  EXPECT_THAT(message(""), HasSubstr("holds no table"));
}

}  // namespace
}  // namespace mfsdp
