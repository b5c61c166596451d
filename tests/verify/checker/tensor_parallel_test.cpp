// Plans of ranks that share each block's weights, one by hand and the planner's: proof and checker
// follow layouts of values, and find what is read in another layout than its kernel takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/plan/check.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/shipped_plan.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

Program right_tp() { return test::shipped_plan("tensor_parallel/llama_tp2.json"); }

/// The first error of the proof. The checker must refuse the plan too.
std::string first_tp_error(const std::function<void(Program&)>& edit,
                           Program program = right_tp()) {
  edit(program);
  EXPECT_NE(test::checker_refusal(program), "");
  return test::first_proof_error(program);
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

// ---- the planner's, whose ranks have the rows of other tokens between blocks ---------------------

PlanConfig rows_config(std::int64_t shards = 2) {
  PlanConfig config = test::small_config(shards);
  config.model.kv_heads = 2;
  config.logits_chunk = 6;
  config.mesh.resize(Axis::tp, 2);
  return config;
}

std::string first_rows_error(const std::function<void(Program&)>& edit, std::int64_t shards = 2) {
  return first_tp_error(edit, build_program(rows_config(shards), {}).value());
}

/// The collective of that name; events have it too.
void drop(Program& program, const std::string& name) {
  EXPECT_EQ(std::erase_if(
                tp_step(program),
                [&](const Op& op) { return op.name == name && op.kind() == OpKind::collective; }),
            1)
      << name;
}

TEST(TensorParallelRows, PlansAreClean) {
  using enum Strategy;
  for (const std::int64_t shards : {1, 2})
    for (const Strategy strategy : {optim, optim_grads, optim_grads_params})
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        PlanConfig config = rows_config(shards);
        config.strategy = strategy;
        config.recompute.kind = recompute;
        config.model.tied_embeddings = shards == 1;
        config.microbatches = strategy == optim ? 3 : 1;
        config.micro_batch = recompute == Recompute::full ? 2 : 1;
        const Program program = build_program(config, {}).value();
        EXPECT_THAT(test::proof_errors(program), testing::IsEmpty());
        EXPECT_EQ(test::checker_refusal(program), "");
      }
}

TEST(TensorParallelRows, PlansOverReplicasAreClean) {
  PlanConfig config = rows_config();
  config.mesh.resize(Axis::dp_outer, 2);
  const Program program = build_program(config, {}).value();
  EXPECT_THAT(test::proof_errors(program), testing::IsEmpty());
  EXPECT_EQ(test::checker_refusal(program), "");
}

/// Sequence parallelism's gathers and sums, each left out.
TEST(TensorParallelRows, EachGatherAndSumIsNeeded) {
  std::vector<std::string> names;
  Program program = build_program(rows_config(), {}).value();
  for (const Op& op : tp_step(program))
    if (op.kind() == OpKind::collective &&
        (op.name.ends_with(".rows") || op.name.ends_with(".sums")))
      names.push_back(op.name);
  // Two of each in a block forward, four gathers and two sums backward; at the ends a sum or gather
  // each way, and a gather for each chunk of logits.
  EXPECT_EQ(names.size(), 2 * (4 + 6) + 4 + 3);
  for (const std::string& name : names)
    EXPECT_NE(first_rows_error([&](Program& broken) { drop(broken, name); }), "") << name;
}

/// Norms' weights are whole on each rank, and their gradients are of the rank's rows.
TEST(TensorParallelRows, GradientsOfNormsAreSummedOverTp) {
  EXPECT_THAT(
      first_rows_error([](Program& program) { drop(program, "layers.0.whole.reduce_scatter"); }, 1),
      HasSubstr("which contains bytes that nothing wrote"));
  for (std::size_t g = 0; g < 7; ++g)
    EXPECT_NE(first_rows_error([&](Program& program) {
                std::vector<Axis>& reduce = program.groups[g].reduce;
                if (std::erase(reduce, Axis::tp) == 0) reduce.push_back(Axis::tp);
              }),
              "")
        << g;
}

TEST(TensorParallelRows, ALossOfPartsIsOfAllPartsOfItsRows) {
  using KernelEdit = void (*)(Kernel&);
  const auto edited = [](const std::string& name, KernelEdit edit) {
    return first_rows_error([&](Program& program) {
      edit(std::get<Kernel>(find_tp_op(program, name, OpKind::kernel).body));
    });
  };
  for (const std::string name : {"head.chunk1.softmax_parts", "head.chunk1.cross_entropy"}) {
    EXPECT_NE(edited(name,
                     [](Kernel& kernel) {
                       for (Attribute& attribute : kernel.attributes)
                         if (attribute.name == "vocab_begin") ++attribute.per[0].step;
                     }),
              "");
    EXPECT_NE(edited(name,
                     [](Kernel& kernel) {
                       std::erase_if(kernel.attributes, [](const Attribute& attribute) {
                         return attribute.name == "vocab_begin";
                       });
                     }),
              "");
  }
  EXPECT_NE(edited("head.chunk1.cross_entropy",
                   [](Kernel& kernel) {
                     for (Attribute& attribute : kernel.attributes)
                       if (attribute.name == "peers") attribute.value.num = 1;
                   }),
            "");
  // Without parts a rank's columns pass for the whole row.
  EXPECT_NE(edited("head.chunk1.cross_entropy",
                   [](Kernel& kernel) {
                     std::erase_if(kernel.operands,
                                   [](const Operand& operand) { return operand.role == "parts"; });
                     std::erase_if(kernel.attributes, [](const Attribute& attribute) {
                       return attribute.name == "peers" || attribute.name == "vocab_begin";
                     });
                   }),
            "");
}

/// Each rank has the whole loss of its tokens: over ranks of tp it would count several times.
TEST(TensorParallelRows, TheLossIsNotSummedOverTp) {
  EXPECT_THAT(first_rows_error([](Program& program) {
                const auto find = [&](const char* purpose) {
                  return std::ranges::find(program.communicators, purpose, &Communicator::purpose);
                };
                auto& gather = std::get<Collective>(
                    find_tp_op(program, "loss.all_gather", OpKind::collective).body);
                gather.communicator = find("activations.tp")->id;
              }),
              HasSubstr("MF307"));
}

RC_GTEST_PROP(TensorParallelRows, AllPlansAreClean, ()) {
  const PlanConfig config = test::over_tensor_ranks(*test::any_config());
  const auto program = build_program(config, {});
  if (!program) RC_FAIL(program.error().message());
  RC_ASSERT(test::proof_errors(*program) == std::vector<std::string>());
  RC_ASSERT(test::checker_refusal(*program) == "");
}

}  // namespace
}  // namespace mfsdp
