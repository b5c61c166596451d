#include "verify/proof/ledger/gradients.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"
#include "tests/support/random_configurations.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::rules_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Four ranks, two blocks, microbatches first, middle, last; no padding is left out of the layout.
PlanConfig config_of(Strategy strategy) {
  PlanConfig config = test::small_config(4);
  config.microbatches = 3;
  config.strategy = strategy;
  return config;
}

PlanConfig hybrid(Strategy outer) {
  PlanConfig config = config_of(Strategy::optim_grads_params);
  config.mesh.resize(Axis::dp_outer, 2);
  config.outer_strategy = outer;
  return config;
}

TEST(Gradients, UneditedPlansAreClean) {
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    EXPECT_THAT(rules_of(EditedPlan(config_of(strategy)).program), IsEmpty());
  for (const Strategy outer : {Strategy::no_shard, Strategy::optim})
    EXPECT_THAT(rules_of(EditedPlan(hybrid(outer)).program), IsEmpty());
  PlanConfig exact = config_of(Strategy::optim_grads_params);
  exact.exact_sums = true;
  exact.deterministic = true;
  EXPECT_THAT(rules_of(EditedPlan(exact).program), IsEmpty());
}

// ---- accumulation ------------------------------------------------------------------------------

TEST(Gradients, MicrobatchIsNotAccumulated) {
  EditedPlan plan(config_of(Strategy::optim_grads_params));
  plan.drop("middle", "layers.0.accumulate");
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF301"));
  const Finding finding = finding_of(plan.program, "MF301");
  EXPECT_EQ(finding.places[0].name, "layers.0.norm_partial");
  EXPECT_THAT(finding.message, HasSubstr("lacks a contribution of microbatch 'middle'"));
  EXPECT_THAT(finding.message,
              HasSubstr("1 of 1 in microbatch 'first', 0 of 1 in microbatch 'middle', "
                        "1 of 1 in microbatch 'last'"));
}

TEST(Gradients, LastMicrobatchOverwrites) {
  EditedPlan plan(config_of(Strategy::optim_grads));
  plan.set("last", "layers.1.accumulate", "beta", 0);
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF301"));
  EXPECT_THAT(finding_of(plan.program, "MF301").message,
              HasSubstr("0 of 1 in microbatch 'first', 0 of 1 in microbatch 'middle', "
                        "1 of 1 in microbatch 'last'"));
}

TEST(Gradients, AccumulationBeginsOnTheLastStep) {
  PlanConfig config = config_of(Strategy::optim_grads_params);
  config.reduce_dtype = DType::bf16;
  EditedPlan plan(config);
  plan.set("first", "layers.0.accumulate", "beta", 1);
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF305"));
  EXPECT_EQ(finding_of(plan.program, "MF305").places[0].step, 0);
}

TEST(Gradients, AddedTwice) {
  EditedPlan plan(config_of(Strategy::optim_grads_params));
  plan.repeat("last", "layers.0.accumulate");
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF302"));
  EXPECT_THAT(finding_of(plan.program, "MF302").message, HasSubstr("2 of 1 in microbatch 'last'"));
}

TEST(Gradients, WholeGradientIsBegunAndKept) {
  EditedPlan begun(config_of(Strategy::optim));
  begun.set("first", "layers.0.qkv.wgrad", "beta", 1);
  EXPECT_THAT(rules_of(begun.program), ElementsAre("MF305"));
  EditedPlan kept(config_of(Strategy::no_shard));
  kept.set("last", "layers.0.qkv.wgrad", "beta", 0);
  EXPECT_THAT(rules_of(kept.program), ElementsAre("MF301"));
}

TEST(Gradients, KernelIsLeftOut) {
  EditedPlan whole(config_of(Strategy::optim));
  whole.drop("middle", "layers.0.qkv.wgrad");
  EXPECT_THAT(rules_of(whole.program), ElementsAre("MF301"));
  EditedPlan slot(config_of(Strategy::optim_grads_params));  // nothing wrote that part of the slot
  slot.drop("middle", "layers.0.qkv.wgrad");
  EXPECT_THAT(rules_of(slot.program), ElementsAre("MF305"));
}

