#include "sim/calibrate/collective_table.hpp"

#include <gtest/gtest.h>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

CollectiveSample gather(std::int64_t ranks, std::int64_t mebibytes, double ns) {
  return {.kind = CollectiveKind::all_gather,
          .ranks = ranks,
          .nodes = 1,
          .bytes = Bytes(mebibytes * kMebibyte),
          .ns = ns,
          .place = ""};
}

class CompleteTable : public testing::Test {
 protected:
  double base_ns(CollectiveKind kind, std::int64_t mebibytes, std::int64_t ranks) {
    return static_cast<double>(
        base_.cost(kind, Bytes(mebibytes * kMebibyte), {.ranks = ranks}).duration.value);
  }

  CollectiveModel base_{testing_cost::h200_tables().collective,
                        testing_cost::cluster_of("h200", 8)};
};

TEST_F(CompleteTable, AveragesRunsOfOneSize) {
  const auto curves = curves_of(std::vector{gather(8, 4, 100), gather(4, 1, 7), gather(8, 1, 30),
                                            gather(8, 4, 200), gather(8, 4, 600)});
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0].ranks, 4);
  ASSERT_EQ(curves[1].points.size(), 2u);
  EXPECT_EQ(curves[1].points[0].ns, 30);
  EXPECT_EQ(curves[1].points[1].ns, 300);  // (100 + 200 + 600) / 3
}

TEST_F(CompleteTable, FillsCellsFromTheNearestThatIsKnown) {
  const std::vector<TimeCurve> curves =
      curves_of(std::vector{gather(8, 1, 50'000), gather(8, 65, 250'000),
                            CollectiveSample{.kind = CollectiveKind::all_reduce,
                                             .ranks = 8,
                                             .nodes = 1,
                                             .bytes = Bytes(17 * kMebibyte),
                                             .ns = 400'000,
                                             .place = ""}});
  const auto rows = complete_table(curves, std::vector<std::int64_t>{4}, base_);
  ASSERT_TRUE(rows) << rows.error().message();
  ASSERT_EQ(rows->size(), 6u);  // 4 and 8 ranks, 1, 17 and 65 MiB
  const CollectiveRow& four = (*rows)[1];
  const CollectiveRow& eight = (*rows)[4];
  EXPECT_EQ(four.ranks, 4);
  EXPECT_EQ(eight.bytes, 17.0 * kMebibyte);
  // A quarter of the way from 1 to 65 MiB: 50 + (250 - 50) / 4 us.
  EXPECT_EQ(eight.all_gather_ns, 100'000);
  EXPECT_EQ(eight.all_reduce_ns, 400'000);
  EXPECT_EQ(eight.reduce_scatter_ns, base_ns(CollectiveKind::reduce_scatter, 17, 8));
  // Four ranks as eight differ from the base.
  EXPECT_DOUBLE_EQ(four.all_gather_ns, base_ns(CollectiveKind::all_gather, 17, 4) * 100'000 /
                                           base_ns(CollectiveKind::all_gather, 17, 8));
  // Beyond a curve's one size as the base grows.
  EXPECT_DOUBLE_EQ((*rows)[5].all_reduce_ns, 400'000 * base_ns(CollectiveKind::all_reduce, 65, 8) /
                                                 base_ns(CollectiveKind::all_reduce, 17, 8));
}

TEST_F(CompleteTable, OneSizeIsNoCurve) {
  const auto rows =
      complete_table(curves_of(std::vector{gather(8, 1, 5), gather(4, 1, 5)}), {}, base_);
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().message(),
            "--calibrate: the collectives have one size; expected two or more, to separate latency "
            "from bandwidth");
}

TEST_F(CompleteTable, LeavesOneOut) {
  const TimeCurve curve =
      curves_of(std::vector{gather(8, 1, 10), gather(8, 2, 30), gather(8, 3, 30)}).front();
  const std::vector<double> errors = leave_one_out_errors(curve, base_);
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_DOUBLE_EQ(errors[1], 20.0 / 30 - 1);  // halfway between 10 and 30
}

}  // namespace
}  // namespace mfsdp
