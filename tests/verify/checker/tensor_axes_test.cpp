// Ranks that share blocks beside others that share sequences or experts, and with adapters: plans are
// clean, and both judges find what is left out of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

PlanConfig blocks_and(std::int64_t shards) {
  PlanConfig config = test::small_config(shards);
  config.model.heads = config.model.kv_heads = 4;
  config.mesh.resize(Axis::tp, 2);
  return config;
}

PlanConfig blocks_and_sequences() {
  PlanConfig config = blocks_and(1);
  config.mesh.resize(Axis::cp, 2);
  config.document_mask = true;
  return config;
}

PlanConfig blocks_and_experts() {
  PlanConfig config = blocks_and(2);
  test::add_experts(config.model, 4, 2);
  config.model.router_aux_loss = {1, 100};
  config.model.qk_norm = true;
  config.expert_parallel = 4;
  config.mesh = with_expert_grid(config.mesh, 4);
  return config;
}

PlanConfig blocks_and_adapters() {
  PlanConfig config = blocks_and(2);
  config.lora_rank = 2;
  config.lora_alpha = {8, 1};
  config.lora_targets = {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"};
  return config;
}

void expect_clean(const PlanConfig& config) {
  const Program program = build_program(config, {}).value();
  EXPECT_THAT(test::proof_errors(program), testing::IsEmpty());
  EXPECT_EQ(test::checker_refusal(program), "");
}

/// Whether proof and checker both refuse the edited plan.
void expect_both_find(const PlanConfig& config, const std::string& what,
                      const std::function<void(Program&)>& edit) {
  Program program = build_program(config, {}).value();
  edit(program);
  EXPECT_THAT(test::proof_errors(program), testing::Not(testing::IsEmpty())) << what;
  EXPECT_NE(test::checker_refusal(program), "") << what;
}

std::vector<Op>& ops_of_step(Program& program) { return program.plans[0].segments[0].ops; }

Op& op_named(Program& program, const std::string& name, OpKind kind) {
  return *std::ranges::find_if(ops_of_step(program),
                               [&](const Op& op) { return op.name == name && op.kind() == kind; });
}

TEST(TensorParallelBeside, PlansAreClean) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (PlanConfig config :
         {blocks_and_sequences(), blocks_and_experts(), blocks_and_adapters()}) {
      config.recompute.kind = recompute;
      config.microbatches = recompute == Recompute::selective ? 2 : 1;
      expect_clean(config);
    }
}

/// Biases of qkv, norms of heads and of outputs, another activation, windows and scales.
TEST(TensorParallelBeside, OtherBlocksThanLlamasAreClean) {
  PlanConfig config = blocks_and(2);
  ModelShape& model = config.model;
  model.qkv_bias = model.qk_norm = model.output_norms = model.scaled_embedding = true;
  model.activation = Activation::gelu_tanh;
  model.sliding_window = 4;
  model.sliding_layers = {1};
  model.local_rope_theta = {100, 1};
  expect_clean(config);
  // Its gradient is that of a rank's outputs, the norms' a term of each rank.
  for (std::size_t g = 0; g < 7; ++g)
    expect_both_find(config, std::to_string(g), [&](Program& program) {
      std::vector<Axis>& reduce = program.groups[g].reduce;
      if (std::erase(reduce, Axis::tp) == 0) reduce.push_back(Axis::tp);
    });
}

TEST(TensorParallelBeside, EachExchangeOfHeadsGoesOverCp) {
  int exchanges = 0;
  Program program = build_program(blocks_and_sequences(), {}).value();
  for (const Op& op : ops_of_step(program)) {
    const auto* body = std::get_if<Collective>(&op.body);
    if (body == nullptr || body->kind != CollectiveKind::all_to_all) continue;
    ++exchanges;
    expect_both_find(blocks_and_sequences(), op.name, [&](Program& broken) {
      const auto over_tp =
          std::ranges::find(broken.communicators, std::vector{Axis::tp}, &Communicator::axes);
      std::get<Collective>(op_named(broken, op.name, OpKind::collective).body).communicator =
          over_tp->id;
    });
  }
  EXPECT_EQ(exchanges, 2 * 4);  // two each way in each block
}

/// The balance of a sequence is by the counts of all ranks' rows, and each adds its share of it.
TEST(TensorParallelBeside, CountsOfExpertsAreSummedOnce) {
  const std::string sums = "layers.1.expert_counts.sums";
  expect_both_find(blocks_and_experts(), "twice", [&](Program& program) {
    std::vector<Op>& ops = ops_of_step(program);
    const auto at = std::ranges::find_if(ops, [&](const Op& op) { return op.name == sums; });
    Op again = *at;
    again.id = OpId(100'000);
    auto& body = std::get<Collective>(again.body);
    body.input.buffer = body.output.buffer;
    ops.insert(at + 1, again);
  });
  expect_both_find(blocks_and_experts(), "never", [&](Program& program) {
    const OpKind kernel = OpKind::kernel;
    const auto own =
        std::get<Collective>(op_named(program, sums, OpKind::collective).body).input.buffer;
    for (Operand& operand :
         std::get<Kernel>(op_named(program, "layers.1.route.backward", kernel).body).operands)
      if (operand.role == "counts") operand.buffer = own;
    std::erase_if(ops_of_step(program), [&](const Op& op) { return op.name == sums; });
  });
  expect_both_find(blocks_and_experts(), "whole coefficient", [&](Program& program) {
    for (Attribute& attribute :
         std::get<Kernel>(op_named(program, "layers.1.route.backward", OpKind::kernel).body)
             .attributes)
      if (attribute.name == "aux_loss") attribute.value = {1, 100};
  });
}

/// Each rank has a term of the gradient of parameters that are whole beside cut matrices.
TEST(TensorParallelBeside, GradientsOfWholeAdaptersAreSummed) {
  const Program program = build_program(blocks_and_adapters(), {}).value();
  int whole = 0;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    if (!group.requires_grad || !group.shard.empty()) continue;
    ++whole;
    expect_both_find(blocks_and_adapters(), std::to_string(g),
                     [&](Program& broken) { std::erase(broken.groups[g].reduce, Axis::tp); });
  }
  EXPECT_EQ(whole, 2);  // of each block
}

}  // namespace
}  // namespace mfsdp