TEST(Gradients, TiedEmbeddingOverwritesTheHead) {
  PlanConfig config = config_of(Strategy::optim_grads_params);
  config.model.tied_embeddings = true;
  EditedPlan plan(config);
  EXPECT_THAT(rules_of(plan.program), IsEmpty());
  plan.set("middle", "embedding_head.lookup.backward", "beta", 0);
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF301"));
  // Two chunks of logits and a look-up use the matrix.
  EXPECT_THAT(finding_of(plan.program, "MF301").message,
              HasSubstr("1 of 3 in microbatch 'middle'"));
}

TEST(Gradients, ChunkOfLogitsOverwrites) {
  for (const DType wire : {DType::fp32, DType::bf16}) {  // bf16 is cast from a sum of its own
    PlanConfig config = config_of(Strategy::optim_grads_params);
    config.reduce_dtype = wire;
    EditedPlan plan(config);
    EXPECT_THAT(rules_of(plan.program), IsEmpty());
    plan.set("last", "head.chunk1.wgrad", "beta", 0);
    EXPECT_THAT(rules_of(plan.program), ElementsAre("MF301"));
  }
}

TEST(Gradients, DoublingWithoutEndIsAnError) {
  EditedPlan plan(config_of(Strategy::optim_grads_params));
  Kernel& kernel = plan.kernel("middle", "layers.0.accumulate");
  kernel.operands[0] = kernel.operands[1];
  kernel.operands[0].role = "input";
  for (std::size_t i = 0; i < 20; ++i) plan.repeat("middle", "layers.0.accumulate", i);
  const auto proof = prove(plan.program);
  ASSERT_FALSE(proof.has_value());
  EXPECT_EQ(proof.error().message(),
            "plan: a size is too large: a gradient of more than 262144 contributions");
}

// ---- reduction ---------------------------------------------------------------------------------

TEST(Gradients, IsNotReduced) {
  EditedPlan shard(config_of(Strategy::optim_grads_params));
  shard.drop("middle", "layers.0.reduce_scatter");
  EXPECT_THAT(rules_of(shard.program), ElementsAre("MF303"));
  EXPECT_THAT(finding_of(shard.program, "MF303").message, HasSubstr("not summed over dp_shard"));
  EditedPlan whole(config_of(Strategy::no_shard));
  whole.drop("last", "layers.0.all_reduce");
  EXPECT_THAT(rules_of(whole.program), ElementsAre("MF303"));
  for (const Strategy outer : {Strategy::no_shard, Strategy::optim}) {
    EditedPlan plan(hybrid(outer));
    plan.drop("last", outer == Strategy::optim ? "layers.0.outer_reduce_scatter"
                                               : "layers.0.outer_all_reduce");
    EXPECT_THAT(rules_of(plan.program), ElementsAre("MF303"));
    EXPECT_THAT(finding_of(plan.program, "MF303").message, HasSubstr("not summed over dp_outer"));
  }
}

TEST(Gradients, IsReducedTwice) {
  for (const Strategy strategy : {Strategy::optim, Strategy::optim_grads_params}) {
    EditedPlan plan(config_of(strategy));
    plan.repeat("last", "layers.0.reduce_scatter");
    EXPECT_THAT(rules_of(plan.program), ElementsAre("MF304"));
  }
  EditedPlan plan(hybrid(Strategy::no_shard));
  plan.repeat("last", "layers.0.outer_all_reduce");
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF304"));
  EXPECT_THAT(finding_of(plan.program, "MF304").message, HasSubstr("summed over dp_outer 2 times"));
}

TEST(Gradients, AddedAfterTheReduction) {
  // The last microbatch reaches the sum when ranks have been added already.
  EditedPlan plan(config_of(Strategy::optim));
  auto& ops = plan.program.plans[0].segments[2].ops;
  const Op late = plan.op("last", "layers.0.qkv.wgrad");
  plan.drop("last", "layers.0.qkv.wgrad");
  const auto reduced = std::ranges::find(ops, "layers.0.reduce_scatter", &Op::name);
  ops.insert(reduced + 1, late);
  EXPECT_TRUE(rules_of(plan.program).contains("MF303"));
}

