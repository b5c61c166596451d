#include "core/plan/kernel_costs.hpp"

#include <algorithm>

#include "core/plan/kernel_spec.hpp"
#include "core/plan/newton_schulz.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {
namespace {

/// FLOPs of GEMMs of every query with all keys that it sees. `columns`: of these GEMMs together.
/// Ranks that share a sequence have equally many such pairs, with a window in the mean; so have the
/// steps of a rank that has the keys of one rank at a time.
std::int64_t attention_flops(const Kernel& k, std::int64_t columns) {
  return product_of(columns, k.attribute("batch"), k.attribute("heads"),
                    attention_pairs(k.attribute("seq"), k.attribute("window"))) /
         std::max<std::int64_t>(k.attribute("parts", 1), 1) / steps_of_attention(k);
}

/// Columns of a value head; those of queries and keys where the kernel states no others.
std::int64_t value_dim_of(const Kernel& k) {
  return k.attribute("value_dim", k.attribute("head_dim"));
}

}  // namespace

std::int64_t steps_of_attention(const Kernel& kernel) {
  const bool has_one_part = kernel.attribute("key_parts") != 0;
  return has_one_part ? std::max<std::int64_t>(kernel.attribute("parts", 1), 1) : 1;
}

std::int64_t attention_pairs(std::int64_t seq, std::int64_t window) {
  const std::int64_t seen = window > 0 ? std::min(window, seq) : seq;
  return checked_mul(seen, checked_add(checked_mul(2, seq), -seen));
}

std::int64_t attention_backward_workspace(const AttentionSizes& s) {
  const std::int64_t element = size_of(s.compute);
  std::int64_t bytes = kAttentionWorkspaceBytes;
  if (element != 2) return bytes;
  if (s.heads != s.kv_heads) {
    const std::int64_t gradient = product_of(s.batch, s.seq, s.heads, s.head_dim, element);
    bytes = checked_add(bytes, checked_mul(2, round_up(gradient, 128)));
  }
  if (s.deterministic)
    bytes = checked_add(
        bytes, product_of(s.batch, s.heads, round_up(s.seq, 64), round_up(s.seq, 128), element));
  return bytes;
}

std::int64_t room_of(const Kernel& kernel) {
  return kernel.attribute("m", checked_mul(kernel.attribute("rows"), kernel.attribute("top_k")));
}

std::int64_t usual_rows(const Kernel& kernel) {
  return kernel.attribute("balanced_rows", kernel.attribute("m"));
}

namespace costs {

std::int64_t gemm(const Kernel& k) {
  return product_of(2, k.attribute("m"), k.attribute("n"), k.attribute("k"));
}

std::int64_t grouped_gemm(const Kernel& k) {
  return product_of(2, usual_rows(k), k.attribute("n"), k.attribute("k"));
}

/// Scores, and values weighted by them.
std::int64_t attention_forward(const Kernel& k) {
  return attention_flops(k, checked_add(k.attribute("head_dim"), value_dim_of(k)));
}

/// Scores again, then dQ and dK, and dP and dV.
std::int64_t attention_backward(const Kernel& k) {
  return attention_flops(
      k, checked_add(checked_mul(3, k.attribute("head_dim")), checked_mul(2, value_dim_of(k))));
}

std::int64_t newton_schulz(const Kernel& k) {
  return newton_schulz_flops(k.attribute("rows"), k.attribute("cols"));
}

std::int64_t attention_forward_workspace(const Kernel& /*kernel*/) {
  return kAttentionWorkspaceBytes;
}

std::int64_t attention_backward_workspace(const Kernel& k) {
  const auto query = std::ranges::find(k.operands, "query", &Operand::role);
  // cuDNN takes no part of a sequence.
  if (query == k.operands.end() || k.attribute("parts", 1) > 1) return kAttentionWorkspaceBytes;
  return mfsdp::attention_backward_workspace(AttentionSizes{
      .batch = k.attribute("batch"),
      .heads = k.attribute("heads"),
      .kv_heads = k.attribute("kv_heads"),
      .seq = k.attribute("seq"),
      .head_dim = k.attribute("head_dim"),
      .deterministic = k.attribute("deterministic") != 0,
      .compute = query->dtype,
  });
}

std::int64_t newton_schulz_workspace(const Kernel& k) {
  const auto matrix = std::ranges::find(k.operands, "matrix", &Operand::role);
  if (matrix == k.operands.end()) return 0;
  // Directions in bf16 are computed with in fp16, which has as many bytes.
  return newton_schulz_workspace_of(k.attribute("rows"), k.attribute("cols"),
                                    size_of(matrix->dtype))
      .bytes;
}

/// A count of each expert in each block of tokens.
std::int64_t order_workspace(const Kernel& k) {
  constexpr std::int64_t kBlock = 256;
  return product_of(4, k.attribute("experts"),
                    round_up(std::max<std::int64_t>(k.attribute("rows"), 1), kBlock) / kBlock);
}

std::int64_t sum_workspace(const Kernel& /*kernel*/) { return kSumWorkspaceBytes; }

}  // namespace costs
}  // namespace mfsdp
