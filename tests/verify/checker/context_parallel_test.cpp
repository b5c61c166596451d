// Plans of ranks that share sequences: proof and checker accept those of the planner, and refuse
// them where attention would not see what it must.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/plan/check.hpp"
#include "core/plan/kernels/fp8.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/rename_axis.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

PlanConfig shared_sequences(std::int64_t outer = 1, std::int64_t shard = 2, std::int64_t cp = 2) {
  PlanConfig config = test::small_config(1);
  config.model.heads = 8;
  config.model.kv_heads = 4;
  config.mesh = data_parallel_mesh(outer, shard);
  config.mesh.resize(Axis::cp, cp);
  return config;
}

PlanConfig gathered_keys(std::int64_t shard = 2, std::int64_t cp = 2) {
  PlanConfig config = shared_sequences(1, shard, cp);
  config.model.kv_heads = 1;
  config.cp_comm = ContextExchange::all_gather;
  return config;
}

Program program_of(const PlanConfig& config) { return build_program(config, {}).value(); }

void expect_accepted(const PlanConfig& config) {
  const Program program = program_of(config);
  EXPECT_THAT(test::proof_errors(program), testing::IsEmpty());
  EXPECT_EQ(test::checker_refusal(program), "");
}

TEST(ContextParallelProof, AcceptsThePlannersPlans) {
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params}) {
    PlanConfig config = shared_sequences();
    config.strategy = strategy;
    config.microbatches = 2;
    expect_accepted(config);
  }
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    PlanConfig config = shared_sequences(1, 1, 4);
    config.recompute.kind = recompute;
    config.document_mask = recompute == Recompute::full;
    config.exact_sums = recompute == Recompute::none;
    config.logits_chunk = 4;
    expect_accepted(config);
  }
  PlanConfig config = shared_sequences(2);
  expect_accepted(config);
  config.outer_strategy = Strategy::optim;
  config.reduce_dtype = DType::bf16;
  expect_accepted(config);
}

void expect_accepted_with(ContextExchange exchange) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    PlanConfig config = gathered_keys();
    config.cp_comm = exchange;
    config.recompute.kind = recompute;
    config.microbatches = 2;
    config.document_mask = recompute == Recompute::full;
    expect_accepted(config);
  }
  PlanConfig config = gathered_keys(1, 4);
  config.cp_comm = exchange;
  config.strategy = Strategy::optim;
  config.model.sliding_window = 6;
  config.model.sliding_layers = {0};
  expect_accepted(config);
  config = gathered_keys();
  config.cp_comm = exchange;
  config.model.kv_heads = 2;
  config.mesh.resize(Axis::tp, 2);
  expect_accepted(config);
}

TEST(ContextParallelProof, AcceptsPlansWithGatheredKeys) {
  expect_accepted_with(ContextExchange::all_gather);
}
TEST(ContextParallelProof, AcceptsRings) { expect_accepted_with(ContextExchange::p2p); }

/// Any configuration with what cannot be combined with cp taken back.
PlanConfig with_shared_sequences(PlanConfig config, std::int64_t ranks) {
  config.mesh.resize(Axis::dp_shard, std::min<std::int64_t>(config.mesh.size(Axis::dp_shard), 3));
  config.mesh.resize(Axis::cp, ranks);
  config.cp_comm =
      *rc::gen::element(ContextExchange::a2a, ContextExchange::all_gather, ContextExchange::p2p);
  const bool by_heads = config.cp_comm == ContextExchange::a2a;
  config.model.heads *= by_heads ? ranks : 1;
  config.model.kv_heads *= by_heads ? ranks : 1;
  config.seq_len = (config.has_fp8() ? kernels::kFp8Grain : 2) * ranks;
  config.model.max_seq_len = std::max(config.model.max_seq_len, config.seq_len);
  if (config.cp_comm != ContextExchange::p2p) config.micro_batch = 1;
  config.gather = config.reduce = Transport::nccl;
  if (orthogonalises(config.optimizer)) config.optimizer = Optimizer::adamw;
  test::drop_impossible_fp8(config);
  return config;
}