TEST(Gradients, ReductionOverwritesAnotherSlice) {
  EditedPlan plan(config_of(Strategy::optim_grads_params));
  plan.collective("last", "layers.0.reduce_scatter").output.rank_strides.clear();
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF505"));
}

// ---- exchanged in parts, and summed by a kernel -------------------------------------------------

PlanConfig dealt() {
  PlanConfig config = config_of(Strategy::optim_grads_params);
  config.reduce = Transport::copy_engine;
  return config;
}

TEST(Gradients, DealtOutOnesAreClean) {
  EXPECT_THAT(rules_of(EditedPlan(dealt()).program), IsEmpty());
  for (const Strategy outer : {Strategy::no_shard, Strategy::optim}) {
    PlanConfig config = hybrid(outer);
    config.reduce = Transport::copy_engine;
    config.reduce_dtype = DType::bf16;
    EXPECT_THAT(rules_of(EditedPlan(config).program), IsEmpty());
  }
}

TEST(Gradients, PartsAreSummedOnceInEachMicrobatch) {
  EditedPlan left_out(dealt());
  left_out.drop("middle", "layers.0.sum_ranks");
  EXPECT_THAT(rules_of(left_out.program), ElementsAre("MF301"));
  EditedPlan overwrites(dealt());
  overwrites.set("last", "layers.0.sum_ranks", "beta", 0);
  EXPECT_THAT(rules_of(overwrites.program), ElementsAre("MF301"));
  EditedPlan never_begins(dealt());
  never_begins.set("first", "layers.0.sum_ranks", "beta", 1);
  EXPECT_THAT(rules_of(never_begins.program), ElementsAre("MF305"));
  EditedPlan twice(dealt());
  twice.repeat("last", "layers.0.sum_ranks");
  EXPECT_THAT(rules_of(twice.program), ElementsAre("MF302"));
  EditedPlan not_dealt(dealt());  // the parts are what the buffer had before
  not_dealt.drop("middle", "layers.0.all_to_all");
  EXPECT_TRUE(rules_of(not_dealt.program).contains("MF305"));
}

TEST(Gradients, PartsAreOfAllRanks) {
  EditedPlan half(dealt());  // parts of two ranks where four have sent theirs
  half.set("last", "layers.0.sum_ranks", "ranks", 2);
  half.operand("last", "layers.0.sum_ranks", "input").shape.front() = 2;
  EXPECT_THAT(rules_of(half.program), ElementsAre("MF306"));
  EditedPlan says_other(dealt());
  says_other.set("last", "layers.0.sum_ranks", "ranks", 2);
  EXPECT_THAT(rules_of(says_other.program), ElementsAre("MF007"));
}

TEST(Gradients, APartIsNoSum) {
  // The rank's own part alone, moved as if it were the sum.
  EditedPlan plan(dealt());
  Kernel& sum = plan.kernel("last", "layers.0.sum_ranks");
  sum.kind = KernelKind::accumulate;
  sum.attributes = {{"beta", 1}};
  sum.operands[0].shape = sum.operands[1].shape;
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF306"));
  EXPECT_THAT(finding_of(plan.program, "MF306").message,
              HasSubstr("which is not summed over ranks yet"));
  // A slot that was never exchanged, taken for parts.
  EditedPlan slot(dealt());
  slot.operand("last", "layers.0.sum_ranks", "input").buffer = slot.buffer("layers.0.grad").id;
  EXPECT_TRUE(rules_of(slot.program).contains("MF306"));
  EXPECT_THAT(finding_of(slot.program, "MF306").message,
              HasSubstr("which does not hold each rank's contribution separately"));
}

TEST(Gradients, OnlyPartsAreDealtOut) {
  EditedPlan no_parts(dealt());  // into a buffer that is declared a shard
  no_parts.buffer("layers.0.grad_parts").holds->dealt.reset();
  EXPECT_THAT(rules_of(no_parts.program), testing::Contains("MF503"));
  EditedPlan another(dealt());
  another.buffer("layers.0.grad_parts").holds->placement.clear();
  EXPECT_THAT(rules_of(another.program), testing::Contains("MF503"));
  EXPECT_THAT(finding_of(another.program, "MF503").message, HasSubstr("layers.0.grad_parts"));
}

