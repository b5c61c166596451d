#include "core/plan/tensor_parallel.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/shard/groups.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

/// Two ranks that read other sequences, each with another that shares its blocks.
PlanConfig tp_config() {
  PlanConfig config = test::small_config(2);
  config.model.kv_heads = 2;
  config.mesh.resize(Axis::tp, 2);
  return config;
}

std::string tp_refusal_after(void (*edit)(PlanConfig&)) {
  PlanConfig config = tp_config();
  edit(config);
  const auto outcome = validate(config);
  return outcome ? "" : outcome.error().message();
}

TEST(TensorParallelConfig, CountsTheSequencesOfRanksThatReadOthers) {
  const PlanConfig config = tp_config();
  EXPECT_EQ(tp_refusal_after([](PlanConfig&) {}), "");
  EXPECT_EQ(config.tokens_per_microbatch(), 16);
  EXPECT_EQ(config.global_batch(), 2);
  EXPECT_EQ(loss_axes(config.mesh), std::vector{Axis::dp_shard});
  EXPECT_EQ(token_axes(config.mesh), (std::vector{Axis::dp_shard, Axis::tp}));
}

TEST(TensorParallelConfig, NamesTheRuleAndItsNumbers) {
  const auto divides = [](const char* what) {
    return std::string("--tp: expected a number of ranks that divides the ") + what + ", got 2";
  };
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.model.heads = c.model.kv_heads = 3; }),
            divides("3 attention heads"));
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.model.kv_heads = 1; }), "");
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) {
              c.model.heads = 6;
              c.model.kv_heads = 3;
            }),
            divides("3 key-value heads"));
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.model.intermediate = 13; }),
            divides("13 features of the MLP"));
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.model.vocab = 25; }),
            divides("25 ids of the vocabulary"));
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.seq_len = 15; }),
            divides("15 tokens of a microbatch (--micro-batch x --seq-len)"));
}

TEST(TensorParallelConfig, NamesWhatItCannotBeCombinedWith) {
  const auto so_far = [](const char* what) {
    return std::string("--tp: cannot be combined with ") + what + " so far";
  };
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { test::make_family(c.model, Family::gpt2); }),
            so_far("learned positions"));
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { test::make_family(c.model, Family::gpt_oss); }),
            "");
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.model.logit_cap = {30, 1}; }), "");
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) {
              test::make_family(c.model, Family::olmoe);
              c.model.qk_norm = true;
            }),
            so_far("norms of queries and keys over all heads"));
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) {
              test::add_experts(c.model, 4, 2);
              c.model.router_aux_loss = {1, 100};
              c.micro_batch = 2;
            }),
            "--micro-batch: expected 1 with --tp and a loss of experts' balance "
            "(router_aux_loss_coef), got 2");
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.optimizer = Optimizer::muon; }),
            so_far("--optimizer muon"));
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.layout = LayoutRule::megatron_fsdp; }),
            so_far("--layout megatron_fsdp"));
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.strategy = Strategy::no_shard; }),
            "--strategy: expected optim, optim_grads or optim_grads_params with --tp: norms' "
            "weights are whole on each rank, and each rank updates a part of them, got no_shard");
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) { c.exact_sums = true, c.logits_chunk = 16; }),
            "--exact-sums: cannot be combined with --tp: terms of a sum are rounded on each rank "
            "before they are added");
}

TEST(TensorParallelConfig, HeadsAreSharedWithRanksOfCp) {
  const auto four_by_two = [](PlanConfig& c) {
    c.model.heads = 8;
    c.model.kv_heads = 4;
    c.mesh.resize(Axis::cp, 2);
  };
  EXPECT_EQ(tp_refusal_after(four_by_two), "");
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) {
              c.model.heads = 8;
              c.mesh.resize(Axis::cp, 2);
            }),
            "--tp: expected a number of ranks that, times the 2 of --cp, divides the 2 key-value "
            "heads, got 2");
  EXPECT_EQ(tp_refusal_after([](PlanConfig& c) {
              c.mesh.resize(Axis::cp, 2);
              c.cp_comm = ContextExchange::p2p;  // heads stay on their rank of tp
            }),
            "");
}

/// On the experts' grid ranks of tp are data ranks.
TEST(TensorParallelConfig, ExpertsAreDealtOverRanksOfTp) {
  const auto dealt = [](PlanConfig& c) {
    test::add_experts(c.model, 4, 2);
    c.expert_parallel = 4;
    c.mesh = with_expert_grid(c.mesh, 4);
  };
  EXPECT_EQ(tp_refusal_after(dealt), "");
  PlanConfig config = tp_config();
  dealt(config);
  EXPECT_EQ(config.mesh.experts, (std::vector<MeshAxis>{{.axis = Axis::ep, .size = 4}}));
  EXPECT_EQ(config.rows_per_microbatch(), 8);
  EXPECT_EQ(config.rows_per_peer(), 16);
}

/// Heads and features are other ones on each rank; norms are whole, and their flat layout is cut
/// over tp, so that each rank updates other elements of every group.
TEST(TensorParallelConfig, CutsWeightsByHeadsFeaturesAndVocabulary) {
  const PlanConfig config = tp_config();
  const auto dim_of = [](const Group& group) {
    return group.shard.empty() ? std::nullopt : group.shard.front().dim;
  };
  std::vector<std::string> seen;
  for (const Group& group : make_groups(make_model(config), config)) {
    EXPECT_EQ(ranks_on(group.cut, config.mesh), group.shard.empty() ? 4 : 2);
    EXPECT_EQ(group.reduce, group.shard.empty() ? (std::vector{Axis::dp_shard, Axis::tp})
                                                : std::vector{Axis::dp_shard});
    for (const PlacedParameter& parameter : group.parameters) {
      EXPECT_EQ(dim_of(group), tensor_dim(parameter.role)) << parameter.name;
      if (group.unit.value < 2) seen.emplace_back(to_string(parameter.role));
      if (parameter.role == ParameterRole::qkv) {
        EXPECT_EQ(parameter.shape, (std::vector<std::int64_t>{12, 8}));
      }
      if (parameter.role == ParameterRole::down) {
        EXPECT_EQ(parameter.shape, (std::vector<std::int64_t>{8, 6}));
      }
      EXPECT_EQ(whole_parameter(parameter, group, config.mesh).elements(),
                parameter.elements() * (group.shard.empty() ? 1 : 2));
    }
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"embedding", "qkv", "gate_up", "attention_out", "down",
                                            "input_norm", "post_norm"}));
}

}  // namespace
}  // namespace mfsdp