RC_GTEST_PROP(ContextParallelProof, AcceptsRandomConfigurations, ()) {
  PlanConfig config = *test::any_config();
  // Configurations of other families, and ranks that share experts, are refused with cp.
  if (config.model.family != Family::llama || config.is_expert_parallel() ||
      config.model.router_aux_loss.num != 0)
    return;
  config = with_shared_sequences(config, *rc::gen::element<std::int64_t>(2, 3, 4));
  RC_ASSERT(validate(config));
  const Program program = program_of(config);
  RC_ASSERT(test::proof_errors(program).empty());
  RC_ASSERT(test::checker_refusal(program).empty());
}

std::vector<Op>& ops_of_step(Program& program) { return program.plans[0].segments[0].ops; }

/// The first error of the proof. The checker must refuse the plan too.
std::string first_error(const std::function<void(Program&)>& edit,
                        const PlanConfig& config = shared_sequences()) {
  Program program = program_of(config);
  edit(program);
  EXPECT_NE(test::checker_refusal(program), "");
  return test::first_proof_error(program);
}

std::vector<std::string> names_of_exchanges() {
  std::vector<std::string> names;
  Program program = program_of(shared_sequences());
  for (const Op& op : ops_of_step(program))
    if (op.kind() == OpKind::collective && op.name.ends_with(".exchange")) names.push_back(op.name);
  return names;
}

TEST(ContextParallelProof, RowsAndHeadsAreExchangedOverTheRanksThatShareThem) {
  EXPECT_EQ(names_of_exchanges().size(), 2U * 4);  // each way, in both blocks
  for (const std::string& name : names_of_exchanges()) {
    EXPECT_THAT(first_error([&](Program& program) {
                  std::erase_if(ops_of_step(program), [&](const Op& op) {
                    return op.name == name && op.kind() == OpKind::collective;
                  });
                }),
                HasSubstr("no op has written it"))
        << name;
    EXPECT_THAT(first_error([&](Program& program) {
                  const auto over_shards = std::ranges::find(
                      program.communicators, "activations.cp", &Communicator::purpose);
                  Communicator other = *over_shards;
                  other.id = CommunicatorId(program.communicators.size());
                  other.axes = {Axis::dp_shard};
                  other.purpose = "other";
                  const auto at = std::ranges::find_if(ops_of_step(program), [&](const Op& op) {
                    return op.name == name && op.kind() == OpKind::collective;
                  });
                  std::get<Collective>(at->body).communicator = other.id;
                  program.communicators.push_back(other);
                }),
                HasSubstr("expected an all_to_all over cp"))
        << name;
  }
}

/// Ranks that differ in data alone are none that share sequences: attention would see parts.
TEST(ContextParallelProof, AttentionOfPartsOfSequencesIsFound) {
  PlanConfig config = shared_sequences(2, 2, 1);
  for (const Axis axis : {Axis::dp_outer, Axis::dp_shard}) {
    Program program = program_of(config);
    test::rename_axis(program, axis, Axis::cp);
    std::ranges::sort(program.config.mesh.dense, {}, &MeshAxis::axis);
    EXPECT_FALSE(test::proof_errors(program).empty());
    EXPECT_NE(test::checker_refusal(program), "");
  }
}

TEST(ContextParallelProof, GroupsAreThoseOfTheRanks) {
  for (const std::string name : {"layers.0.qkv.split", "layers.1.attention.join"})
    for (const std::string attribute : {"cols", "groups", "rows"})
      EXPECT_NE(first_error([&](Program& program) {
                  const auto at = std::ranges::find(ops_of_step(program), name, &Op::name);
                  auto& attributes = std::get<Kernel>(at->body).attributes;
                  std::ranges::find(attributes, attribute, &Attribute::name)->value.num *= 2;
                }),
                "")
          << name << ' ' << attribute;
}

TEST(ContextParallelProof, GradientsAreSummedOverAllTokens) {
  for (const std::size_t g : {0U, 1U})
    EXPECT_NE(first_error([&](Program& program) { program.groups[g].reduce = {Axis::dp_shard}; }),
              "");
}

