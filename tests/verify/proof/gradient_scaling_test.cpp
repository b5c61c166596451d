#include "verify/proof/ledger/gradient_scaling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/configurations.hpp"
#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"
#include "verify/mutation/operands.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::rules_of;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PlanConfig three_microbatches() {
  PlanConfig config = test::small_config(4);
  config.microbatches = 3;
  return config;
}

TEST(Scales, UpdateDoesNotScale) {
  EditedPlan plan(three_microbatches());
  std::erase_if(plan.kernel("optimizer", "layers.0.adamw").operands,
                [](const Operand& operand) { return operand.role == "loss"; });
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF307"));
  EXPECT_THAT(
      finding_of(plan.program, "MF307").message,
      HasSubstr("layers.0.adamw (compute) in step 1 does not multiply its gradient by 1/T"));
}

TEST(Scales, UpdateScalesTwice) {
  EditedPlan twice(three_microbatches());
  const Operand loss = twice.operand("optimizer", "layers.0.adamw", "loss");
  twice.kernel("optimizer", "layers.0.adamw").operands.push_back(loss);
  EXPECT_THAT(rules_of(twice.program), ElementsAre("MF308"));
}

TEST(Scales, LossIsOfAnotherSum) {
  for (const char* dropped : {"loss.finish", "loss.all_gather"}) {
    EditedPlan plan(three_microbatches());
    plan.drop("last", dropped);
    EXPECT_THAT(rules_of(plan.program), Contains("MF307")) << dropped;
  }
  EditedPlan restarted(three_microbatches());
  restarted.set("last", "head.chunk0.cross_entropy", "beta", 0);
  EXPECT_THAT(rules_of(restarted.program), ElementsAre("MF307"));
  // 16 tokens of the last microbatch are left of 48.
  EXPECT_THAT(finding_of(restarted.program, "MF307").message,
              HasSubstr("computes 1/T from 16 tokens; the 3 microbatches of this step have 48"));
  EditedPlan stale(three_microbatches());
  stale.set("first", "head.chunk0.cross_entropy", "beta", 1);
  EXPECT_THAT(rules_of(stale.program), Contains("MF307"));
}

TEST(Scales, NormIsNotThatOfTheStep) {
  EditedPlan unread(three_microbatches());
  std::erase_if(unread.kernel("optimizer", "layers.0.adamw").operands,
                [](const Operand& operand) { return operand.role == "norm"; });
  EXPECT_THAT(rules_of(unread.program), ElementsAre("MF311"));
  for (const auto& [segment, dropped] :
       {std::pair{"last", "layers.0.norm_partial"}, std::pair{"optimizer", "norm.all_gather"},
        std::pair{"optimizer", "norm.finish"}}) {
    EditedPlan plan(three_microbatches());
    plan.drop(segment, dropped);
    EXPECT_THAT(rules_of(plan.program), Contains("MF311")) << dropped;
  }
  EditedPlan unasked(three_microbatches());
  unasked.program.config.clip = Rational{0, 1};
  EXPECT_THAT(rules_of(unasked.program), ElementsAre("MF007", "MF311"));
}

