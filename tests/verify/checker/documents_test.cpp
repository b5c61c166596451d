// Attention between documents, and positions that are not those of the microbatch, for both that
// have to see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan/plan_json.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::rules_of;
using testing::HasSubstr;
using testing::IsEmpty;

PlanConfig masked(bool qk_norm = false) {
  PlanConfig config = test::small_config(2, 3);
  config.document_mask = true;
  config.model.qk_norm = qk_norm;
  return config;
}

bool is_taken(const Program& program) { return test::checked(program).has_value(); }

void expect_fault(const Program& program, const std::string& rule, const std::string& message) {
  EXPECT_THAT(finding_of(program, rule).message, HasSubstr(message));
  EXPECT_FALSE(is_taken(program)) << message;
}

/// Kernels that go by positions.
std::vector<std::string> positioned(bool qk_norm) {
  const std::string block = "layers.1.";
  std::vector<std::string> ops{block + "attention", block + "attention.backward"};
  for (const char* op : {"rope", "rope.backward"})
    if (!qk_norm) ops.push_back(block + op);
  for (const char* op : {"qk", "qk_norm.backward"})
    if (qk_norm) ops.push_back(block + op);
  return ops;
}

TEST(DocumentMask, AsPlannedIsProvedAndAccepted) {
  for (const bool qk_norm : {false, true}) {
    const Program program = build_program(masked(qk_norm), {}).value();
    EXPECT_THAT(rules_of(program), IsEmpty());
    EXPECT_TRUE(is_taken(program));
    const auto read = program_from_json(to_canonical_json(program), "plan.json");
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(read->config, program.config);
  }
}

TEST(DocumentMask, AKernelWithoutPositionsIsFound) {
  for (const bool qk_norm : {false, true})
    for (const std::string& op : positioned(qk_norm)) {
      EditedPlan plan(masked(qk_norm));
      std::erase_if(plan.kernel("only", op).operands,
                    [](const Operand& operand) { return operand.role == "positions"; });
      expect_fault(plan.program, "MF007", "lacks operand 'positions'");
    }
}

TEST(DocumentMask, PositionsThatNobodyAskedForAreFound) {
  EditedPlan plan(test::small_config(2, 3));
  Operand positions = plan.operand("only", "embedding.lookup", "tokens");
  positions.role = "positions";
  plan.kernel("only", "layers.1.rope").operands.push_back(positions);
  expect_fault(plan.program, "MF007", "though attention is not masked between documents");
}

/// Ids and labels are as many int32 beside them.
TEST(DocumentMask, IdsAndLabelsAreNoPositions) {
  for (const bool qk_norm : {false, true})
    for (const std::string& op : positioned(qk_norm))
      for (const std::int64_t row : {0, 1}) {
        EditedPlan plan(masked(qk_norm));
        Operand& positions = plan.operand("only", op, "positions");
        const std::int64_t bytes = positions.touched_bytes();
        ASSERT_EQ(positions.offset, 2 * bytes);
        positions.offset = row * bytes;
        expect_fault(plan.program, "MF113", "as operand 'positions'");
      }
}

/// Staged positions may already be those of the next microbatch.
TEST(DocumentMask, AnotherMicrobatchsPositionsAreFound) {
  PlanConfig config = masked();
  config.microbatches = 2;
  for (const std::string& op : positioned(false)) {
    EditedPlan plan(config);
    plan.operand("last", op, "positions").buffer = plan.buffer("staged_tokens").id;
    EXPECT_FALSE(rules_of(plan.program).empty()) << op;
    EXPECT_FALSE(is_taken(plan.program)) << op;
  }
}

/// Positions of a microbatch stay what they were: a copy of ids and labels alone is none.
TEST(DocumentMask, ACopyWithoutPositionsIsFound) {
  EditedPlan plan(masked());
  for (const char* role : {"input", "output"})
    plan.operand("only", "tokens.copy", role).shape[0] = 2;
  expect_fault(plan.program, "MF007", "expected [3, ");
}

TEST(DocumentMask, AConfigurationWithoutItIsFound) {
  Program program = build_program(masked(), {}).value();
  program.config.document_mask = false;
  EXPECT_FALSE(rules_of(program).empty());
  EXPECT_FALSE(is_taken(program));
}

}  // namespace
}  // namespace mfsdp
