// The place of an op among the prepared ones, and the op before a record. Needs no GPU: a function
// binds the ops.
#include "gpu_backend/cuda/prepared_plans.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>
#include <vector>

#include "tests/support/tiny_program.hpp"

namespace mfsdp::cuda {
namespace {

/// The tiny plan's ten ops twice, as two segments; memory of no address.
class PreparedPlansTest : public testing::Test {
 protected:
  static Program two_segments() {
    Program program = test::tiny_program();
    std::vector<Segment>& segments = program.plans.front().segments;
    segments.push_back(segments.front());
    return program;
  }

  const BoundOp& op(std::size_t segment, std::string_view name, OpKind kind) const {
    for (const BoundOp& op : bound_.lists[segment].ops)
      if (op.op->name == name && op.op->kind() == kind) return op;
    throw std::logic_error("no such op");
  }

  static Result<Launch> bind_kernels(const BoundOp& op) {
    if (op.op->kind() != OpKind::kernel) return Launch();
    return [] { return Result<void>(); };
  }

  const Program program_ = two_segments();
  const BoundPlan bound_ = PlanBinder(program_, PoolBases(program_.pools.size(), nullptr), 0)
                               .bind(program_.plans.front())
                               .value();
};

TEST_F(PreparedPlansTest, FindsEveryOpWithItsNumber) {
  PreparedPlans prepared;
  ASSERT_TRUE(prepared.add(bound_, true, bind_kernels));
  std::int64_t number = 0;
  for (const BoundList& list : bound_.lists)
    for (const BoundOp& op : list.ops) {
      const auto place = prepared.find(op);
      ASSERT_TRUE(place) << op.op->name;
      EXPECT_EQ(place->number(), number++);
      EXPECT_EQ(place->list->plan_ops, 20);
      EXPECT_TRUE(place->list->timed);
      EXPECT_EQ(bool(place->op().launch), op.op->kind() == OpKind::kernel) << op.op->name;
    }
  EXPECT_EQ(number, 20);
}

TEST_F(PreparedPlansTest, HasNoPlaceForAnOpOfAnotherPlan) {
  PreparedPlans prepared;
  ASSERT_TRUE(prepared.add(bound_, false, bind_kernels));
  const BoundOp copy = bound_.lists.front().ops.front();
  EXPECT_FALSE(prepared.find(copy));
}

TEST_F(PreparedPlansTest, ARecordStandsBehindTheLastWorkOfItsStream) {
  PreparedPlans prepared;
  ASSERT_TRUE(prepared.add(bound_, false, bind_kernels));
  for (const std::size_t segment : {0U, 1U}) {
    const auto gathered = prepared.find(op(segment, "gathered", OpKind::record));
    EXPECT_EQ(gathered->op().work, &op(segment, "gather", OpKind::collective));
    const auto used = prepared.find(op(segment, "used", OpKind::record));
    EXPECT_EQ(used->op().work, &op(segment, "gemm", OpKind::kernel));
  }
}

TEST_F(PreparedPlansTest, AnErrorNamesThePlanAndTheOp) {
  PreparedPlans prepared;
  const auto added = prepared.add(bound_, false, [](const BoundOp& op) -> Result<Launch> {
    if (op.op->kind() == OpKind::kernel) return fail("gemm", "no algorithm", Fault::environment);
    return Launch();
  });
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().message(), "plan \"train\", op 5 (gemm): gemm: no algorithm");
  EXPECT_EQ(added.error().fault, Fault::environment);
}

}  // namespace
}  // namespace mfsdp::cuda
