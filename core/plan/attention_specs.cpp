// Kernels of attention: of heads as they are, of latent vectors, of sinks and of what turns.
#include <algorithm>

#include "core/plan/op.hpp"
#include "core/plan/spec_words.hpp"

namespace mfsdp {

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

namespace spec {
namespace {

using enum KernelKind;
using enum Element;
using enum OperandUse;

/// A product of every query with every key that it sees, of so many columns.
std::int64_t attention_flops(const Kernel& k, std::int64_t products) {
  return product_of(products, k.attribute("batch"), k.attribute("heads"),
                    attention_pairs(k.attribute("seq"), k.attribute("window")));
}
/// Columns of values, which are those of queries and keys where nothing else is said.
std::int64_t value_dim_of(const Kernel& k) {
  return k.attribute("value_dim", k.attribute("head_dim"));
}
/// Scores, and values by them; backward scores again, then dQ and dK, and dP and dV.
std::int64_t attention_forward_flops(const Kernel& k) {
  return attention_flops(k, checked_add(k.attribute("head_dim"), value_dim_of(k)));
}
std::int64_t attention_backward_flops(const Kernel& k) {
  return attention_flops(
      k, checked_add(checked_mul(3, k.attribute("head_dim")), checked_mul(2, value_dim_of(k))));
}

std::int64_t forward_workspace(const Kernel&) { return kAttentionWorkspaceBytes; }

std::int64_t backward_workspace(const Kernel& k) {
  const auto query = std::ranges::find(k.operands, "query", &Operand::role);
  if (query == k.operands.end()) return kAttentionWorkspaceBytes;
  return attention_backward_workspace(AttentionSizes{
      .batch = k.attribute("batch"),
      .heads = k.attribute("heads"),
      .kv_heads = k.attribute("kv_heads"),
      .seq = k.attribute("seq"),
      .head_dim = k.attribute("head_dim"),
      .deterministic = k.attribute("deterministic") != 0,
      .compute = query->dtype,
  });
}

}  // namespace

std::vector<KernelSpec> attention_specs() {
  const Dim tokens = d("batch", "seq");
  const Dim width = d("heads", "head_dim");
  const auto heads = [](std::string_view role, std::string_view count,
                        std::string_view columns = "head_dim") {
    return strided(reads, role, {d("batch"), d(count), d("seq"), d(columns)});
  };
  const auto rows = [&](OperandUse use, std::string_view role) {
    return operand(use, role, compute, {tokens, d("heads", "value_dim")});
  };
  const auto per_head = [&](OperandUse use, std::string_view role) {
    return operand(use, role, statistic, {tokens, d("heads")});
  };
  const std::vector<std::string_view> sizes{"batch", "deterministic", "head_dim",
                                            "heads", "kv_heads",      "seq"};
  const std::vector<std::string_view> scores{"query_scalar", "score_cap", "value_dim", "window"};
  return {{.kind = attention_forward,
           .operands = {heads("query", "heads"), heads("key", "kv_heads"),
                        heads("value", "kv_heads", "value_dim"), rows(writes, "output"),
                        per_head(writes, "log_sum_exp"), document_positions({tokens})},
           .attributes = sizes,
           .optional_attributes = scores,
           .flops = attention_forward_flops,
           .workspace = forward_workspace},
          {.kind = attention_backward,
           .operands = {heads("query", "heads"), heads("key", "kv_heads"),
                        heads("value", "kv_heads", "value_dim"), rows(reads, "output"),
                        rows(reads, "d_output"), per_head(reads, "log_sum_exp"),
                        operand(writes, "d_qkv", compute, {tokens, d("qkv_width")}),
                        operand(scratch, "d_query_sum", statistic, {tokens, width}),
                        per_head(scratch, "row_sums"), document_positions({tokens})},
           .attributes = sizes,
           .optional_attributes = scores,
           .flops = attention_backward_flops,
           .model_share = {.num = 4, .den = 5},  // 2 of its 2.5 forwards: scores are made again
           .workspace = backward_workspace},
          {.kind = sink_forward,
           .operands = {operand(updates, "output", compute, {d("rows"), width}),
                        operand(updates, "log_sum_exp", statistic, {d("rows"), d("heads")}),
                        operand(reads, "weight", compute, {d("heads")})},
           .attributes = {"head_dim", "heads", "rows"}},
          {.kind = sink_backward,
           .operands = {operand(reads, "output", compute, {d("rows"), width}),
                        operand(reads, "d_output", compute, {d("rows"), width}),
                        operand(reads, "log_sum_exp", statistic, {d("rows"), d("heads")}),
                        operand(reads, "weight", compute, {d("heads")}),
                        operand(writes, "d_sinks", compute, {d("rows"), d("heads")})},
           .attributes = {"head_dim", "heads", "rows"}}};
}

/// Of latent attention: a row has the latent vector, then what turns.
std::vector<KernelSpec> latent_specs() {
  const auto latent = [](OperandUse use, std::string_view role) {
    return operand(use, role, compute, {d("rows"), d("latent_width")});
  };
  const auto by_head = [](OperandUse use, std::string_view role, std::string_view columns) {
    return operand(use, role, compute, {d("rows"), d("heads", columns)});
  };
  const std::vector<std::string_view> of_heads{"head_dim", "heads", "key_value_dim", "qkv_dim",
                                               "rows"};
  return {{.kind = latent_heads_forward,
           .operands = {by_head(reads, "query", "head_dim"),
                        by_head(reads, "key_value", "key_value_dim"), latent(reads, "latent"),
                        kRopeTable, kByPosition, by_head(writes, "output", "qkv_dim")},
           .attributes = {"head_dim", "heads", "key_value_dim", "latent_width", "qkv_dim", "rows"}},
          {.kind = latent_heads_backward,
           .operands = {by_head(reads, "d_output", "qkv_dim"), kRopeTable, kByPosition,
                        by_head(writes, "d_query", "head_dim"),
                        by_head(writes, "d_key_value", "key_value_dim"),
                        operand(writes, "d_turned", compute, {d("rows"), d("rotated_dim")})},
           .attributes = of_heads},
          {.kind = latent_norm_forward,
           .operands = {latent(reads, "input"), operand(reads, "weight", compute, {d("cols")}),
                        matrix(writes, "normed"), operand(writes, "rstd", statistic, {d("rows")})},
           .attributes = {"cols", "epsilon", "latent_width", "rows"}},
          {.kind = latent_norm_backward,
           .operands = {matrix(yields, "d_normed"), latent(reads, "input"),
                        operand(reads, "rstd", statistic, {d("rows")}),
                        operand(reads, "weight", compute, {d("cols")}),
                        operand(reads, "d_turned", compute, {d("rows"), d("rotated_dim")}),
                        latent(writes, "d_input"),
                        operand(writes, "partials", statistic, {d("partial_rows"), d("cols")})},
           .attributes = {"cols", "latent_width", "rotated_dim", "rows"},
           .sum = GradientSum::of_rank,
           .pieces = "rows"}};
}

/// What turns queries and keys, and norms their heads.
std::vector<KernelSpec> rotation_specs() {
  // Query and key heads of a token: "rotated" of them.
  const auto rotated = [](OperandUse use, std::string_view role) {
    return strided(use, role, {d("rows"), d("rotated"), d("head_dim")});
  };
  const auto rstd = [](OperandUse use) {
    return operand(use, "rstd", statistic, {d("rows"), d("rotated")});
  };
  const OperandSpec head_weight = operand(reads, "weight", compute, {d("head_dim")});
  // Of all query heads, or all key heads.
  const auto row_rstd = [](OperandUse use) {
    return operand(use, "rstd", statistic, {d("rows"), d(2)});
  };
  const OperandSpec query_weight =
      operand(reads, "weight", compute, {d("query_heads", "head_dim")});
  const OperandSpec key_weight = operand(reads, "weight", compute, {d("key_heads", "head_dim")});
  return {
      {.kind = rope_forward,
       .operands = {rotated(updates, "query_key"), kRopeTable, kByPosition},
       .attributes = {"cols", "rows"}},
      {.kind = rope_backward,
       .operands = {rotated(updates, "d_query_key"), kRopeTable, kByPosition},
       .attributes = {"cols", "rows"}},
      {.kind = qk_norm_rope_forward,
       .operands = {rotated(reads, "query_key"), kRopeTable, head_weight, head_weight,
                    rotated(writes, "output"), rstd(writes), kByPosition},
       .attributes = {"cols", "epsilon", "query_heads", "rows"},
       .optional_attributes = {"zero_centered"}},
      {.kind = qk_norm_rope_backward,
       .operands = {rotated(updates, "d_query_key"), rotated(reads, "query_key"), kRopeTable,
                    rstd(reads), head_weight, head_weight,
                    operand(writes, "partials", statistic, {d(2, "partial_rows"), d("head_dim")}),
                    kByPosition},
       .attributes = {"cols", "query_heads", "rows"},
       .optional_attributes = {"zero_centered"},
       .sum = GradientSum::of_rank,
       .pieces = "rows"},
      {.kind = qk_row_norm_rope_forward,
       .operands = {rotated(reads, "query_key"), kRopeTable, query_weight, key_weight,
                    rotated(writes, "output"), row_rstd(writes), kByPosition},
       .attributes = {"cols", "epsilon", "key_heads", "query_heads", "rows"},
       .optional_attributes = {"zero_centered"}},
      {.kind = qk_row_norm_rope_backward,
       .operands = {rotated(updates, "d_query_key"), rotated(reads, "query_key"), kRopeTable,
                    row_rstd(reads), query_weight, key_weight,
                    operand(writes, "partials", statistic, {d("partial_rows"), d("cols")}),
                    kByPosition},
       .attributes = {"cols", "key_heads", "query_heads", "rows"},
       .optional_attributes = {"zero_centered"},
       .sum = GradientSum::of_rank,
       .pieces = "rows"}};
}

}  // namespace spec
}  // namespace mfsdp