// ---- places and dtypes -------------------------------------------------------------------------

TEST(Gradients, GoesToAnotherUnit) {
  EditedPlan plan(config_of(Strategy::no_shard));
  plan.operand("first", "layers.0.qkv.wgrad", "weight_grad").buffer =
      plan.buffer("layers.1.main_grad").id;
  // Block 1 holds block 0's gradient instead of its own; block 0 is not begun.
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF305", "MF306"));
  EXPECT_THAT(finding_of(plan.program, "MF306").message, HasSubstr("'layers.1'"));
}

TEST(Gradients, GoesBesideItsParameter) {
  EditedPlan plan(config_of(Strategy::no_shard));
  plan.operand("last", "layers.0.qkv.wgrad", "weight_grad").offset += 4;
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF306"));
}

TEST(Gradients, PaddingIsLeftAsItWas) {
  PlanConfig config = config_of(Strategy::optim_grads_params);
  config.mesh.resize(Axis::dp_shard, 7);  // sizes that leave a rest
  for (const char* segment : {"first", "middle", "last"}) {
    EditedPlan plan(config);
    plan.drop(segment, "layers.0.zero_padding");
    EXPECT_THAT(rules_of(plan.program), ElementsAre("MF309")) << segment;
  }
}

TEST(Gradients, SummedInANarrowDtype) {
  PlanConfig config = config_of(Strategy::optim_grads_params);
  config.grad_dtype = DType::bf16;
  EditedPlan accumulates(config);
  EXPECT_THAT(rules_of(accumulates.program), IsEmpty());
  accumulates.program.config.grad_dtype = DType::fp32;
  EXPECT_THAT(rules_of(accumulates.program), ElementsAre("MF310"));
  config.grad_dtype = DType::fp32;
  config.reduce_dtype = DType::bf16;
  EditedPlan reduces(config);
  EXPECT_THAT(rules_of(reduces.program), IsEmpty());
  reduces.program.config.reduce_dtype = DType::fp32;
  EXPECT_THAT(rules_of(reduces.program), ElementsAre("MF310"));
  EXPECT_THAT(finding_of(reduces.program, "MF310").message,
              HasSubstr("in bf16, narrower than fp32"));
}

TEST(Gradients, SummedInAWiderDtypeThanConfigured) {
  for (const Strategy strategy : {Strategy::no_shard, Strategy::optim}) {
    EditedPlan plan(config_of(strategy));
    plan.program.config.reduce_dtype = DType::bf16;
    EXPECT_THAT(rules_of(plan.program), ElementsAre("MF310"));
    EXPECT_THAT(finding_of(plan.program, "MF310").message,
                HasSubstr("in fp32; the configuration has bf16"));
  }
}

// ---- any of them -------------------------------------------------------------------------------

/// Whether gradients or weights pass through the op, so that it is needed. Without clipping, the
/// norm is for the report alone.
bool is_on_the_way(const Op& op, bool clips) {
  if (const auto* kernel = std::get_if<Kernel>(&op.body))
    return makes_gradient(*kernel) || is_update(*kernel) || kernel->kind == KernelKind::cast ||
           kernel->kind == KernelKind::accumulate || kernel->kind == KernelKind::sum_ranks ||
           kernel->kind == KernelKind::zero_padding || kernel->kind == KernelKind::norm_partial ||
           kernel->kind == KernelKind::loss_finish ||
           (kernel->kind == KernelKind::norm_finish && clips) ||
           kernel->kind == KernelKind::cross_entropy;
  return op.kind() == OpKind::collective;
}

/// In any plan, leaving out an op that gradients or weights pass through is found.
RC_GTEST_PROP(Gradients, LeavingAnOpOutIsFound, ()) {
  const PlanConfig config = *test::any_config();
  auto program = build_program(config, {});
  RC_ASSERT(program.has_value());
  std::vector<OpId> ids;
  for (const Segment& segment : program->plans[0].segments)
    for (const Op& op : segment.ops)
      if (is_on_the_way(op, config.clip.num != 0)) ids.push_back(op.id);
  const OpId id = *rc::gen::elementOf(ids);
  const std::string name = test::op_at(*program, id).name;
  test::drop_op(*program, id);
  if (rules_of(*program).empty()) RC_FAIL(name + " is not missed");
}

