#include "verify/proof/values/values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/samples.hpp"
#include "verify/proof/order/overlap.hpp"
#include "verify/proof/values/model_binding.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::PlanBuilder;
using test::rules_of;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

// ---- unwritten reads ---------------------------------------------------------------------------

/// A transient buffer that one op writes and one reads, [begin, end) each.
Program write_then_read(Operand expanded, Operand read) {
  PlanBuilder plan;
  const BufferId id = plan.buffer("b");
  expanded.buffer = read.buffer = id;
  plan.acquire(plan.compute, id);
  plan.kernel(plan.compute, "write", {expanded});
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
  const Program more = write_then_read(bytes(Access::write, 0, 128), bytes(Access::read, 64, 129));
  EXPECT_THAT(rules_of(more), ElementsAre("MF111"));
  const Finding finding = finding_of(more, "MF111");
  EXPECT_EQ(finding.message,
            "read (compute) in step 1 reads 'input' of buffer 'b', but no op has written it from "
            "byte 128 on");
  EXPECT_EQ(finding.begin, 128);
  EXPECT_EQ(finding.end, 129);
}

TEST(Values, ColumnsAreToldApart) {
  const auto rules = [](const Operand& expanded, const Operand& read) {
    return rules_of(write_then_read(expanded, read));
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
  EXPECT_THAT(rules_of(write_then_read(columns(Access::write, 8, 7), heads)), ElementsAre("MF111"));
}

/// Each of two ranks writes 16 bytes of its own: the bytes at the other one's place are unwritten.
TEST(Values, PlacesThatDependOnTheRankAreWrittenForWhoReadsTheSame) {
  const auto moving = [](Access access) {
    Operand operand = bytes(access, 0, 16);
    operand.rank_strides = {{.axis = Axis::dp_shard, .bytes = 16}};
    return operand;
  };
  const Operand last = bytes(Access::read, 16, 32);  // written on the last rank alone
  EXPECT_THAT(rules_of(write_then_read(moving(Access::write), moving(Access::read))), IsEmpty());
  EXPECT_THAT(rules_of(write_then_read(moving(Access::write), last)), ElementsAre("MF111"));
  EXPECT_THAT(rules_of(write_then_read(bytes(Access::write, 0, 32), moving(Access::read))),
              IsEmpty());
  EXPECT_THAT(rules_of(write_then_read(bytes(Access::write, 16, 32), moving(Access::read))),
              ElementsAre("MF111"));
}

/// Between rows of another stride there are bytes that nothing writes.
TEST(Values, RowsOfSeveralStrides) {
  Operand wide = columns(Access::read, 0, 4);  // of rows of 32 bytes
  wide.shape = {8, 4};
  wide.strides = {32, 1};
  Operand wide_written = wide;
  wide_written.role = "output";
  wide_written.access = Access::write;
  EXPECT_THAT(rules_of(write_then_read(columns(Access::write, 0, 8), wide)), ElementsAre("MF111"));
  EXPECT_THAT(rules_of(write_then_read(bytes(Access::write, 0, 256), wide)), IsEmpty());
  EXPECT_THAT(rules_of(write_then_read(wide_written, bytes(Access::read, 0, 32))),
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
            "op 1, first (compute), is unused: no op reads what it writes");
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

// ---- values of the model -----------------------------------------------------------------------

/// Whether the order of two ops matters: one writes bytes that the other touches.
bool depend(const Program& program, const Op& a, const Op& b) {
  const auto operands = [](const Op& op) {
    std::vector<Operand> found;
    if (const auto* kernel = std::get_if<Kernel>(&op.body)) found = kernel->operands;
    if (const auto* c = std::get_if<Collective>(&op.body)) found = {c->input, c->output};
    if (const auto* copy = std::get_if<Copy>(&op.body)) found = {copy->input, copy->output};
    return found;
  };
  const auto rows = [](const Operand& operand) {
    return rows_of(
        {.buffer = 0, .writes = false, .exact = false, .begin = 0, .end = 0, .operand = &operand});
  };
  const auto writes = [](const Operand& operand) {
    return operand.access == Access::write || operand.access == Access::read_write;
  };
  for (const Operand& x : operands(a))
    for (const Operand& y : operands(b))
      if (x.buffer == y.buffer && (writes(x) || writes(y)) && x.access != Access::scratch &&
          y.access != Access::scratch && overlap(rows(x), rows(y), program.config.mesh))
        return true;
  return false;
}

bool touches_memory(const Op& op) {
  return op.kind() == OpKind::kernel || op.kind() == OpKind::collective ||
         op.kind() == OpKind::copy;
}

std::vector<PlanConfig> configurations() {
  std::vector<PlanConfig> all;
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      PlanConfig config = test::small_config(2, 2);
      config.strategy = strategy;
      config.recompute.kind = recompute;
      config.microbatches = 3;
      config.model.qk_norm = recompute != Recompute::none;
      config.model.qkv_bias = strategy == Strategy::optim;
      config.model.tied_embeddings = strategy == Strategy::optim_grads;
      all.push_back(config);
    }
  PlanConfig& adapters = all.emplace_back(test::small_config(2, 2));
  adapters.recompute.kind = Recompute::full;
  adapters.lora_rank = 2;
  adapters.lora_alpha = {3, 1};
  adapters.lora_targets = {"q_proj", "v_proj", "down_proj"};
  return all;
}

TEST(Values, NeighboursThatDependCannotBeSwapped) {
  test::Sample sample;
  int swapped = 0;
  for (const PlanConfig& config : configurations()) {
    const Program program = build_program(config, {}).value();
    for (std::size_t p = 0; p < program.plans.size(); ++p)
      for (std::size_t s = 0; s < program.plans[p].segments.size(); ++s) {
        const std::vector<Op>& ops = program.plans[p].segments[s].ops;
        for (std::size_t a = 0; a < ops.size(); ++a) {
          if (!touches_memory(ops[a])) continue;
          std::size_t b = a + 1;
          while (b < ops.size() && !(touches_memory(ops[b]) && ops[b].stream == ops[a].stream)) ++b;
          if (b == ops.size() || !sample.takes_next()) continue;
          Program edited = program;
          std::swap(edited.plans[p].segments[s].ops[a], edited.plans[p].segments[s].ops[b]);
          const auto rules = rules_of(edited);
          if (depend(program, ops[a], ops[b])) {
            ++swapped;
            EXPECT_FALSE(rules.empty()) << ops[a].name << " and " << ops[b].name;
          } else if (b == a + 1) {
            EXPECT_THAT(rules, IsEmpty()) << ops[a].name << " and " << ops[b].name;
          }
        }
      }
  }
  EXPECT_GE(swapped, test::kOneCase ? 0 : 1001);
}

/// Some of them, for tests that try much.
std::vector<PlanConfig> few_configurations() {
  const std::vector<PlanConfig> all = configurations();
  std::vector<PlanConfig> few{all[1], all[5], all[6], all[11], all[12]};
  for (PlanConfig& config : few) config.microbatches = 2;
  return few;
}

/// A value that only the host receives is no value of the model.
bool is_report(const Op& op) {
  const auto* kernel = std::get_if<Kernel>(&op.body);
  const auto* copy = std::get_if<Copy>(&op.body);
  return (kernel != nullptr && kernel->kind == KernelKind::loss_finish) ||
         (copy != nullptr && copy->kind == CopyKind::d2h);
}

/// Calls visit(segment, position) for every op of all plans that touches memory.
template <class Visit>
void for_each_op(Program& program, Visit visit) {
  for (Plan& plan : program.plans)
    for (Segment& segment : plan.segments)
      for (std::size_t i = 0; i < segment.ops.size(); ++i)
        if (touches_memory(segment.ops[i]) && !is_report(segment.ops[i])) visit(segment, i);
}

TEST(Values, NoOpCanBeLeftOut) {
  test::Sample sample;
  for (const PlanConfig& config : configurations()) {
    Program program = build_program(config, {}).value();
    for_each_op(program, [&](Segment& segment, std::size_t i) {
      if (!sample.takes_next()) return;
      const Op op = segment.ops[i];
      segment.ops.erase(segment.ops.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_FALSE(rules_of(program).empty()) << op.name << " in " << segment.name;
      segment.ops.insert(segment.ops.begin() + static_cast<std::ptrdiff_t>(i), op);
    });
  }
}

TEST(Values, KernelsInPlaceRunOnce) {
  test::Sample sample;
  for (const PlanConfig& config : configurations()) {
    Program program = build_program(config, {}).value();
    for_each_op(program, [&](Segment& segment, std::size_t i) {
      Op again = segment.ops[i];
      again.id = OpId(1'000'000);
      const auto* kernel = std::get_if<Kernel>(&again.body);
      if (kernel == nullptr || std::ranges::none_of(kernel->operands, [](const Operand& operand) {
            return operand.access == Access::read_write;
          }))
        return;
      if (!sample.takes_next()) return;
      segment.ops.insert(segment.ops.begin() + static_cast<std::ptrdiff_t>(i), again);
      EXPECT_FALSE(rules_of(program).empty()) << again.name << " in " << segment.name;
      segment.ops.erase(segment.ops.begin() + static_cast<std::ptrdiff_t>(i));
    });
  }
}

std::vector<Operand*> operands_of(Op& op) {
  std::vector<Operand*> operands;
  if (auto* kernel = std::get_if<Kernel>(&op.body))
    for (Operand& operand : kernel->operands) operands.push_back(&operand);
  if (auto* c = std::get_if<Collective>(&op.body)) operands = {&c->input, &c->output};
  if (auto* copy = std::get_if<Copy>(&op.body)) operands = {&copy->input, &copy->output};
  return operands;
}

TEST(Values, OperandsLieWhereTheirValueDoes) {
  test::Sample sample;
  for (const PlanConfig& config : few_configurations()) {
    Program program = build_program(config, {}).value();
    for_each_op(program, [&](Segment& segment, std::size_t i) {
      for (Operand* operand : operands_of(segment.ops[i])) {
        if (operand->access == Access::scratch || !sample.takes_next()) continue;
        const std::int64_t offset = operand->offset;
        for (const std::int64_t shift : {-1, 1}) {
          operand->offset = offset + shift * size_of(operand->dtype);
          EXPECT_FALSE(rules_of(program).empty()) << segment.ops[i].name << " in " << segment.name
                                                  << ", " << operand->role << " by " << shift;
        }
        operand->offset = offset;
      }
    });
  }
}

/// Chunks are of eight tokens of 16.
TEST(Values, ChunksAreAllRowsOnce) {
  const auto rows = [](EditedPlan& plan, std::int64_t count) {
    plan.set("only", "head.chunk1.wgrad", "m", count);
    for (const char* role : {"d_output", "input"})
      plan.operand("only", "head.chunk1.wgrad", role).shape[0] = count;
  };
  EditedPlan half(test::small_config());
  rows(half, 4);
  EXPECT_THAT(finding_of(half.program, "MF113").message,
              testing::HasSubstr("leaves a sum of 12 rows of microbatch 1, which has 16 tokens"));
  EditedPlan again(test::small_config());
  again.program.plans.erase(again.program.plans.begin());  // training writes over what it has read
  again.operand("eval", "head.chunk1.logits", "input").offset = 0;
  again.operand("eval", "head.chunk1.cross_entropy", "labels").offset =
      again.operand("eval", "head.chunk0.cross_entropy", "labels").offset;
  EXPECT_THAT(finding_of(again.program, "MF113").message,
              testing::HasSubstr(
                  "adds rows [0, 8) of microbatch 1 to a sum that contains some of them already"));
}

TEST(Values, PartialSumsAreOfAllTokens) {
  EditedPlan plan(test::small_config());
  plan.set("only", "layers.0.input_norm.backward.weight_grad", "rows", 8);
  plan.operand("only", "layers.0.input_norm.backward.weight_grad", "partials").shape[0] = 8;
  EXPECT_THAT(finding_of(plan.program, "MF113").message,
              testing::HasSubstr("works on 8 rows, but there are 16"));
}

/// The last rank reads what it should; values are followed on one for all.
TEST(Values, OperandsLieWhereTheyDoOnEveryRank) {
  EditedPlan plan(test::small_config(2));
  Operand& input = plan.operand("only", "head.chunk1.logits", "input");
  const std::int64_t chunk = input.offset;  // bytes
  ASSERT_GT(chunk, 0);
  input.offset = 0;
  input.rank_strides = {{.axis = Axis::dp_shard, .bytes = chunk}};
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF007"));
}

TEST(Values, OperandsLieInTheirBuffer) {
  test::Sample sample(12);
  for (const PlanConfig& config : few_configurations()) {
    Program program = build_program(config, {}).value();
    for_each_op(program, [&](Segment& segment, std::size_t i) {
      for (Operand* operand : operands_of(segment.ops[i])) {
        if (operand->access != Access::read && operand->access != Access::read_write) continue;
        const BufferId own = operand->buffer;
        const Buffer& buffer = program.buffers[own.value];
        for (const Buffer& other : program.buffers) {
          if (other.id == own || other.size != buffer.size) continue;
          if (other.name == buffer.name + ".again" || other.name + ".again" == buffer.name)
            continue;  // the same value
          if (!sample.takes_next()) continue;
          operand->buffer = other.id;
          EXPECT_FALSE(rules_of(program).empty())
              << segment.ops[i].name << " in " << segment.name << ", " << operand->role << " in "
              << other.name << " for " << buffer.name;
        }
        operand->buffer = own;
      }
    });
  }
}

/// The finding for a plan whose operand reads another buffer.
std::string message_of(const PlanConfig& config, const std::string& op, const std::string& role,
                       const std::string& buffer) {
  EditedPlan plan(config);
  plan.operand("only", op, role).buffer = plan.buffer(buffer).id;
  return finding_of(plan.program, "MF113").message;
}

TEST(Values, FindingsNameBothValues) {
  PlanConfig config = test::small_config(2, 3);
  config.recompute.kind = Recompute::none;
  EXPECT_EQ(message_of(config, "layers.1.down.wgrad", "input", "layers.0.product"),
            "layers.1.down.wgrad (compute) in step 1 reads 'product' of layers.0, microbatch 1 as "
            "operand 'input'; expected 'product' of layers.1, microbatch 1");
  config.grad_dtype = config.reduce_dtype = DType::bf16;
  EXPECT_THAT(message_of(config, "layers.1.qkv", "weight", "layers.1.main_grad"),
              testing::HasSubstr("(layers.1.qkv) has operand 'weight' in memory for main_grad"));
}

/// Even where no op reads it before gradients are written there.
TEST(Values, MemoryForGradientsIsForNothingElse) {
  EXPECT_THAT(message_of(test::small_config(2, 3), "layers.1.post_norm.backward", "partials",
                         "layers.0.main_grad"),
              testing::HasSubstr("has operand 'partials' in memory for gradients"));
}

/// A step without parameters belongs to whom its first value belongs.
TEST(Values, StepsWithoutParametersGoByTheirFirstValue) {
  PlanConfig config = test::small_config(2, 3);
  config.recompute.kind = Recompute::none;
  EXPECT_THAT(message_of(config, "layers.1.attention", "value", "layers.0.qkv"),
              testing::HasSubstr("reads 'qkv' of layers.0, microbatch 1 as operand 'value'; "
                                 "expected 'qkv' of layers.1, microbatch 1"));
  // The result of its own GEMM then belongs to another block: found at the next GEMM with weights.
  EXPECT_THAT(
      message_of(config, "layers.1.swiglu", "gate_up", "layers.0.gate_up"),
      testing::HasSubstr("layers.1.down (compute) in step 1 reads 'product' of layers.0, "
                         "microbatch 1 as operand 'input'; expected 'product' of layers.1"));
}

TEST(Values, EachMicrobatchTakesItsTokens) {
  PlanConfig config = test::small_config(2, 2);
  config.microbatches = 2;
  Program program = build_program(config, {}).value();
  std::vector<Op>& ops = program.plans[0].segments[1].ops;
  // The second microbatch takes what the host brought for the first: nothing races, nothing is
  // unwritten.
  std::erase_if(ops, [](const Op& op) { return op.name == "tokens.h2d"; });
  EXPECT_THAT(rules_of(program), ElementsAre("MF113"));
  EXPECT_EQ(finding_of(program, "MF113").message,
            "tokens.copy (compute) in step 1 copies the tokens of microbatch 1; expected those of "
            "microbatch 2");
}

/// Kernels that other proofs follow.
bool is_of_another_proof(KernelKind kind) {
  switch (kind) {
    case KernelKind::accumulate:
    case KernelKind::amax_history:
    case KernelKind::cast:
    case KernelKind::loss_finish:
    case KernelKind::momentum:
    case KernelKind::newton_schulz:
    case KernelKind::norm_finish:
    case KernelKind::norm_partial:
    case KernelKind::sum_ranks:
    case KernelKind::token_copy:
    case KernelKind::update:
    case KernelKind::zero_padding: return true;
    default: return false;
  }
}

/// Whatever the planner builds is bound to steps of the model, kernel by kernel.
RC_GTEST_PROP(Values, EveryKernelIsAStepOfTheModel, ()) {
  const Program program = build_program(*test::any_config(), {}).value();
  FindingList findings(100);
  const ProgramIndex index(program);
  const std::vector<AccessTable> tables = access_tables(program, index);
  const Layouts layouts(program, index, findings);
  for (std::size_t p = 0; p < program.plans.size(); ++p) {
    const UnrolledPlan unrolled = unroll(program, index, program.plans[p], {}, findings);
    const ValueCells cells = value_cells(unrolled, tables[p], layouts);
    const ModelBinding binding = bind_model(unrolled, layouts, cells, findings);
    RC_ASSERT(binding.applies);
    std::size_t op_index = 0;
    for (const Segment& segment : program.plans[p].segments)
      for (const Op& op : segment.ops) {
        const std::uint32_t step = binding.step_of[op_index++];
        const auto* kernel = std::get_if<Kernel>(&op.body);
        RC_ASSERT((step != kNone) == (kernel != nullptr && !is_of_another_proof(kernel->kind)));
        if (step != kNone) RC_ASSERT(!binding.steps[step].excused);
      }
  }
}

/// Where backward ends, the gradient of what is before is computed and not read.
TEST(Values, BackwardEndsWhereNothingIsTrained) {
  for (const std::vector<std::string>& frozen :
       {std::vector<std::string>{"embed_tokens", "layernorm"},
        std::vector<std::string>{"embed_tokens", "layers.0.", "layers.1.input_layernorm"},
        std::vector<std::string>{"embed_tokens", "layers."}})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      PlanConfig config = test::small_config(2, 2);
      config.recompute.kind = recompute;
      config.frozen = frozen;
      const Program program = build_program(config, {}).value();
      EXPECT_THAT(rules_of(program), IsEmpty());
      EXPECT_EQ(finding_of(program, "MF112").message, "");
    }
}

/// Bytes of a persistent buffer that a gather leaves out are not set from the start.
TEST(Values, GathersBringAllThatIsRead) {
  for (const char* name : {"loss.all_gather", "norm.all_gather"}) {
    EditedPlan plan(test::small_config(2, 2));
    const std::string segment = name[0] == 'l' ? "only" : "optimizer";
    Collective& gather = plan.collective(segment, name);
    gather.count -= 1;
    gather.input.shape[0] -= 1;
    gather.output.shape[0] -= 2;
    EXPECT_THAT(rules_of(plan.program), Contains("MF111")) << name;
  }
}

/// A plan of other units than its configuration's model is judged by what every plan has to keep.
TEST(Values, OtherModelsHaveNoSteps) {
  Program program = build_program(test::small_config(2, 2), {}).value();
  program.config.model.layers = 3;
  std::vector<Op>& ops = program.plans[1].segments[0].ops;
  const auto norm =
      std::ranges::find(ops, "layers.0.post_norm", [](const Op& op) { return op.name; });
  auto& operands = std::get<Kernel>(norm->body).operands;
  ASSERT_EQ(operands[0].role + operands[1].role, "residualdelta");
  std::swap(operands[0].buffer, operands[1].buffer);
  EXPECT_THAT(rules_of(program), IsEmpty());
  program.config.model.layers = 2;
  EXPECT_THAT(rules_of(program), ElementsAre("MF113"));
}

/// Each GEMM of adapters is needed, in evaluations too, for each set of targets.
TEST(Values, AdaptersThatAreLeftOut) {
  for (const std::vector<std::string>& targets : {std::vector<std::string>{"q_proj"},
                                                  {"k_proj"},
                                                  {"v_proj"},
                                                  {"gate_proj"},
                                                  {"up_proj"},
                                                  {"q_proj", "v_proj"},
                                                  {"o_proj", "up_proj", "down_proj"}}) {
    PlanConfig config = test::small_config(2, 1);
    config.lora_rank = 2;
    config.lora_alpha = {3, 1};
    config.lora_targets = targets;
    const Program program = build_program(config, {}).value();
    ASSERT_THAT(rules_of(program), IsEmpty());
    for (std::size_t p = 0; p < program.plans.size(); ++p)
      for (std::size_t s = 0; s < program.plans[p].segments.size(); ++s) {
        const std::vector<Op>& ops = program.plans[p].segments[s].ops;
        for (std::size_t i = 0; i < ops.size(); ++i) {
          if (ops[i].kind() != OpKind::kernel || !ops[i].name.ends_with("lora_b")) continue;
          Program edited = program;
          auto& left = edited.plans[p].segments[s].ops;
          left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
          EXPECT_THAT(rules_of(edited), Contains("MF113"))
              << ops[i].name << " of " << program.plans[p].name;
        }
      }
  }
}

}  // namespace
}  // namespace mfsdp
