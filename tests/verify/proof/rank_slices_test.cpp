#include "verify/proof/ranks/rank_slices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"
#include "tests/support/random_configurations.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using testing::HasSubstr;

std::vector<Finding> errors_of(const Program& program, bool expand) {
  auto findings = prove(program, {.expand_ranks = expand})->findings;
  std::erase_if(findings, [](const Finding& finding) { return !is_error(finding.rule); });
  return findings;
}

/// The message of the only finding that the proof by class does not have.
std::string message_of(const Program& program) {
  auto findings = errors_of(program, true);
  std::erase_if(findings, [](const Finding& finding) { return finding.rule != "MF506"; });
  return findings.size() == 1 ? findings[0].message : std::to_string(findings.size());
}

/// Where a sharded group of `elements` is cut into `ranks` parts, the parameters' pieces.
std::int64_t pieces(const Group& group, std::int64_t ranks) {
  std::int64_t count = 0;
  const std::int64_t part = group.elements / ranks;
  for (const PlacedParameter& p : group.parameters)
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      if (p.offset < (rank + 1) * part && p.offset + p.elements() > rank * part) ++count;
  return count;
}

TEST(RankSlices, CountsWhatRanksUpdate) {
  PlanConfig config = test::small_config(3);
  config.mesh.resize(Axis::dp_outer, 2);
  config.outer_strategy = Strategy::no_shard;
  const Program program = EditedPlan(config).program;
  std::int64_t expected = 0;
  for (const Group& group : program.groups) expected += 2 * pieces(group, 3);  // two replicas
  const auto proof = prove(program, {.expand_ranks = true});
  EXPECT_EQ(proof->expansion.parameter_intervals, expected);
  EXPECT_EQ(proof->expansion.ranks, 6);
  std::int64_t collectives = 0;  // a microbatch and an evaluation, over two steps
  for (const Plan& plan : program.plans)
    for (const Segment& segment : plan.segments)
      for (const Op& op : segment.ops) collectives += op.kind() == OpKind::collective ? 1 : 0;
  EXPECT_EQ(proof->expansion.collectives, 6 * 2 * collectives);
  EXPECT_EQ(prove(program)->expansion, Expansion{});
}

TEST(RankSlices, ReductionsOverlapWhereTheStrideIsTooShort) {
  PlanConfig config = test::small_config(4);
  config.microbatches = 2;
  EditedPlan plan(config);
  Operand& output = plan.collective("last", "layers.0.reduce_scatter").output;
  output.rank_strides[0].bytes -= 4;  // fp32
  const std::int64_t part = output.elements();
  EXPECT_THAT(
      message_of(plan.program),
      HasSubstr("on rank 1 touches elements [" + std::to_string(part - 1) + ", " +
                std::to_string(2 * part - 1) + ") of 'layers.0', but its shard begins at element " +
                std::to_string(part)));
}

TEST(RankSlices, UpdatesLeaveAGapOnTheOuterAxis) {
  PlanConfig config = test::small_config(2);
  config.mesh.resize(Axis::dp_outer, 2);
  config.outer_strategy = Strategy::optim;
  EditedPlan plan(config);
  Operand& gradient = plan.operand("optimizer", "layers.1.adamw", "grad");
  for (RankStride& stride : gradient.rank_strides)
    if (stride.axis == Axis::dp_outer) stride.bytes = 0;  // both replicas update the first part
  EXPECT_THAT(message_of(plan.program), HasSubstr("(layers.1.adamw) on all ranks"));
}

/// Towards the buffer's begin, which it does not leave, or a little off.
void shift(Operand& operand) {
  if (operand.rank_strides.empty())
    operand.offset += *rc::gen::element<std::int64_t>(-8, -4, -2, 2, 4, 8);
  else
    operand.rank_strides[0].bytes -= *rc::gen::element<std::int64_t>(2, 4, 8);
}

/// The symbolic proof finds the errors of single ranks too; its claims hold for each rank.
RC_GTEST_PROP(RankSlices, AgreesWithTheProofByClass, ()) {
  auto program = build_program(*test::any_config(), {});
  RC_ASSERT(program.has_value());
  RC_ASSERT(errors_of(*program, true).empty());
  std::vector<Operand*> operands;
  std::vector<Operand*> strided;
  for (Plan& plan : program->plans)
    for (Segment& segment : plan.segments)
      for (Op& op : segment.ops) {
        if (auto* collective = std::get_if<Collective>(&op.body)) {
          operands.push_back(&collective->input);
          operands.push_back(&collective->output);
        }
        if (auto* kernel = std::get_if<Kernel>(&op.body); kernel != nullptr && is_update(*kernel))
          operands.push_back(&kernel->operands[0]);
      }
  std::ranges::copy_if(operands, std::back_inserter(strided),
                       [](const Operand* operand) { return !operand->rank_strides.empty(); });
  const bool by_stride = !strided.empty() && *rc::gen::arbitrary<bool>();
  shift(**rc::gen::elementOf(by_stride ? strided : operands));
  const auto by_class = errors_of(*program, false);
  const auto by_rank = errors_of(*program, true);
  const bool found = std::ranges::count(by_rank, "MF506", &Finding::rule) > 0;
  RC_CLASSIFY(found, "found rank by rank");
  RC_CLASSIFY(!by_class.empty(), "found by class");
  if (found) RC_ASSERT(!by_class.empty());
  RC_ASSERT(std::ranges::count_if(by_rank, [](const Finding& finding) {
              return finding.rule != "MF506";
            }) == std::ssize(by_class));
}

}  // namespace
}  // namespace mfsdp
