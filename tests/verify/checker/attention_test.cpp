// Windows, caps and tables of angles that are not those of the layer, for both that have to see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "core/plan/plan_json.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"
#include "verify/mutation/operands.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::rules_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Layers 0 and 2 of three slide over 4 of 16 tokens, and turn otherwise.
PlanConfig local_layers() {
  PlanConfig config = test::small_config(2, 3);
  config.model.sliding_window = 4;
  config.model.sliding_layers = {0, 2};
  config.model.local_rope_theta = {100, 1};
  config.model.score_cap = {50, 1};
  config.model.logit_cap = {61, 2};
  config.model.query_scalar = {144, 1};
  return config;
}

bool is_accepted(const Program& program) { return test::checked(program).has_value(); }

void expect_found(const Program& program, const std::string& rule, const std::string& message) {
  EXPECT_THAT(finding_of(program, rule).message, HasSubstr(message));
  EXPECT_FALSE(is_accepted(program)) << message;
}

TEST(AttentionOfLayers, AsPlannedIsProvedAndAccepted) {
  const Program program = build_program(local_layers(), {}).value();
  EXPECT_THAT(rules_of(program), IsEmpty());
  EXPECT_TRUE(is_accepted(program));
}

TEST(AttentionOfLayers, AWindowInAnotherLayerIsFound) {
  for (const char* op : {"layers.1.attention", "layers.1.attention.backward"}) {
    EditedPlan plan(local_layers());
    plan.kernel("only", op).attributes.push_back({"window", 4});
    expect_found(plan.program, "MF113",
                 "has window 4; expected 0, because block 2 has no sliding window");
  }
  for (const char* op : {"layers.2.attention", "layers.2.attention.backward"}) {
    EditedPlan plan(local_layers());
    plan.kernel("only", op).attributes.pop_back();
    expect_found(plan.program, "MF113",
                 "has window 0; expected 4, because block 3 has a sliding window");
  }
}

TEST(AttentionOfLayers, AnotherWindowCapOrScaleIsFound) {
  for (const char* name : {"window", "score_cap", "query_scalar"}) {
    EditedPlan plan(local_layers());
    plan.set("only", "layers.0.attention", name, 5);
    expect_found(plan.program, "MF007", "attribute '" + std::string(name) + "' is 5; expected ");
  }
  EditedPlan plan(local_layers());
  plan.set("only", "head.chunk0.cross_entropy", "logit_cap", 5);
  expect_found(plan.program, "MF007", "attribute 'logit_cap' is 5; expected ");
  EditedPlan plain(test::small_config(2, 3));
  auto& attributes = plain.kernel("only", "layers.0.attention").attributes;
  attributes.insert(attributes.end() - 1, {"score_cap", 5});
  expect_found(plain.program, "MF007", "attribute 'score_cap' is 5; expected 0");
}

TEST(AttentionOfLayers, TheOtherLayersTableIsFound) {
  for (const auto& [op, other] : {std::pair{"layers.1.rope", "local_rope_table"},
                                  {"layers.2.rope", "rope_table"},
                                  {"layers.0.rope.backward", "rope_table"}}) {
    EditedPlan plan(local_layers());
    plan.operand("only", op, "rope_table").buffer = plan.buffer(other).id;
    expect_found(plan.program, "MF113", "reads another buffer than");
  }
}

/// A buffer's contents after training are no table for an evaluation, even where all layers read
/// it.
TEST(AttentionOfLayers, AnEvaluationReadsTheSameTable) {
  PlanConfig config = test::small_config(2, 3);
  config.seq_len = 2;  // a table that is small enough
  Program program = build_program(config, {}).value();
  const auto named = [&](std::string_view name) {
    return std::ranges::find(program.buffers, name, &Buffer::name)->id;
  };
  const auto eval = std::ranges::find(program.plans, "eval", &Plan::name);
  ASSERT_NE(eval, program.plans.end());
  ASSERT_TRUE(move_operands(*eval, named("rope_table"), named("gathered_norms")));
  expect_found(program, "MF113", "reads another buffer than rope_table as operand 'rope_table'");
}

TEST(AttentionOfLayers, AWindowLongerThanSequencesIsNotStated) {
  PlanConfig config = local_layers();
  config.model.sliding_window = config.seq_len;
  const Program program = build_program(config, {}).value();
  for (const Segment& segment : program.plans[0].segments)
    for (const Op& op : segment.ops)
      if (const auto* kernel = std::get_if<Kernel>(&op.body)) {
        EXPECT_EQ(kernel->find_attribute("window"), nullptr) << op.name;
      }
  EXPECT_THAT(rules_of(program), IsEmpty());
  EXPECT_TRUE(is_accepted(program));
}

TEST(AttentionOfLayers, JsonReadsBack) {
  PlanConfig config = local_layers();
  config.model.head_dim = 8;
  config.model.rotary_dim = 4;
  config.model.rope_scaling = {.kind = RopeKind::longrope,
                               .factor = {2, 1},
                               .original_max_seq_len = 8,
                               .attention_factor = {5, 4},
                               .short_factors = {{1, 1}, {3, 2}},
                               .long_factors = {{2, 1}, {7, 2}}};
  const Program program = build_program(config, {}).value();
  const auto read = program_from_json(to_canonical_json(program), "plan.json");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->config, config);
  EXPECT_EQ(to_canonical_json(*read), to_canonical_json(program));
}

}  // namespace
}  // namespace mfsdp