/// All operands of the train plan in weights, gradients and optimizer state.
std::vector<std::pair<Operand*, std::string>> operands_in_state(Program& program) {
  std::vector<std::pair<Operand*, std::string>> found;
  const auto keep = [&](Operand& operand, const Op& op) {
    const Category category = program.buffers[operand.buffer.value].category;
    if (category <= Category::unsharded_grad)
      found.emplace_back(&operand, op.name + " " + operand.role);
  };
  for (Segment& segment : program.plans[0].segments)
    for (Op& op : segment.ops) {
      if (auto* kernel = std::get_if<Kernel>(&op.body))
        for (Operand& operand : kernel->operands) keep(operand, op);
      if (auto* collective = std::get_if<Collective>(&op.body)) {
        keep(collective->input, op);
        keep(collective->output, op);
      }
    }
  return found;
}

/// An operand that is off by one element, or in another unit's buffer, is found.
RC_GTEST_PROP(Gradients, MovingAnOperandIsFound, ()) {
  PlanConfig config = *test::any_config();
  config.model.hidden = std::max<std::int64_t>(config.model.hidden, 2);  // no one-element vectors
  auto program = build_program(config, {});
  RC_ASSERT(program.has_value());
  const auto operands = operands_in_state(*program);
  const auto& [operand, name] = operands[*rc::gen::inRange<std::size_t>(0, operands.size())];
  const Buffer& own = program->buffers[operand->buffer.value];
  const auto other = std::ranges::find_if(program->buffers, [&](const Buffer& buffer) {
    return buffer.category == own.category && buffer.unit != own.unit && buffer.size == own.size;
  });
  const bool moves = other == program->buffers.end() || *rc::gen::arbitrary<bool>();
  if (moves)
    operand->offset += size_of(operand->dtype) * (operand->offset > 0 ? -1 : 1);
  else
    operand->buffer = other->id;
  RC_CLASSIFY(!moves, "another unit's buffer");
  if (rules_of(*program).empty()) RC_FAIL(name + " may be elsewhere");
}

/// Running what adds or sums once more is found.
RC_GTEST_PROP(Gradients, RunningAnOpTwiceIsFound, ()) {
  auto program = build_program(*test::any_config(), {});
  RC_ASSERT(program.has_value());
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t s = 0; s < program->plans[0].segments.size(); ++s) {
    const auto& ops = program->plans[0].segments[s].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const auto* kernel = std::get_if<Kernel>(&ops[i].body);
      const auto* collective = std::get_if<Collective>(&ops[i].body);
      const bool adds =
          kernel != nullptr && kernel->attribute("beta") != 0 &&
          (makes_gradient(*kernel) || kernel->kind == KernelKind::accumulate ||
           kernel->kind == KernelKind::sum_ranks || kernel->kind == KernelKind::cross_entropy);
      if (adds || (kernel != nullptr && is_update(*kernel)) ||
          (collective != nullptr && collective->reduction == Reduction::sum &&
           collective->input.buffer == collective->output.buffer))
        places.emplace_back(s, i);
    }
  }
  const auto [segment, at] = *rc::gen::elementOf(places);
  auto& ops = program->plans[0].segments[segment].ops;
  Op again = ops[at];
  again.id = OpId(1'000'000);
  ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(at) + 1, again);
  if (rules_of(*program).empty()) RC_FAIL(again.name + " may run twice");
}

/// Ranks hold different elements of what is cut along the axis that they sum over.
TEST(Gradients, SlicesAreNotSummedOverTheirOwnAxis) {
  test::EditedPlan plan(test::small_config(2));
  plan.sum_slices("only", "layers.0.reduce_scatter");
  EXPECT_THAT(test::rules_of(plan.program), testing::Contains("MF505"));
}

}  // namespace
}  // namespace mfsdp
