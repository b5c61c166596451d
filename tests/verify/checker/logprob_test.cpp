// A plan that gives the host each label's log-probability: proof and checker accept it, and find what
// brings the host another number.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/plan/check.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/shipped_plan.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

Program right_logprob() { return test::shipped_plan("logprob/llama_nano.json"); }

std::string logprob_error(const Program& program) {
  const Proof proof = prove(program).value();
  for (const Finding& finding : proof.findings)
    if (is_error(finding.rule)) return finding.rule + ": " + finding.message;
  return {};
}

Plan& plan_of_role(Program& program, PlanRole role) {
  return *std::ranges::find_if(program.plans,
                               [&](const Plan& plan) { return plan.role() == role; });
}
std::vector<Op>& logprob_ops(Program& program) {
  return plan_of_role(program, PlanRole::logprob).segments[0].ops;
}
Copy& log_probs_copy(Program& program) {
  return std::get<Copy>(std::ranges::find(logprob_ops(program), "log_probs.d2h", &Op::name)->body);
}
Operand& written_log_probs(Program& program) {
  for (Op& op : logprob_ops(program))
    if (auto* kernel = std::get_if<Kernel>(&op.body))
      for (Operand& operand : kernel->operands)
        if (operand.role == "log_probs") return operand;
  throw std::logic_error("no op writes log-probabilities");
}

TEST(LogprobPlan, IsAccepted) {
  const Program program = right_logprob();
  ASSERT_TRUE(check_structure(program)) << check_structure(program).error().message();
  EXPECT_EQ(logprob_error(program), "");
  EXPECT_EQ(test::checker_refusal(program), "");
}

TEST(LogprobPlan, IsAProgramsOnlyOneOfItsRole) {
  Program program = right_logprob();
  plan_of_role(program, PlanRole::logprob).stated_role.reset();
  EXPECT_EQ(
      check_structure(program).error().message(),
      "plans[2].role: expected train, eval or logprob, because the name 'log_probabilities' is "
      "none of them");
  program = right_logprob();
  plan_of_role(program, PlanRole::logprob).stated_role = PlanRole::eval;
  EXPECT_EQ(check_structure(program).error().message(),
            "plans[2].role: 'log_probabilities' is eval, as plan 'eval' is");
}

TEST(LogprobPlan, ProofAndCheckerFindWhatIsWrong) {
  const std::vector<std::pair<std::string, std::function<void(Program&)>>> edits{
      {"nothing is brought",
       [](Program& p) {
         std::erase_if(logprob_ops(p), [](const Op& op) { return op.name == "log_probs.d2h"; });
       }},
      {"the report is brought",
       [](Program& p) {
         Copy& copy = log_probs_copy(p);
         for (const Op& op : logprob_ops(p))
           if (const auto* report = std::get_if<Copy>(&op.body); op.name.ends_with("report.d2h"))
             copy.input = report->input;
         copy.output.shape = copy.input.shape;
       }},
      {"less is brought",
       [](Program& p) {
         --log_probs_copy(p).input.shape[0];
         --log_probs_copy(p).output.shape[0];
       }},
      {"another place is written", [](Program& p) { --written_log_probs(p).shape[0]; }},
      {"nothing is written",
       [](Program& p) {
         for (Op& op : logprob_ops(p))
           if (auto* kernel = std::get_if<Kernel>(&op.body))
             std::erase_if(kernel->operands,
                           [](const Operand& operand) { return operand.role == "log_probs"; });
       }},
      {"evaluation brings them too",
       [](Program& p) {
         Plan& plan = plan_of_role(p, PlanRole::logprob);
         std::swap(plan.segments, plan_of_role(p, PlanRole::eval).segments);
       }},
      {"it updates weights",
       [](Program& p) {
         const auto& train = plan_of_role(p, PlanRole::train).segments.back().ops;
         Op update = *std::ranges::find_if(train, [](const Op& op) {
           const auto* kernel = std::get_if<Kernel>(&op.body);
           return kernel != nullptr && kernel->kind == KernelKind::update;
         });
         update.id = OpId(1'000'000);
         logprob_ops(p).push_back(update);
       }},
  };
  for (const auto& [what, edit] : edits) {
    Program program = right_logprob();
    edit(program);
    EXPECT_NE(logprob_error(program), "") << what;
    EXPECT_NE(test::checker_refusal(program), "") << what;
  }
}

}  // namespace
}  // namespace mfsdp
