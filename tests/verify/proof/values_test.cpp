#include "verify/proof/values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::PlanBuilder;
using test::rules_of;
using testing::ElementsAre;
using testing::IsEmpty;

// ---- unwritten reads ---------------------------------------------------------------------------

/// A transient buffer that one op writes and one reads, [begin, end) each.
Program write_then_read(Operand written, Operand read) {
  PlanBuilder plan;
  const BufferId id = plan.buffer("b");
  written.buffer = read.buffer = id;
  plan.acquire(plan.compute, id);
  plan.kernel(plan.compute, "write", {written});
  plan.kernel(plan.compute, "read", {read});
  plan.release(plan.compute, id);
  return plan.finish();
}

Operand bytes(Access access, std::int64_t begin, std::int64_t end) {
  return PlanBuilder::bytes(BufferId(0), access, begin, end);
}
/// `columns` of rows of 16 bytes from column `first`; 16 rows.
Operand columns(Access access, std::int64_t first, std::int64_t columns) {
  Operand operand = bytes(access, first, first);
  operand.shape = {16, columns};
  operand.strides = {16, 1};
  return operand;
}

TEST(Values, EveryByteThatIsReadWasWritten) {
  EXPECT_THAT(rules_of(write_then_read(bytes(Access::write, 0, 128), bytes(Access::read, 0, 128))),
              IsEmpty());
  const Program more =
      write_then_read(bytes(Access::write, 0, 128), bytes(Access::read, 64, 129));
  EXPECT_THAT(rules_of(more), ElementsAre("MF111"));
  const Finding finding = finding_of(more, "MF111");
  EXPECT_EQ(finding.message,
            "read (compute) in step 0 reads 'input' of buffer 'b', where nothing has written from "
            "byte 128 on");
  EXPECT_EQ(finding.begin, 128);
  EXPECT_EQ(finding.end, 129);
}

TEST(Values, ColumnsAreToldApart) {
  const auto rules = [](const Operand& written, const Operand& read) {
    return rules_of(write_then_read(written, read));
  };
  EXPECT_THAT(rules(columns(Access::write, 0, 12), columns(Access::read, 8, 4)), IsEmpty());
  EXPECT_THAT(rules(columns(Access::write, 0, 12), columns(Access::read, 8, 5)),
              ElementsAre("MF111"));
  EXPECT_THAT(rules(columns(Access::write, 0, 8), columns(Access::read, 8, 8)),
              ElementsAre("MF111"));
  EXPECT_THAT(rules(bytes(Access::write, 0, 256), columns(Access::read, 8, 8)), IsEmpty());
  EXPECT_THAT(rules(columns(Access::write, 0, 8), bytes(Access::read, 0, 256)),
              ElementsAre("MF111"));
}

TEST(Values, HeadsOfAttentionAreColumns) {
  // Two sequences of eight tokens with two heads of four bytes, as [batch, heads, seq, head_dim].
  Operand heads = bytes(Access::read, 8, 8);
  heads.shape = {2, 2, 8, 4};
  heads.strides = {128, 4, 16, 1};
  EXPECT_THAT(rules_of(write_then_read(columns(Access::write, 8, 8), heads)), IsEmpty());
  EXPECT_THAT(rules_of(write_then_read(columns(Access::write, 8, 7), heads)),
              ElementsAre("MF111"));
}

TEST(Values, WhatAnEarlierLifetimeWroteIsGone) {
  PlanBuilder plan;
  const BufferId id = plan.buffer("b");
  for (const bool writes : {true, false}) {
    plan.acquire(plan.compute, id);
    if (writes) plan.kernel(plan.compute, "write", {}, {id});
    plan.kernel(plan.compute, "read", {id}, {});
    plan.release(plan.compute, id);
  }
  EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF111"));
}

TEST(Values, ScratchLeavesNothing) {
  EXPECT_THAT(
      rules_of(write_then_read(bytes(Access::scratch, 0, 128), bytes(Access::read, 0, 128))),
      ElementsAre("MF111"));
}

TEST(Values, PersistentBytesComeFromOutsideOrAreWrittenFirst) {
  const auto rules = [](const std::vector<Access>& accesses) {
    PlanBuilder plan;
    const BufferId id = plan.buffer("b", true);
    for (const Access access : accesses)
      plan.kernel(plan.compute, "work", {PlanBuilder::bytes(id, access)});
    return rules_of(plan.finish());
  };
  EXPECT_THAT(rules({Access::read}), IsEmpty());
  EXPECT_THAT(rules({Access::read_write, Access::read}), IsEmpty());
  EXPECT_THAT(rules({Access::write, Access::read}), IsEmpty());
  EXPECT_THAT(rules({Access::read, Access::write}), ElementsAre("MF111"));
}

TEST(Values, WhereOpsRaceHostOrderStandsForNothing) {
  PlanBuilder plan;
  const BufferId id = plan.buffer("b", true);
  plan.kernel(plan.compute, "read", {id}, {});
  plan.kernel(plan.gather, "write", {}, {id});
  EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF101"));
}

// ---- ops without use ---------------------------------------------------------------------------

TEST(Values, AnOpWhoseResultsNothingReads) {
  PlanBuilder plan;
  const BufferId id = plan.buffer("b");
  plan.acquire(plan.compute, id);
  plan.kernel(plan.compute, "first", {}, {id});
  plan.kernel(plan.compute, "second", {}, {id});
  plan.kernel(plan.compute, "read", {id}, {});
  plan.release(plan.compute, id);
  EXPECT_EQ(finding_of(plan.finish(), "MF112").message,
            "op 1, first (compute), writes nothing that is read");
  EXPECT_THAT(rules_of(plan.finish()), IsEmpty());  // a note
}

TEST(Values, OneResultThatIsReadIsEnough) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a");
  const BufferId b = plan.buffer("b");
  for (const BufferId id : {a, b}) plan.acquire(plan.compute, id);
  plan.kernel(plan.compute, "both", {}, {a, b});
  plan.kernel(plan.compute, "read", {b}, {});
  for (const BufferId id : {a, b}) plan.release(plan.compute, id);
  EXPECT_EQ(finding_of(plan.finish(), "MF112").rule, "");
}

}  // namespace
}  // namespace mfsdp
