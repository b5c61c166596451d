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

using P = ParameterRole;

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

/// Two ranks hold each head of keys.
PlanConfig blocks_and_parts_of_keys() {
  PlanConfig config = blocks_and(2);
  config.model.kv_heads = 2;
  config.mesh.resize(Axis::tp, 4);
  return config;
}

PlanConfig blocks_of_gpt_oss() {
  PlanConfig config = blocks_and(2);
  test::make_family(config.model, Family::gpt_oss);
  return config;
}

PlanConfig blocks_of_deepseek() {
  PlanConfig config = blocks_and(2);
  test::make_family(config.model, Family::deepseek);
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
         {blocks_and_sequences(), blocks_and_experts(), blocks_and_adapters(), blocks_of_gpt_oss(),
          blocks_and_parts_of_keys(), blocks_of_deepseek()}) {
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

TEST(TensorParallelBeside, NormsOfHeadsGoByWholeOnes) {
  PlanConfig config = blocks_and_parts_of_keys();
  config.model.qk_norm = config.model.qkv_bias = true;
  expect_clean(config);
}

/// Each rank takes the parts of its own head, and sums the gradients of its own part.
TEST(TensorParallelBeside, PartsOfKeysAreThoseOfTheHead) {
  const auto attributes = [](Program& program, const char* name) -> std::vector<Attribute>& {
    return std::get<Kernel>(op_named(program, name, OpKind::kernel).body).attributes;
  };
  const char* const joins = "layers.1.qkv.join";
  expect_both_find(blocks_and_parts_of_keys(), "of rank 0", [&](Program& program) {
    std::ranges::find(attributes(program, joins), "rank", &Attribute::name)->per.clear();
  });
  expect_both_find(blocks_and_parts_of_keys(), "of all", [&](Program& program) {
    std::ranges::find(attributes(program, joins), "holders", &Attribute::name)->value = {4, 1};
  });
  expect_both_find(blocks_and_parts_of_keys(), "not summed", [](Program& program) {
    std::get<Collective>(op_named(program, "layers.1.d_key_parts.sums", OpKind::collective).body)
        .reduction = Reduction::max;
  });
}

/// Each rank has a term of the gradient of the elements that all heads share, and of vectors.
TEST(TensorParallelBeside, GradientsOfLatentVectorsAreSummed) {
  const std::string turned = "layers.1.d_turned.sums";
  expect_both_find(blocks_of_deepseek(), "another value", [&](Program& program) {
    auto& sums = std::get<Collective>(op_named(program, turned, OpKind::collective).body);
    sums.kind = CollectiveKind::all_gather;
    sums.reduction = Reduction::none;
  });
  for (const P role : {P::kv_a, P::q_a_norm})
    expect_both_find(blocks_of_deepseek(), std::string(to_string(role)), [&](Program& program) {
      for (Group& group : program.groups)
        if (std::ranges::find(group.parameters, role, &PlacedParameter::role) !=
            group.parameters.end())
          std::erase(group.reduce, Axis::tp);
    });
}

/// A bias that each rank adds to its term would be in the sum once for each.
TEST(TensorParallelBeside, BiasesOfSumsAreAddedOnce) {
  expect_both_find(blocks_of_gpt_oss(), "to terms", [](Program& program) {
    std::vector<Op>& ops = ops_of_step(program);
    auto& product =
        std::get<Kernel>(op_named(program, "layers.0.attention_out", OpKind::kernel).body);
    const auto at = std::ranges::find(ops, "layers.0.attention_out.bias", &Op::name);
    Operand bias =
        *std::ranges::find(std::get<Kernel>(at->body).operands, "weight", &Operand::role);
    product.operands.insert(product.operands.begin() + 2, bias);
    ops.erase(at);
  });
  expect_both_find(blocks_of_gpt_oss(), "to all gradients", [](Program& program) {
    for (Group& group : program.groups)
      if (std::ranges::find(group.parameters, ParameterRole::attention_out_bias,
                            &PlacedParameter::role) != group.parameters.end())
        std::erase(group.reduce, Axis::tp);
  });
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
