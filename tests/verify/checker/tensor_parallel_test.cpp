// A plan of two ranks that share each block's weights: proof and checker follow layouts of values,
// and find what is read in another layout than its kernel takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/plan/check.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/shipped_plan.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

Program right_tp() { return test::shipped_plan("tensor_parallel/llama_tp2.json"); }

/// The first error of the proof. The checker must refuse the plan too.
std::string first_tp_error(const std::function<void(Program&)>& edit) {
  Program program = right_tp();
  edit(program);
  EXPECT_NE(test::checker_refusal(program), "");
  const auto errors = test::proof_errors(program);
  return errors.empty() ? std::string() : errors.front();
}

std::vector<Op>& tp_step(Program& program) { return program.plans[0].segments[0].ops; }

bool sums_values(const Op& op) { return op.name.ends_with(".all_reduce"); }

std::vector<std::string> names_of_sums() {
  std::vector<std::string> names;
  Program program = right_tp();
  for (const Op& op : tp_step(program))
    if (sums_values(op)) names.push_back(op.name);
  return names;
}

Op& find_tp_op(Program& program, const std::string& name, OpKind kind) {
  return *std::ranges::find_if(tp_step(program),
                               [&](const Op& op) { return op.name == name && op.kind() == kind; });
}

Attribute& tp_vocab_begin(Program& program, const std::string& op) {
  auto& attributes = std::get<Kernel>(find_tp_op(program, op, OpKind::kernel).body).attributes;
  return *std::ranges::find(attributes, "vocab_begin", &Attribute::name);
}

TEST(TensorParallel, IsClean) {
  EXPECT_THAT(test::proof_errors(right_tp()), testing::IsEmpty());
  EXPECT_EQ(test::checker_refusal(right_tp()), "");
  EXPECT_EQ(names_of_sums().size(), 1 + 2 * 4);  // the embedding; two each way in each block
}

TEST(TensorParallel, APartialValueIsNotReadAsWhole) {
  for (const std::string& name : names_of_sums())
    EXPECT_THAT(first_tp_error([&](Program& program) {
                  std::erase_if(tp_step(program), [&](const Op& op) { return op.name == name; });
                }),
                testing::AllOf(HasSubstr("MF113"), HasSubstr("in layout partial along tp")))
        << name;
}

TEST(TensorParallel, AWholeValueIsNotSummed) {
  for (const std::string& name : names_of_sums())
    EXPECT_THAT(first_tp_error([&](Program& program) {
                  std::vector<Op>& ops = tp_step(program);
                  const auto at = std::ranges::find(ops, name, &Op::name);
                  Op again = *at;
                  again.id = OpId(100'000);
                  ops.insert(at + 1, again);
                }),
                testing::AllOf(HasSubstr("MF113"), HasSubstr("by a all_reduce over tp")))
        << name;
}

TEST(TensorParallel, APartialValueIsNotMovedOtherwise) {
  for (const CollectiveKind kind : {CollectiveKind::all_to_all, CollectiveKind::all_gather})
    EXPECT_NE(
        first_tp_error([&](Program& program) {
          auto& sum = std::get<Collective>(
              find_tp_op(program, "layers.0.attention_out.all_reduce", OpKind::collective).body);
          sum.kind = kind;
          sum.reduction = Reduction::none;
          sum.count /= 2;
        }),
        "");
}

TEST(TensorParallel, APartOfTheVocabularyBeginsAfterThatOfTheRankBefore) {
  using BeginEdit = void (*)(Attribute&);
  for (const std::string op : {"embedding.lookup", "embedding.lookup.backward"})
    for (const BeginEdit edit :
         {BeginEdit{[](Attribute& begin) { --begin.per[0].step; }},
          BeginEdit{[](Attribute& begin) { begin.per.clear(); }},
          BeginEdit{[](Attribute& begin) { begin.value.num = 1; }},
          BeginEdit{[](Attribute& begin) { begin.name = "vocab_end"; }},
          BeginEdit{[](Attribute& begin) { begin.per[0].axis = Axis::dp_shard; }},
          BeginEdit{[](Attribute& begin) {
            begin.value.num = begin.per[0].step;
            begin.per[0].step *= -1;
          }}})
      EXPECT_NE(first_tp_error([&](Program& program) { edit(tp_vocab_begin(program, op)); }), "")
          << op;
}

TEST(TensorParallel, GradientsAreSummedOnlyWhereRanksHaveOtherTokens) {
  for (std::size_t g = 0; g < right_tp().groups.size(); ++g)
    EXPECT_NE(first_tp_error([&](Program& program) { program.groups[g].reduce = {Axis::tp}; }), "")
        << g;
}

/// A weight that is cut at its inputs is none that is cut at its outputs, even if it is square.
TEST(TensorParallel, WeightsAreCutAtTheSideThatTheirValuesNeed) {
  for (std::size_t g = 0; g < right_tp().groups.size(); ++g) {
    if (right_tp().groups[g].shard.empty()) continue;
    EXPECT_NE(first_tp_error([&](Program& program) {
                auto& dim = *program.groups[g].shard[0].dim;
                dim = 1 - dim;
              }),
              "")
        << g;
    EXPECT_NE(first_tp_error([&](Program& program) { program.groups[g].shard.clear(); }), "") << g;
  }
}

/// Elements that both ranks have count once in the norm.
TEST(TensorParallel, TheNormCountsWhatIsWholeOnce) {
  const std::string name = "head.norm_partial";
  EXPECT_THAT(first_tp_error([&](Program& program) {
                auto& input =
                    std::get<Kernel>(find_tp_op(program, name, OpKind::kernel).body).operands[0];
                input.rank_strides.clear();
                input.shape[0] *= 2;
              }),
              HasSubstr("MF"));
}

}  // namespace
}  // namespace mfsdp
