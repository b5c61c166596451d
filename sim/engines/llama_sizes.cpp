#include "sim/engines/llama_sizes.hpp"

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {
namespace {

/// What cuDNN's backward takes beside its operands, as PyTorch hands it over: sums of dQ in fp32,
/// dK and dV of every query head where several share a key, a sum for each row, and 256 bytes. Read
/// from recorded runs (gpu_backend/measurements); 269,484,288 for 8192 tokens and 32 heads of 128
/// over 8.
std::int64_t backward_workspace(const LlamaSizes& sizes, const ModelShape& model) {
  const std::int64_t shared = model.heads == model.kv_heads ? 0 : 2 * sizes.query;
  return 2 * sizes.query + shared + sizes.query_statistic + kAttentionWorkspaceBytes;
}

/// Inductor sums over 128 tokens each, in fp32, and those sums in a second kernel.
std::int64_t partial_sums(const LlamaSizes& sizes) {
  constexpr std::int64_t kRows = 128;
  return (sizes.tokens + kRows - 1) / kRows * sizes.hidden * kFull;
}

}  // namespace

LlamaSizes::LlamaSizes(const PlanConfig& config) {
  const ModelShape& model = config.model;
  tokens = config.tokens_per_microbatch();
  hidden = model.hidden;
  qkv_columns = model.qkv_width();
  query_columns = model.attention_width();
  key_columns = model.kv_heads * model.head_dim;
  ffn = model.intermediate;
  vocab = model.vocab;
  const auto bf16 = [&](std::int64_t columns) {
    return checked_mul(checked_mul(tokens, columns), kHalf);
  };
  state = bf16(hidden);
  statistic = checked_mul(tokens, kFull);
  qkv = bf16(qkv_columns);
  query = bf16(query_columns);
  key = bf16(key_columns);
  query_statistic = checked_mul(statistic, model.heads);
  key_statistic = checked_mul(statistic, model.kv_heads);
  gate_up = bf16(2 * ffn);
  product = bf16(ffn);
  logits = bf16(vocab);
  logits_fp32 = checked_mul(logits, 2);
  angles = checked_mul(checked_mul(config.seq_len, model.head_dim), kHalf);
  norm_partial = partial_sums(*this);
  attention_workspace = backward_workspace(*this, model);
}

}  // namespace mfsdp
