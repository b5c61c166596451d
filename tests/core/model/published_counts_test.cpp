// Parameters of models that are known by their config.json alone, against published totals.
#include <gtest/gtest.h>

#include <string>

#include "core/model/hf_config.hpp"

namespace mfsdp {
namespace {

struct Published {
  const char* name;
  const char* config;  ///< the fields of the published file that readers read
  std::int64_t count;
};

/// Totals are those of the published checkpoints. Where these hold more, the rest is in `count`'s
/// comment: layers of multi-token prediction, images.
const Published kPublished[] = {
    // XiaomiMiMo/MiMo-7B-Base: 7,833,409,536 with a layer of multi-token prediction, which has a
    // block of 177,223,680, three norms of 4096 and a matrix of 4096 * 8192.
    {"MiMo-7B", R"({"model_type": "mimo", "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "attention_bias": true, "vocab_size": 151680,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "num_nextn_predict_layers": 1})",
     7'833'409'536 - 177'223'680 - 3 * 4096 - 4096 * 8192},
    // zai-org/GLM-4.5-Air: 110,468,824,832 with such a layer, its own tables of 151552 * 4096, a
    // matrix of 4096 * 8192, three norms and a block of 2,341,492,864.
    {"GLM-4.5-Air", R"({"model_type": "glm4_moe", "hidden_size": 4096, "intermediate_size": 10944,
        "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8,
        "head_dim": 128, "attention_bias": true, "use_qk_norm": false, "vocab_size": 151552,
        "partial_rotary_factor": 0.5, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
        "norm_topk_prob": true, "routed_scaling_factor": 1.0, "num_nextn_predict_layers": 1})",
     110'468'824'832 - 2 * 151552LL * 4096 - 4096 * 8192 - 3 * 4096 - 2'341'492'864},
    // MiniMaxAI/MiniMax-M2: block 3072*128*64 + 48*128*3072 + 56*128 + 6144 = 44,053,504, router
    // 256*3073, experts 256*3*3072*1536 = 3,623,878,656; 62 of these, two tables, a norm.
    {"MiniMax-M2", R"({"model_type": "minimax_m2", "hidden_size": 3072, "intermediate_size": 1536,
        "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8,
        "head_dim": 128, "rotary_dim": 64, "vocab_size": 200064, "use_qk_norm": true,
        "qk_norm_type": "per_layer", "max_position_embeddings": 196608, "rms_norm_eps": 1e-06,
        "num_local_experts": 256, "num_experts_per_tok": 8, "scoring_func": "sigmoid",
        "use_routing_bias": true, "use_mtp": true, "num_mtp_modules": 3})",
     62 * (44'053'504 + 256 * 3073LL + 3'623'878'656) + 2 * 200064LL * 3072 + 3072},
    // moonshotai/Kimi-K2.5: the language model of Kimi-K2, whose checkpoint has 1,026,408,232,448.
    {"Kimi-K2.5", R"({"model_type": "kimi_k25", "vision_config": {"depth": 27}, "text_config": {
        "model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
        "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 64,
        "num_key_value_heads": 64, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "vocab_size": 163840,
        "max_position_embeddings": 262144, "rms_norm_eps": 1e-05, "n_routed_experts": 384,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
        "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
        "scoring_func": "sigmoid", "routed_scaling_factor": 2.827}})",
     1'026'408'232'448},
    // deepseek-ai/DeepSeek-V3.2: V3's 671,026,419,200 and 61 indexers of 8192*1536 + 128*7168 +
    // 2*128 + 64*7168 = 13,959,424.
    {"DeepSeek-V3.2", R"({"model_type": "deepseek_v32", "hidden_size": 7168,
        "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "vocab_size": 129280,
        "max_position_embeddings": 163840, "rms_norm_eps": 1e-06, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4, "norm_topk_prob": true,
        "scoring_func": "sigmoid", "routed_scaling_factor": 2.5, "index_n_heads": 64,
        "index_head_dim": 128, "index_topk": 2048})",
     671'026'419'200 + 61 * 13'959'424LL},
    // allenai/Olmo-3-1025-7B.
    {"OLMo 3", R"({"model_type": "olmo3", "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "vocab_size": 100278, "max_position_embeddings": 65536, "rms_norm_eps": 1e-06,
        "sliding_window": 4096, "rope_theta": 500000})",
     7'298'011'136},
    // HuggingFaceTB/SmolLM3-3B.
    {"SmolLM3", R"({"model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008,
        "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
        "vocab_size": 128256, "max_position_embeddings": 65536, "rms_norm_eps": 1e-06,
        "no_rope_layer_interval": 4, "rope_theta": 5000000.0})",
     3'075'098'624},
    // ibm-granite/granite-3.1-8b-base.
    {"Granite 3.1", R"({"model_type": "granite", "hidden_size": 4096, "intermediate_size": 12800,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 49155, "max_position_embeddings": 131072, "rms_norm_eps": 1e-05,
        "tie_word_embeddings": true, "embedding_multiplier": 12.0, "attention_multiplier": 0.0078125,
        "residual_multiplier": 0.22, "logits_scaling": 16.0})",
     8'170'848'256},
    // google/gemma-3-4b-it: the language model; its file states only what differs from the class.
    {"Gemma 3", R"({"model_type": "gemma3", "vision_config": {"image_size": 896}, "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
        "num_hidden_layers": 34, "sliding_window": 1024,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})",
     3'880'263'168},
    // mistralai/Mistral-Small-3.1-24B: the language model is Mistral-Small-24B's.
    {"Mistral Small 3.1", R"({"model_type": "mistral3", "vision_config": {"hidden_size": 1024},
        "text_config": {"model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "vocab_size": 131072, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-05, "rope_theta": 1000000000.0, "sliding_window": null}})",
     23'572'403'200},
    // Qwen/Qwen3-VL-2B: the language model is Qwen3-1.7B's.
    {"Qwen3-VL", R"({"model_type": "qwen3_vl", "tie_word_embeddings": true,
        "vision_config": {"depth": 24}, "text_config": {"model_type": "qwen3_vl_text",
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 151936,
        "max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "rope_scaling":
        {"mrope_interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"}}})",
     1'720'574'976},
    // Qwen/Qwen2.5-VL-7B-Instruct: the language model is Qwen2.5-7B's.
    {"Qwen2.5-VL", R"({"model_type": "qwen2_5_vl", "vision_config": {"depth": 32},
        "architectures": ["Qwen2_5_VLForConditionalGeneration"], "hidden_size": 3584,
        "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 128000,
        "rms_norm_eps": 1e-06, "use_sliding_window": false, "sliding_window": 32768,
        "max_window_layers": 28, "tie_word_embeddings": false, "rope_theta": 1000000.0,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}})",
     7'615'616'512},
    // meta-llama/Llama-4-Scout-17B-16E: 108,641,793,536 with 871,932,416 of images; Maverick
    // likewise, 401,583,781,376.
    {"Llama-4-Scout", R"({"model_type": "llama4", "vision_config": {"hidden_size": 1408},
        "text_config": {"model_type": "llama4_text", "hidden_size": 5120,
        "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
        "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 202048, "max_position_embeddings": 10485760, "rms_norm_eps": 1e-05,
        "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
        "attention_chunk_size": 8192, "use_qk_norm": true, "rope_scaling": {"factor": 16.0,
        "high_freq_factor": 1.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3"}}})",
     108'641'793'536 - 871'932'416},
    {"Llama-4-Maverick", R"({"model_type": "llama4", "vision_config": {"hidden_size": 1408},
        "text_config": {"model_type": "llama4_text", "hidden_size": 5120,
        "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
        "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 202048, "max_position_embeddings": 1048576, "rms_norm_eps": 1e-05,
        "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
        "attention_chunk_size": 8192, "use_qk_norm": false}})",
     401'583'781'376 - 871'932'416},
};

class PublishedCounts : public testing::TestWithParam<Published> {};

TEST_P(PublishedCounts, AreThoseOfTheConfig) {
  const auto model = read_hf_config(GetParam().config, GetParam().name);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(parameter_count(model->shape), GetParam().count);
}
INSTANTIATE_TEST_SUITE_P(All, PublishedCounts, testing::ValuesIn(kPublished));

}  // namespace
}  // namespace mfsdp