PlanConfig scaled_loss() {
  PlanConfig config = three_microbatches();
  config.param_dtype = DType::fp16;
  config.loss_scale = {.num = 65'536};
  config.loss_scale_window = 2'000;
  config.clip = Rational{0, 1};
  return config;
}

/// Once in, once out, and the next step's made of it once.
TEST(Scales, LossIsScaledAsConfigured) {
  EXPECT_THAT(rules_of(EditedPlan(scaled_loss()).program), IsEmpty());
  for (const auto& [segment, op] :
       {std::pair{"middle", "head.chunk0.cross_entropy"}, std::pair{"last", "loss.finish"},
        std::pair{"optimizer", "norm.finish"}}) {
    EditedPlan plan(scaled_loss());
    std::erase_if(plan.kernel(segment, op).operands,
                  [](const Operand& operand) { return operand.role == "loss_scale"; });
    EXPECT_THAT(rules_of(plan.program), Contains("MF313")) << op;
  }
  EditedPlan window(scaled_loss());
  window.set("optimizer", "norm.finish", "scale_window", 1'000);
  EXPECT_THAT(rules_of(window.program), ElementsAre("MF007"));
  EditedPlan other(scaled_loss());  // the report is as large
  other.operand("last", "loss.finish", "loss_scale").buffer =
      other.operand("last", "loss.finish", "loss").buffer;
  EXPECT_THAT(rules_of(other.program), Contains("MF313"));
  EditedPlan unread(scaled_loss());  // the norm decides whether to update
  std::erase_if(unread.kernel("optimizer", "layers.0.adamw").operands,
                [](const Operand& operand) { return operand.role == "norm"; });
  EXPECT_THAT(rules_of(unread.program), ElementsAre("MF311"));
  EditedPlan unasked(scaled_loss());
  unasked.program.config.loss_scale = {};
  unasked.program.config.loss_scale_window = 0;
  EXPECT_THAT(rules_of(unasked.program), Contains("MF313"));
}

/// No matter which plan does, and what it makes there.
TEST(Scales, LossScaleIsWrittenOver) {
  PlanConfig config = scaled_loss();
  config.mesh = data_parallel_mesh(1, 2);  // what is gathered of two is as large as the loss scale
  for (const auto& [plan, sums] :
       {std::pair{1U, "loss_sums"}, std::pair{1U, "gathered_sums"}, std::pair{0U, "loss_sums"}}) {
    EditedPlan edited(config);
    ASSERT_TRUE(move_operands(edited.program.plans[plan], edited.buffer(sums).id,
                              edited.buffer("loss_scale").id));
    EXPECT_THAT(rules_of(edited.program), Contains("MF313")) << plan << sums;
  }
}

/// The gathered parts of the norm lie where the loss is that updates read.
TEST(Scales, LossIsWrittenOverByAGather) {
  PlanConfig config = three_microbatches();
  config.mesh = data_parallel_mesh(1, 2);  // no more than the report has place for
  EditedPlan edited(config);
  ASSERT_TRUE(move_operands(edited.program.plans[0], edited.buffer("gathered_norms").id,
                            edited.buffer("report").id));
  EXPECT_THAT(rules_of(edited.program), Contains("MF307"));
}

/// Their number, and that they were gathered; their order is the plan's choice.
TEST(Scales, PartsOfTheNorm) {
  EditedPlan fewer(three_microbatches());
  fewer.set("optimizer", "norm.finish", "groups", 3);
  EXPECT_THAT(finding_of(fewer.program, "MF311").message,
              HasSubstr("has attribute 'groups' 3, but each rank has 4 partial norms"));
  EditedPlan half(three_microbatches());
  half.operand("optimizer", "norm.finish", "input").shape[0] /= 2;
  EXPECT_THAT(finding_of(half.program, "MF311").message,
              HasSubstr("reads 8 partial norms; expected 16, those of all shards"));
  EditedPlan exchanged(three_microbatches());
  std::swap(exchanged.operand("last", "layers.0.norm_partial", "output").offset,
            exchanged.operand("last", "layers.1.norm_partial", "output").offset);
  EXPECT_THAT(rules_of(exchanged.program), IsEmpty());
  EditedPlan behind(three_microbatches());  // where a further replica's would begin
  Operand& input = behind.operand("optimizer", "norm.finish", "input");
  behind.buffer("gathered_norms").size += Bytes(input.span_bytes());
  input.offset = input.span_bytes();
  behind.program.pools[behind.buffer("gathered_norms").pool.value].height += Bytes(1 << 20);
  behind.buffer("gathered_norms").offset =
      behind.program.pools[behind.buffer("gathered_norms").pool.value].height - Bytes(1 << 20);
  EXPECT_THAT(rules_of(behind.program), Contains("MF111"));
  EXPECT_THAT(finding_of(behind.program, "MF311").message,
              HasSubstr("reads bytes that the gather of partial norms did not write"));
}

/// Two replicas of two slices: either replica's parts will do, from its first on.
TEST(Scales, PartsOfAReplica) {
  const auto with_input_at = [](std::int64_t offset) {
    PlanConfig config = test::small_config(2);
    config.mesh.resize(Axis::dp_outer, 2);
    EditedPlan plan(config);
    plan.operand("optimizer", "norm.finish", "input").offset = offset;
    return rules_of(plan.program);
  };
  constexpr std::int64_t kRank = 4 * 4;  // bytes: embedding, two blocks, head
  EXPECT_THAT(with_input_at(2 * kRank), IsEmpty());
  EXPECT_THAT(with_input_at(kRank), ElementsAre("MF311"));
}

/// Ranks are counted along the last axis first: of two replicas in the innermost axis, the first
/// two ranks have the same slice.
TEST(Scales, ReplicasThatLieBesideEachOther) {
  PlanConfig config = test::small_config(2);
  config.mesh.resize(Axis::dp_outer, 2);
  EditedPlan plan(config);
  std::ranges::reverse(plan.program.config.mesh.dense);
  EXPECT_THAT(rules_of(plan.program), Contains("MF311"));
  EXPECT_THAT(finding_of(plan.program, "MF311").message,
              HasSubstr("reads partial norms of some shard of 'embedding' twice"));
}

TEST(Scales, APartOfTheNormTwice) {
  EditedPlan plan(three_microbatches());
  plan.repeat("last", "layers.1.norm_partial");
  auto& segments = plan.program.plans[0].segments;
  for (Segment& segment : segments)
    for (Op& op : segment.ops)
      if (op.id == OpId(1'000'000))
        for (Operand& operand : std::get<Kernel>(op.body).operands)
          if (operand.role == "output") operand.offset = 16;
  plan.buffer("norm_partials").size += Bytes(16);
  plan.buffer("gathered_norms").size += Bytes(64);
  Collective& gather = plan.collective("optimizer", "norm.all_gather");
  gather.count = 5;
  gather.input.shape = {5};
  gather.output.shape = {20};
  plan.operand("optimizer", "norm.finish", "input").shape = {20};
  plan.set("optimizer", "norm.finish", "groups", 5);
  EXPECT_THAT(finding_of(plan.program, "MF311").message,
              HasSubstr("computes the norm from two partial norms of 'layers.1' of each rank"));
}

/// Each element of a gradient that is not sharded counts once per rank.
TEST(Scales, MoreThanASliceOfTheNorm) {
  PlanConfig config = test::small_config(2);
  config.strategy = Strategy::optim;
  EditedPlan plan(config);
  for (const char* unit : {"embedding", "layers.0", "layers.1", "head"}) {
    Collective& sum = plan.collective("only", std::string(unit) + ".reduce_scatter");
    sum.kind = CollectiveKind::all_reduce;
    sum.count = sum.input.elements();
    const Access access = sum.output.access;
    const std::string role = sum.output.role;
    sum.output = sum.input;
    sum.output.access = access;
    sum.output.role = role;
    Operand& input = plan.operand("only", std::string(unit) + ".norm_partial", "input");
    const Access reads = input.access;
    input = sum.input;
    input.access = reads;
  }
  EXPECT_THAT(rules_of(plan.program), Contains("MF311"));
  EXPECT_THAT(finding_of(plan.program, "MF311").message,
              HasSubstr("computes the norm from more of 'embedding' than each rank's shard"));
}

TEST(Scales, LossForTheNormAndNormForTheLoss) {
  EditedPlan plan(three_microbatches());
  std::swap(plan.operand("optimizer", "layers.0.adamw", "loss").offset,
            plan.operand("optimizer", "layers.0.adamw", "norm").offset);
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF307", "MF311"));
}

TEST(Scales, NothingElseWritesThem) {
  const auto cleared = [](const std::string& segment, const std::string& behind,
                          const std::string& made_in, const std::string& by,
                          const std::string& role) {
    EditedPlan plan(three_microbatches());
    plan.clear_behind(segment, behind, plan.operand(made_in, by, role));
    return rules_of(plan.program);
  };
  EXPECT_THAT(cleared("last", "head.chunk1.cross_entropy", "last", "head.chunk1.cross_entropy",
                      "loss_sums"),
              Contains("MF307"));
  EXPECT_THAT(cleared("last", "head.norm_partial", "last", "head.norm_partial", "output"),
              Contains("MF311"));
  EXPECT_THAT(cleared("last", "loss.all_gather", "last", "loss.finish", "input"),
              Contains("MF307"));
  EXPECT_THAT(cleared("optimizer", "norm.all_gather", "optimizer", "norm.finish", "input"),
              Contains("MF311"));
  EXPECT_THAT(cleared("optimizer", "norm.finish", "optimizer", "norm.finish", "norm"),
              ElementsAre("MF115", "MF311"));
  EXPECT_THAT(cleared("optimizer", "norm.finish", "optimizer", "norm.finish", "loss"),
              ElementsAre("MF115", "MF307"));
}

TEST(Scales, SegmentsStateTheMicrobatchesThatTheyBegin) {
  EditedPlan plan(three_microbatches());
  plan.program.plans[0].segments.back().microbatches = 1;
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF312"));
}

TEST(Scales, NumberOfMicrobatches) {
  EditedPlan plan(three_microbatches());
  plan.program.config.microbatches = 5;
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF312"));
  EXPECT_EQ(finding_of(plan.program, "MF312").message,
            "plan 'train' runs 3 microbatches in a step; the configuration has 5");
}

}  // namespace
}  // namespace mfsdp
