#include "sim/engines/llama_sizes.hpp"

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {
namespace {

/// Workspace of cuDNN's backward, as PyTorch passes it: sums of dQ in fp32; dK and dV of every
/// query head if several share a key; a sum for each row; and 256 bytes. From recorded runs
/// (docs/lab): 269,484,288 for 8192 tokens with 32 query heads of 128 and 8 key heads.
std::int64_t backward_workspace(const LlamaSizes& sizes, const ModelShape& model) {
  const std::int64_t shared = model.heads == model.kv_heads ? 0 : 2 * sizes.query;
  return 2 * sizes.query + shared + sizes.query_statistic + kAttentionWorkspaceBytes;
}

/// Inductor sums over 128 tokens at a time, in fp32, and adds these sums in a second kernel.
std::int64_t partial_sums(const LlamaSizes& sizes) {
  constexpr std::int64_t kRows = 128;
  return (sizes.tokens + kRows - 1) / kRows * sizes.hidden * kFull;
}

}  // namespace

LlamaSizes llama_sizes(const PlanConfig& config) {
  const ModelShape& model = config.model;
  LlamaSizes s;
  s.tokens = config.tokens_per_microbatch();
  s.hidden = model.hidden;
  s.qkv_columns = model.qkv_width();
  s.query_columns = model.attention_width();
  s.key_columns = model.kv_heads * model.head_dim;
  s.ffn = model.intermediate;
  s.vocab = model.vocab;
  const auto bf16 = [&](std::int64_t columns) {
    return checked_mul(checked_mul(s.tokens, columns), kHalf);
  };
  s.state = bf16(s.hidden);
  s.statistic = checked_mul(s.tokens, kFull);
  s.qkv = bf16(s.qkv_columns);
  s.query = bf16(s.query_columns);
  s.key = bf16(s.key_columns);
  s.query_statistic = checked_mul(s.statistic, model.heads);
  s.key_statistic = checked_mul(s.statistic, model.kv_heads);
  s.gate_up = bf16(2 * s.ffn);
  s.product = bf16(s.ffn);
  s.logits = bf16(s.vocab);
  s.logits_fp32 = checked_mul(s.logits, 2);
  s.angles = checked_mul(checked_mul(config.seq_len, model.head_dim), kHalf);
  s.norm_partial = partial_sums(s);
  s.attention_workspace = backward_workspace(s, model);
  return s;
}

}  // namespace mfsdp
