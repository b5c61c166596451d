#include "core/plan/config.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

/// Llama-3-8B at 8192 tokens on 8 ranks.
PlanConfig good() {
  PlanConfig config;
  config.model.vocab = 128256;
  config.model.hidden = 4096;
  config.model.layers = 32;
  config.model.heads = 32;
  config.model.kv_heads = 8;
  config.model.head_dim = 128;
  config.model.intermediate = 14336;
  config.model.max_seq_len = 8192;
  config.mesh.resize(Axis::dp_shard, 8);
  return config;
}

std::string error_of(const PlanConfig& config) {
  const Result<void> outcome = validate(config);
  return outcome ? "no error" : outcome.error().message();
}

TEST(ShardedBy, StrategiesShardMoreAndMore) {
  EXPECT_EQ(sharded_by(Strategy::no_shard, 8), Sharded{});
  EXPECT_EQ(sharded_by(Strategy::optim, 8), (Sharded{.state = true}));
  EXPECT_EQ(sharded_by(Strategy::optim_grads, 8), (Sharded{.gradient = true, .state = true}));
  EXPECT_EQ(sharded_by(Strategy::optim_grads_params, 8), (Sharded{true, true, true}));
}

TEST(ShardedBy, NothingIsShardedOnAnAxisOfOne) {
  for (const auto strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    EXPECT_EQ(sharded_by(strategy, 1), Sharded{});
}

TEST(IsFrozen, MatchesPartsOfNames) {
  PlanConfig config = good();
  EXPECT_FALSE(config.is_frozen("model.embed_tokens.weight"));
  config.frozen = {"embed_tokens", "layers.3."};
  EXPECT_TRUE(config.is_frozen("model.embed_tokens.weight"));
  EXPECT_TRUE(config.is_frozen("model.layers.3.mlp.down_proj.weight"));
  EXPECT_FALSE(config.is_frozen("model.layers.30.mlp.down_proj.weight"));
}

PlanConfig with_lora(PlanConfig config) {
  config.lora_rank = 16;
  config.lora_alpha = {8, 1};
  config.lora_targets = {"q_proj", "v_proj"};
  return config;
}

TEST(Lora, ScaleIsAlphaByRank) {
  PlanConfig config = with_lora(good());
  EXPECT_EQ(config.lora_scale(), (Rational{1, 2}));  // 8 / 16
  config.lora_alpha = {5, 2};
  EXPECT_EQ(config.lora_scale(), (Rational{5, 32}));
  config.lora_alpha = {32, 1};
  EXPECT_EQ(config.lora_scale(), (Rational{2, 1}));
}

TEST(Lora, AdaptersAloneTrain) {
  const PlanConfig config = with_lora(good());
  EXPECT_TRUE(config.is_frozen("model.layers.3.self_attn.qkv_proj.weight"));
  EXPECT_FALSE(config.is_frozen("model.layers.3.self_attn.q_proj.lora_A.weight"));
}

struct Case {
  std::string name;
  std::function<void(PlanConfig&)> change;
  std::string message;
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

class Validate : public testing::TestWithParam<Case> {};

TEST_P(Validate, Says) {
  PlanConfig config = good();
  GetParam().change(config);
  EXPECT_EQ(error_of(config), GetParam().message);
}

const auto case_name = [](const auto& info) { return info.param.name; };
constexpr auto kGood = "no error";

INSTANTIATE_TEST_SUITE_P(
    Accepts, Validate,
    testing::Values(
        Case{"defaults", [](PlanConfig&) {}, kGood},
        Case{"no_prefetch", [](PlanConfig& c) { c.prefetch = 0; }, kGood},
        Case{"adapters", [](PlanConfig& c) { c = with_lora(c); }, kGood},
        Case{"adapters_of_one_matrix",
             [](PlanConfig& c) {
               c = with_lora(c);
               c.frozen = {"lora_A", "layers.0."};
             },
             kGood},
        Case{"one_gradient_slot", [](PlanConfig& c) { c.grad_slots = 1; }, kGood},
        Case{"no_clipping", [](PlanConfig& c) { c.clip = Rational{0, 1}; }, kGood},
        Case{"full_recompute_of_all",
             [](PlanConfig& c) { c.recompute = {.kind = Recompute::full, .full_blocks = 32}; },
             kGood},
        Case{"largest_mesh", [](PlanConfig& c) { c.mesh = data_parallel_mesh(1024, 1024); }, kGood},
        Case{"bf16_throughout",
             [](PlanConfig& c) { c.main_dtype = c.grad_dtype = c.reduce_dtype = DType::bf16; },
             kGood},
        Case{"tied_with_two_slots", [](PlanConfig& c) { c.model.tied_embeddings = true; }, kGood},
        Case{"tied_with_one_slot_reduced_once",
             [](PlanConfig& c) {
               c.model.tied_embeddings = true;
               c.strategy = Strategy::optim;
               c.grad_slots = 1;
             },
             kGood},
        Case{"hfsdp",
             [](PlanConfig& c) {
               c.mesh.resize(Axis::dp_outer, 2);
               c.outer_strategy = Strategy::optim;
             },
             kGood},
        Case{"frozen_embedding", [](PlanConfig& c) { c.frozen = {"embed_tokens"}; }, kGood},
        Case{"frozen_fused", [](PlanConfig& c) { c.frozen = {"qkv_proj", "mlp"}; }, kGood}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    RefusesCounts, Validate,
    testing::Values(
        Case{"no_gpus", [](PlanConfig& c) { c.mesh.resize(Axis::dp_shard, 0); },
             "--gpus: expected GPUs that share the shards from 1 to 1048576, got 0"},
        Case{"negative_outer", [](PlanConfig& c) { c.mesh.resize(Axis::dp_outer, -2); },
             "--outer-dp: expected a number of groups from 1 to 1048576, got -2"},
        Case{"too_many_gpus", [](PlanConfig& c) { c.mesh = data_parallel_mesh(1025, 1024); },
             "--gpus: expected at most 1048576 GPUs, got 1049600"},
        Case{"no_tokens", [](PlanConfig& c) { c.seq_len = 0; },
             "--seq-len: expected tokens from 1 to 16777216, got 0"},
        Case{"too_long", [](PlanConfig& c) { c.seq_len = 8193; },
             "--seq-len: expected at most the model's maximum of 8192 tokens, got 8193"},
        Case{"huge_length", [](PlanConfig& c) { c.seq_len = std::int64_t{1} << 62; },
             "--seq-len: expected tokens from 1 to 16777216, got 4611686018427387904"},
        Case{"no_micro_batch", [](PlanConfig& c) { c.micro_batch = 0; },
             "--micro-batch: expected sequences from 1 to 1048576, got 0"},
        Case{"no_microbatches", [](PlanConfig& c) { c.microbatches = 0; },
             "--global-batch: expected microbatches per rank from 1 to 1048576, got 0"},
        Case{"too_many_tokens",  // 2^13 * 2^20 * 2^20 * 2^20 = 2^73
             [](PlanConfig& c) {
               c.micro_batch = c.microbatches = 1 << 20;
               c.mesh.resize(Axis::dp_shard, 1 << 20);
             },
             "--global-batch: expected fewer than 2^63 tokens in a step, got 8192 x 1048576 x "
             "1048576 tokens on each of 1048576 GPUs"},
        Case{"negative_prefetch", [](PlanConfig& c) { c.prefetch = -1; },
             "--prefetch: expected units from 0 to 64, got -1"},
        Case{"no_gradient_slot", [](PlanConfig& c) { c.grad_slots = 0; },
             "--grad-slots: expected gradient slots from 1 to 64, got 0"},
        Case{"no_logits_chunk", [](PlanConfig& c) { c.logits_chunk = 0; },
             "--logits-chunk: expected tokens from 1 to 16777216, got 0"},
        Case{"too_many_full_blocks",
             [](PlanConfig& c) { c.recompute = {.kind = Recompute::full, .full_blocks = 33}; },
             "--recompute: expected full:K with K from 1 to the model's 32 blocks, got full:33"},
        Case{"too_many_kept_blocks", [](PlanConfig& c) { c.keep_gathered = 33; },
             "--keep-gathered: expected at most the model's 32 blocks, got 33"},
        Case{"windows_in_place",
             [](PlanConfig& c) {
               c.strategy = Strategy::optim_grads;
               c.gather = Transport::copy_engine;
             },
             "--gather: expected nccl with --strategy optim_grads: it gathers in place, each rank "
             "from an offset of its own, got copy_engine"},
        Case{"whole_gradients_dealt_out",
             [](PlanConfig& c) {
               c.strategy = Strategy::no_shard;
               c.reduce = Transport::copy_engine;
             },
             "--reduce: expected nccl with --strategy no_shard: it reduces in place, each rank at "
             "an offset of its own, got copy_engine"},
        Case{"directions_dealt_out",
             [](PlanConfig& c) {
               c.optimizer = Optimizer::muon;
               c.reduce = Transport::copy_engine;
             },
             "--reduce: expected nccl with --optimizer muon: directions use the same "
             "communicators and are not in registered memory"},
        Case{"sums_in_place",
             [](PlanConfig& c) {
               c.strategy = Strategy::optim;
               c.reduce = Transport::symmetric;
             },
             "--reduce: expected nccl with --strategy optim: it reduces in place, each rank at an "
             "offset of its own, got symmetric"},
        Case{"symmetric_sums_of_fp64",
             [](PlanConfig& c) {
               c.param_dtype = c.main_dtype = c.grad_dtype = c.reduce_dtype = DType::fp64;
               c.reduce = Transport::symmetric;
             },
             "--reduce: expected nccl or copy_engine with --reduce-dtype fp64: symmetric kernels "
             "add "
             "fp32, bf16 and fp16, got symmetric"},
        Case{"blocks_without_full", [](PlanConfig& c) { c.recompute.full_blocks = 3; },
             "--recompute: expected a number of blocks only with full, got selective:3"},
        Case{"negative_clip", [](PlanConfig& c) { c.clip = Rational{-1, 2}; },
             "--clip: expected a number of at least 0 (0 switches clipping off), got -1/2"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    RefusesKinds, Validate,
    testing::Values(
        Case{"param_dtype", [](PlanConfig& c) { c.param_dtype = DType::int32; },
             "--param-dtype: expected bf16, fp16, fp32 or fp64, got int32"},
        Case{"main_dtype", [](PlanConfig& c) { c.main_dtype = DType::fp16; },
             "--main-dtype: expected fp32 or bf16 as --param-dtype, got fp16"},
        Case{"main_dtype_below_fp32",
             [](PlanConfig& c) {
               c.param_dtype = DType::fp32;
               c.main_dtype = DType::bf16;
             },
             "--main-dtype: expected fp32, got bf16"},
        Case{"grad_dtype", [](PlanConfig& c) { c.grad_dtype = DType::fp16; },
             "--grad-dtype: expected fp32 or bf16, got fp16"},
        Case{"reduce_dtype", [](PlanConfig& c) { c.reduce_dtype = DType::uint8; },
             "--reduce-dtype: expected bf16, fp16 or fp32, got uint8"},
        Case{"fp64_with_fp32_weights", [](PlanConfig& c) { c.param_dtype = DType::fp64; },
             "--main-dtype: expected fp64 as --param-dtype, got fp32"},
        Case{"fp64_with_fp32_gradients",
             [](PlanConfig& c) { c.param_dtype = c.main_dtype = DType::fp64; },
             "--grad-dtype: expected fp64 as --param-dtype, got fp32"},
        Case{"fp64_with_fp32_wire",
             [](PlanConfig& c) { c.param_dtype = c.main_dtype = c.grad_dtype = DType::fp64; },
             "--reduce-dtype: expected fp64 as --param-dtype, got fp32"},
        Case{"fp64_wire_alone", [](PlanConfig& c) { c.reduce_dtype = DType::fp64; },
             "--reduce-dtype: expected bf16, fp16 or fp32, got fp64"},
        Case{"outer_strategy", [](PlanConfig& c) { c.outer_strategy = Strategy::optim_grads; },
             "--outer-strategy: expected no_shard (HSDP) or optim (HFSDP), got optim_grads"},
        Case{"hfsdp_without_zero3",
             [](PlanConfig& c) {
               c.strategy = Strategy::optim_grads;
               c.outer_strategy = Strategy::optim;
             },
             "--outer-strategy: expected no_shard with --strategy optim_grads: optim shards the "
             "outer axis on top of weights and gradients that --strategy optim_grads_params shards "
             "inside"},
        Case{"tied_with_one_slot",
             [](PlanConfig& c) {
               c.model.tied_embeddings = true;
               c.grad_slots = 1;
             },
             "--grad-slots: expected at least 2 with tied embeddings and --strategy "
             "optim_grads_params: their gradient keeps one slot from the head's backward to the "
             "embedding's, got 1"},
        Case{"frozen_nothing", [](PlanConfig& c) { c.frozen = {"embed", "lm_haed"}; },
             "--freeze: expected part of a parameter's name, but 'lm_haed' matches none (the first "
             "is 'model.embed_tokens.weight')"},
        Case{"frozen_empty", [](PlanConfig& c) { c.frozen = {""}; },
             "--freeze: expected part of a parameter's name, got nothing"},
        Case{"frozen_too_many",
             [](PlanConfig& c) {
               c.model.layers = 4'096;  // 1'000'000 / 4'096 = 244
               c.frozen.assign(245, "embed");
             },
             "--freeze: expected at most 244 texts for a model of 4096 layers, got 245"},
        Case{"frozen_part_of_fused", [](PlanConfig& c) { c.frozen = {"v_proj"}; },
             "--freeze: expected whole parameters, but 'v_proj' names only a part of the fused "
             "'model.layers.0.self_attn.qkv_proj.weight'"},
        Case{"frozen_all", [](PlanConfig& c) { c.frozen = {"model.", "lm_head"}; },
             "--freeze: expected at least one parameter to stay trainable, got none"},
        Case{"alpha_without_rank", [](PlanConfig& c) { c.lora_alpha = {8, 1}; },
             "--lora-alpha: expected --lora-rank too: without it there are no adapters"},
        Case{"targets_without_rank", [](PlanConfig& c) { c.lora_targets = {"q_proj"}; },
             "--lora-targets: expected --lora-rank too: without it there are no adapters"},
        Case{"adapters_of_no_layer",
             [](PlanConfig& c) {
               c = with_lora(c);
               c.lora_targets = {"query"};
             },
             "--lora-targets: expected all-linear, or some of q_proj, k_proj, v_proj, o_proj, "
             "gate_proj, up_proj, down_proj; got 'query'"},
        Case{"adapters_of_fused_layers",
             [](PlanConfig& c) {
               c = with_lora(c);
               c.model.fused_weights = true;
             },
             "--lora-targets: expected all-linear, or some of qkv_proj, o_proj, gate_up_proj, "
             "down_proj; got 'q_proj'"},
        Case{"adapters_of_another_family",
             [](PlanConfig& c) {
               c = with_lora(c);
               test::make_family(c.model, Family::olmo2);
             },
             "--lora-rank: expected none: adapters are not modelled for olmo2 "
             "(docs/reference/limits.md)"},
        Case{"adapters_twice",
             [](PlanConfig& c) {
               c = with_lora(c);
               c.lora_targets = {"v_proj", "q_proj"};
             },
             "--lora-targets: expected each once, in the order q_proj, k_proj, v_proj, o_proj, "
             "gate_proj, up_proj, down_proj; got 'q_proj'"},
        Case{"adapters_of_no_scale",
             [](PlanConfig& c) {
               c = with_lora(c);
               c.lora_alpha = {0, 1};
             },
             "--lora-alpha: expected a number above 0 and up to 65536, got 0"},
        Case{"frozen_beside_adapters",
             [](PlanConfig& c) {
               c = with_lora(c);
               c.frozen = {"embed_tokens"};  // is frozen without a word
             },
             "--freeze: expected part of a parameter's name, but 'embed_tokens' matches none (the "
             "first is 'model.layers.0.self_attn.q_proj.lora_A.weight')"},
        Case{"frozen_adapters",
             [](PlanConfig& c) {
               c = with_lora(c);
               c.frozen = {"lora_A", "lora_B"};
             },
             "--freeze: expected at least one parameter to stay trainable, got none"},
        Case{"model", [](PlanConfig& c) { c.model.kv_heads = 5; },
             "--model: num_key_value_heads: expected a divisor of num_attention_heads (32), got 5"},
        Case{"model_without_layers", [](PlanConfig& c) { c.model.layers = 0; },
             "--model: num_hidden_layers: expected an integer from 1 to 4096, got 0"}),
    case_name);

}  // namespace
}  // namespace mfsdp