Op& op_named(Program& program, std::string_view name) {
  return *std::ranges::find_if(ops_of_step(program), [&](const Op& op) {
    return op.name == name && (op.kind() == OpKind::kernel || op.kind() == OpKind::collective);
  });
}
Attribute& attribute_of(Program& program, std::string_view op, std::string_view name) {
  auto& attributes = std::get<Kernel>(op_named(program, op).body).attributes;
  return *std::ranges::find(attributes, name, &Attribute::name);
}
std::string first_gathered_error(const std::function<void(Program&)>& edit) {
  return first_error(edit, gathered_keys());
}

/// Each causal pair of chunks is on one rank.
TEST(GatheredKeysProof, EachPairIsComputedOnce) {
  EXPECT_THAT(first_gathered_error(
                  [](Program& p) { attribute_of(p, "layers.0.attention", "part").per.clear(); }),
              HasSubstr("is computed on 2 ranks of cp for the queries of chunk 0 and the keys of "
                        "chunk 0, of 4 chunks"));
  EXPECT_THAT(first_gathered_error([](Program& p) {
                Attribute& part = attribute_of(p, "layers.0.attention", "part");
                part.value.num = 1;  // ranks in the other order
                part.per[0].step = -1;
              }),
              HasSubstr("has another part of each sequence than that of its index on cp"));
  for (const char* kernel : {"layers.0.rope", "layers.1.rope.backward"})
    EXPECT_THAT(first_gathered_error([&](Program& p) {
                  Attribute& part = attribute_of(p, kernel, "part");
                  part.value.num = 1;
                  part.per[0].step = -1;
                }),
                HasSubstr("has another part of each sequence"));
}

/// Only an all-gather makes keys whole, and only a reduce-scatter sums terms of their gradients.
TEST(GatheredKeysProof, KeysAreGatheredAndTheirGradientsSummed) {
  EXPECT_THAT(first_gathered_error([](Program& p) {
                auto& sums = std::get<Collective>(op_named(p, "layers.0.d_keys.sums").body);
                sums.reduction = Reduction::none;
                sums.kind = CollectiveKind::all_to_all;
                sums.count /= 2;
                sums.output.buffer = sums.input.buffer;
              }),
              testing::Ne(""));
  for (const char* name :
       {"layers.0.keys.gather", "layers.1.keys.gather.back", "layers.0.d_keys.sums"}) {
    EXPECT_THAT(first_gathered_error([&](Program& p) {
                  std::erase_if(ops_of_step(p), [&](const Op& op) {
                    return op.name == name && op.kind() == OpKind::collective;
                  });
                }),
                HasSubstr("no op has written it"))
        << name;
    EXPECT_THAT(first_gathered_error([&](Program& p) {
                  Communicator other =
                      *std::ranges::find(p.communicators, "activations.cp", &Communicator::purpose);
                  other.id = CommunicatorId(p.communicators.size());
                  other.axes = {Axis::dp_shard};
                  other.purpose = "other";
                  std::get<Collective>(op_named(p, name).body).communicator = other.id;
                  p.communicators.push_back(other);
                }),
                HasSubstr("expected an all_gather over cp of a rank's keys"))
        << name;
  }
}

/// Keys of forward, at the place of those of backward: of another block.
TEST(GatheredKeysProof, AttentionReadsItsBlocksKeys) {
  EXPECT_NE(first_gathered_error([](Program& p) {
              auto& operands = std::get<Kernel>(op_named(p, "layers.0.attention").body).operands;
              std::swap(std::ranges::find(operands, "key", &Operand::role)->offset,
                        std::ranges::find(operands, "value", &Operand::role)->offset);
            }),
            "");
  for (const char* attribute : {"cols", "key_cols", "query_cols", "rows"})
    EXPECT_NE(first_gathered_error([&](Program& p) {
                attribute_of(p, "layers.0.d_qkv.join", attribute).value.num *= 2;
              }),
              "")
        << attribute;
}

}  // namespace
}  // namespace mfsdp
