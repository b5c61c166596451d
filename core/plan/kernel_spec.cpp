#include "core/plan/kernel_spec.hpp"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>
#include <utility>

#include "core/plan/newton_schulz.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {
namespace {

using enum KernelKind;
using enum Element;
using enum OperandUse;

constexpr Dim d(std::string_view name) { return {.first = name}; }
constexpr Dim d(std::int64_t times, std::string_view name = {}) {
  return {.first = name, .times = times};
}
constexpr Dim d(std::string_view first, std::string_view second) {
  return {.first = first, .second = second};
}

OperandSpec operand(OperandUse use, std::string_view role, Element element,
                    std::initializer_list<Dim> shape) {
  OperandSpec spec{.role = role, .element = element, .use = use};
  for (const Dim& dim : shape) spec.shape[spec.dims++] = dim;
  return spec;
}
OperandSpec optional(OperandSpec spec) {
  spec.optional = true;
  return spec;
}
OperandSpec strided(OperandUse use, std::string_view role, std::initializer_list<Dim> shape) {
  OperandSpec spec = operand(use, role, compute, shape);
  spec.strided = true;
  return spec;
}
OperandSpec columns(OperandSpec spec) {
  spec.columns = true;
  return spec;
}
OperandSpec matrix(OperandUse use, std::string_view role) {
  return operand(use, role, compute, {d("rows"), d("cols")});
}

const OperandSpec kRopeTable = operand(reads, "rope_table", fp32, {d("seq"), d("rotated_dim")});

/// Of each token in its document, where attention is masked between documents: a query sees no
/// token before its document's first, which is its position behind itself.
OperandSpec document_positions(std::initializer_list<Dim> tokens) {
  return optional(operand(reads, "positions", int32, tokens));
}
/// The same, by which rows of a table are taken.
const OperandSpec kByPosition = document_positions({d("rows")});

// ---- FLOPs and workspaces
// ------------------------------------------------------------------------

std::int64_t gemm_flops(const Kernel& k) {
  return product_of(2, k.attribute("m"), k.attribute("n"), k.attribute("k"));
}

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

std::int64_t sum_workspace(const Kernel&) { return kSumWorkspaceBytes; }

std::int64_t orthogonal_flops(const Kernel& k) {
  return newton_schulz_flops(k.attribute("rows"), k.attribute("cols"));
}
std::int64_t orthogonal_workspace(const Kernel& k) {
  const auto matrix = std::ranges::find(k.operands, "matrix", &Operand::role);
  if (matrix == k.operands.end()) return 0;
  // Directions in bf16 are computed with in fp16, which has as many bytes.
  return newton_schulz_workspace_of(k.attribute("rows"), k.attribute("cols"),
                                    size_of(matrix->dtype))
      .bytes;
}

// ---- the table ---------------------------------------------------------------------------------

std::vector<KernelSpec> product_specs() {
  const std::vector<std::string_view> sizes{"beta", "k", "kind", "m", "n"};
  const std::vector<std::string_view> scale{"scale"};
  return {{.kind = gemm,
           .variant = GemmKind::forward,
           .operands = {operand(reads, "input", compute, {d("m"), d("k")}),
                        operand(reads, "weight", compute, {d("n"), d("k")}),
                        optional(operand(reads, "weight", compute, {d("n")})),  // bias
                        columns(operand(adds, "output", compute, {d("m"), d("n")}))},
           .attributes = sizes,
           .optional_attributes = scale,
           .flops = gemm_flops,
           .pieces = "m"},
          {.kind = gemm,
           .variant = GemmKind::input_gradient,
           .operands = {columns(operand(reads, "d_output", compute, {d("m"), d("n")})),
                        operand(reads, "weight", compute, {d("n"), d("k")}),
                        operand(adds, "d_input", compute, {d("m"), d("k")})},
           .attributes = sizes,
           .optional_attributes = scale,
           .flops = gemm_flops,
           .pieces = "m"},
          {.kind = gemm,
           .variant = GemmKind::weight_gradient,
           .operands = {columns(operand(reads, "d_output", compute, {d("m"), d("n")})),
                        operand(reads, "input", compute, {d("m"), d("k")}),
                        operand(adds, "weight_grad", gradient, {d("n"), d("k")})},
           .attributes = sizes,
           .optional_attributes = scale,
           .flops = gemm_flops,
           .sum = GradientSum::of_rank,
           .pieces = "m"},
          {.kind = bias_grad,
           .operands = {matrix(reads, "d_output"),
                        operand(scratch, "partials", statistic, {d("partial_rows"), d("cols")}),
                        operand(adds, "weight_grad", gradient, {d("cols")})},
           .attributes = {"beta", "cols", "rows"},
           .sum = GradientSum::of_rank,
           .pieces = "rows"}};
}

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
  // Query and key heads of a token: "rotated" of them.
  const auto rotated = [](OperandUse use, std::string_view role) {
    return strided(use, role, {d("rows"), d("rotated"), d("head_dim")});
  };
  const auto per_head = [&](OperandUse use, std::string_view role) {
    return operand(use, role, statistic, {tokens, d("heads")});
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
  const std::vector<std::string_view> sizes{"batch", "deterministic", "head_dim",
                                            "heads", "kv_heads",      "seq"};
  const std::vector<std::string_view> scores{"query_scalar", "score_cap", "value_dim", "window"};
  // Of latent attention: a row has the latent vector, then what turns.
  const auto latent = [](OperandUse use, std::string_view role) {
    return operand(use, role, compute, {d("rows"), d("latent_width")});
  };
  const auto by_head = [](OperandUse use, std::string_view role, std::string_view columns) {
    return operand(use, role, compute, {d("rows"), d("heads", columns)});
  };
  const std::vector<std::string_view> of_heads{"head_dim", "heads", "key_value_dim", "qkv_dim",
                                               "rows"};
  return {
      {.kind = attention_forward,
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
      {.kind = latent_heads_forward,
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
       .pieces = "rows"},
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
       .attributes = {"head_dim", "heads", "rows"}},
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

std::vector<KernelSpec> row_specs() {
  const OperandSpec weight = operand(reads, "weight", compute, {d("cols")});
  const auto per_row = [](OperandUse use, std::string_view role) {
    return operand(use, role, statistic, {d("rows")});
  };
  const auto rstd = [&](OperandUse use) { return per_row(use, "rstd"); };
  const auto gated = [](KernelKind kind) {
    const bool forward = kind == swiglu_forward || kind == geglu_forward;
    return KernelSpec{
        .kind = kind,
        .operands = {operand(forward ? reads : updates, "gate_up", compute,
                             {d("rows"), d(2, "cols")}),
                     forward ? matrix(writes, "product") : matrix(yields, "d_product")},
        .attributes = {"cols", "rows"}};
  };
  return {{.kind = rms_norm_forward,
           .operands = {matrix(reads, "residual"), optional(matrix(reads, "delta")), weight,
                        optional(matrix(reads, "skip")), optional(matrix(writes, "residual_out")),
                        matrix(writes, "normed"), rstd(writes)},
           .attributes = {"cols", "epsilon", "rows"},
           .optional_attributes = {"zero_centered"}},
          {.kind = layer_norm_forward,  // the second weight is the bias
           .operands = {matrix(reads, "residual"), optional(matrix(reads, "delta")), weight, weight,
                        optional(matrix(writes, "residual_out")), matrix(writes, "normed"),
                        per_row(writes, "mean"), rstd(writes)},
           .attributes = {"cols", "epsilon", "rows"}},
          {.kind = layer_norm_backward,  // partials: the weight's, then the bias's
           .operands = {matrix(yields, "d_normed"), matrix(reads, "input"), per_row(reads, "mean"),
                        rstd(reads), weight, weight, matrix(adds, "d_residual"),
                        operand(writes, "partials", statistic, {d(2, "partial_rows"), d("cols")})},
           .attributes = {"beta", "cols", "rows"},
           .sum = GradientSum::of_rank,
           .pieces = "rows"},
          {.kind = rms_norm_backward,
           .operands = {matrix(yields, "d_normed"), matrix(reads, "input"), rstd(reads), weight,
                        matrix(adds, "d_residual"),
                        operand(writes, "partials", statistic, {d("partial_rows"), d("cols")})},
           .attributes = {"beta", "cols", "rows"},
           .optional_attributes = {"zero_centered"},
           .sum = GradientSum::of_rank,
           .pieces = "rows"},
          {.kind = norm_weight_grad,
           .operands = {operand(reads, "partials", statistic, {d("rows"), d("cols")}),
                        operand(adds, "weight_grad", gradient, {d("cols")})},
           .attributes = {"beta", "cols", "rows"},
           .sum = GradientSum::of_rank,
           .pieces = "rows",
           .rows_are_sums = true},
          gated(swiglu_forward),
          gated(swiglu_backward),
          gated(geglu_forward),
          gated(geglu_backward),
          {.kind = gelu_forward,
           .operands = {matrix(reads, "input"), matrix(writes, "product")},
           .attributes = {"cols", "rows"}},
          {.kind = gelu_backward,
           .operands = {matrix(updates, "input"), matrix(yields, "d_product")},
           .attributes = {"cols", "rows"}}};
}

std::vector<KernelSpec> token_specs() {
  const OperandSpec tokens = operand(reads, "tokens", int32, {d("rows")});
  const auto losses = [](OperandUse logits) {
    return std::vector{matrix(logits, "logits"), operand(reads, "labels", int32, {d("rows")}),
                       operand(adds, "loss_sums", statistic, {d(2)})};
  };
  const std::vector<std::string_view> of_loss{"beta", "bytes", "cols", "rows"};
  std::vector<OperandSpec> with_gradient = losses(updates);
  with_gradient.push_back(optional(operand(reads, "loss_scale", fp32, {d(4)})));
  return {{.kind = token_copy,
           .operands = {operand(reads, "input", int32, {d("token_rows"), d("tokens")}),
                        operand(writes, "output", int32, {d("token_rows"), d("tokens")})}},
          {.kind = embedding_forward,
           .operands = {tokens, operand(reads, "weight", compute, {d("vocab"), d("cols")}),
                        optional(operand(reads, "weight", compute, {d("positions"), d("cols")})),
                        matrix(writes, "output"), kByPosition},
           .attributes = {"bytes", "cols", "rows"},
           .optional_attributes = {"scale", "seq"}},
          {.kind = position_embedding_backward,
           .operands = {matrix(reads, "d_output"),
                        operand(adds, "weight_grad", gradient, {d("positions"), d("cols")}),
                        kByPosition},
           .attributes = {"beta", "cols", "rows", "seq"},
           .sum = GradientSum::of_rank,
           .pieces = "rows"},
          {.kind = embedding_backward,
           .operands = {tokens, matrix(reads, "d_output"),
                        operand(scratch, "token_order", bytes, {d(24, "rows")}),
                        operand(adds, "weight_grad", gradient, {d("vocab"), d("cols")})},
           .attributes = {"beta", "bytes", "cols", "rows"},
           .optional_attributes = {"scale"},
           .sum = GradientSum::of_rank,
           .pieces = "rows"},
          {.kind = cross_entropy,
           .operands = std::move(with_gradient),
           .attributes = of_loss,
           .optional_attributes = {"logit_cap"},
           .workspace = sum_workspace},
          {.kind = cross_entropy_loss,
           .operands = losses(reads),
           .attributes = of_loss,
           .optional_attributes = {"logit_cap"},
           .workspace = sum_workspace}};
}

std::int64_t grouped_flops(const Kernel& k) {
  return product_of(2, usual_rows(k), k.attribute("n"), k.attribute("k"));
}

/// Counts of each expert in blocks of so many tokens.
std::int64_t order_workspace(const Kernel& k) {
  constexpr std::int64_t kBlock = 256;
  return product_of(4, k.attribute("experts"),
                    round_up(std::max<std::int64_t>(k.attribute("rows"), 1), kBlock) / kBlock);
}

/// Rows of experts: m of them, in the order of experts; `ends` says where each one's end. Those
/// behind the last end are nobody's: no kernel reads or writes them. The activation without `ends`
/// is a shared expert's, which has all rows.
std::vector<KernelSpec> expert_specs() {
  const Dim chosen = d("rows", "top_k");
  const Dim room = d("room");  // room_of()
  const OperandSpec ends = operand(reads, "ends", int32, {d("experts")});
  const auto experts = [](OperandUse use, std::string_view role, Element element) {
    return operand(use, role, element, {d("rows"), d("top_k")});
  };
  const auto logits = [](OperandUse use, std::string_view role) {
    return operand(use, role, compute, {d("rows"), d("experts")});
  };
  const auto counts = [](OperandUse use) {
    return optional(operand(use, "counts", int32, {d("sequences"), d("experts")}));
  };
  const auto rows_of = [](OperandUse use, std::string_view role, std::string_view cols) {
    return operand(use, role, compute, {d("m"), d(cols)});
  };
  const auto row_weights = [](OperandUse use, std::string_view role) {
    return operand(use, role, statistic, {d("m")});
  };
  const auto weight = [](OperandUse use, std::string_view role, Element element) {
    return operand(use, role, element, {d("experts", "n"), d("k")});
  };
  const std::vector<std::string_view> sizes{"experts", "k", "m", "n"};
  const std::vector<std::string_view> routing{"experts", "rows", "top_k"};
  const std::vector<std::string_view> inner{"cols", "experts", "m"};
  const std::vector<std::string_view> clamped{"alpha", "balanced_rows", "interleaved", "limit"};
  const std::vector<std::string_view> by_expert{"experts", "m", "n"};
  const auto biases = [](OperandUse use, std::string_view role, Element element) {
    return operand(use, role, element, {d("experts", "n")});
  };
  return {
      {.kind = router_forward,
       .operands = {logits(reads, "logits"),
                    optional(operand(reads, "weight", compute, {d("experts")})),
                    experts(writes, "indices", int32), experts(writes, "weights", statistic),
                    counts(writes)},
       .attributes = routing,
       .optional_attributes = {"chosen_groups", "groups", "normalised", "scale", "seq", "sigmoid"}},
      {.kind = router_backward,
       .operands = {logits(reads, "logits"), experts(reads, "indices", int32),
                    experts(reads, "d_weights", statistic), counts(reads),
                    optional(operand(reads, "loss_scale", fp32, {d(4)})),
                    logits(writes, "d_logits")},
       .attributes = routing,
       .optional_attributes = {"aux_loss", "normalised", "scale", "seq", "sigmoid", "z_loss"}},
      {.kind = expert_order,
       .operands = {experts(reads, "indices", int32),
                    operand(writes, "ends", int32, {d("experts")}),
                    operand(writes, "order", int32, {chosen}), experts(writes, "places", int32)},
       .attributes = routing,
       .workspace = order_workspace},
      {.kind = permute_rows,
       .operands = {matrix(reads, "input"), operand(reads, "order", int32, {room}),
                    optional(experts(reads, "weights", statistic)),
                    optional(operand(writes, "row_weights", statistic, {room})),
                    operand(writes, "output", compute, {room, d("cols")})},
       .attributes = {"cols", "rows", "top_k"},
       .optional_attributes = {"balanced_rows", "m", "peers"}},
      {.kind = combine_rows,
       .operands = {operand(reads, "input", compute, {room, d("cols")}),
                    experts(reads, "places", int32),
                    optional(operand(reads, "row_weights", statistic, {room})),
                    optional(experts(writes, "weights", statistic)), matrix(adds, "output")},
       .attributes = {"beta", "cols", "rows", "top_k"},
       .optional_attributes = {"balanced_rows", "m"}},
      {.kind = peer_order,
       .operands = {operand(reads, "ends", int32, {d("experts")}),
                    operand(reads, "row_order", int32, {chosen}),
                    operand(writes, "counts", int32, {d("experts")}),
                    operand(writes, "order", int32, {d("m")}), experts(writes, "places", int32)},
       .attributes = {"experts", "m", "peers", "rows", "top_k"}},
      {.kind = arrival_order,
       .operands = {operand(reads, "counts", int32, {d("peers"), d("experts")}),
                    operand(writes, "ends", int32, {d("experts")}),
                    operand(writes, "order", int32, {d("m")}),
                    operand(writes, "places", int32, {d("m")})},
       .attributes = {"experts", "m", "peers"}},
      {.kind = grouped_product,
       .operands = {rows_of(reads, "input", "k"), weight(reads, "weight", compute), ends,
                    rows_of(writes, "output", "n")},
       .attributes = sizes,
       .optional_attributes = {"balanced_rows"},
       .flops = grouped_flops},
      {.kind = grouped_input_gradient,
       .operands = {rows_of(reads, "d_output", "n"), weight(reads, "weight", compute), ends,
                    rows_of(writes, "d_input", "k")},
       .attributes = sizes,
       .optional_attributes = {"balanced_rows"},
       .flops = grouped_flops},
      {.kind = grouped_weight_gradient,
       .operands = {rows_of(reads, "d_output", "n"), rows_of(reads, "input", "k"), ends,
                    weight(adds, "weight_grad", gradient)},
       .attributes = {"beta", "experts", "k", "m", "n"},
       .optional_attributes = {"balanced_rows"},
       .flops = grouped_flops,
       .sum = GradientSum::of_rank,
       .pieces = "m",
       .rows_are_sums = true},
      {.kind = sigmoid_forward,
       .operands = {operand(reads, "input", compute, {d("rows"), d(1)}),
                    operand(writes, "output", statistic, {d("rows")})},
       .attributes = {"rows"}},
      {.kind = sigmoid_backward,
       .operands = {operand(reads, "output", statistic, {d("rows")}),
                    operand(reads, "d_output", statistic, {d("rows")}),
                    operand(writes, "d_input", compute, {d("rows"), d(1)})},
       .attributes = {"rows"}},
      {.kind = expert_bias_forward,
       .operands = {rows_of(updates, "output", "n"), biases(reads, "weight", compute), ends,
                    optional(row_weights(reads, "row_weights"))},
       .attributes = by_expert,
       .optional_attributes = {"balanced_rows"}},
      {.kind = expert_bias_dots,
       .operands = {rows_of(reads, "d_output", "n"), biases(reads, "weight", compute), ends,
                    row_weights(updates, "d_row_weights")},
       .attributes = by_expert,
       .optional_attributes = {"balanced_rows"}},
      {.kind = expert_bias_gradient,
       .operands = {rows_of(reads, "d_output", "n"), ends,
                    optional(row_weights(reads, "row_weights")),
                    biases(adds, "weight_grad", gradient)},
       .attributes = {"beta", "experts", "m", "n"},
       .optional_attributes = {"balanced_rows"},
       .sum = GradientSum::of_rank,
       .pieces = "m",
       .rows_are_sums = true},
      {.kind = weighted_swiglu_forward,
       .operands = {operand(reads, "gate_up", compute, {d("m"), d(2, "cols")}),
                    optional(row_weights(reads, "row_weights")), optional(ends),
                    rows_of(writes, "product", "cols")},
       .attributes = inner,
       .optional_attributes = clamped},
      {.kind = weighted_swiglu_backward,
       .operands = {operand(updates, "gate_up", compute, {d("m"), d(2, "cols")}),
                    optional(row_weights(reads, "row_weights")), optional(ends),
                    rows_of(yields, "d_product", "cols"),
                    optional(row_weights(writes, "d_row_weights"))},
       .attributes = inner,
       .optional_attributes = clamped}};
}

std::vector<KernelSpec> step_specs() {
  const OperandSpec loss = operand(reads, "loss", fp32, {d(4)});
  const OperandSpec norm = operand(reads, "norm", fp32, {d(4)});
  // Beside these an update has the slices that it works on: gradient, weights and the states of the
  // group's optimizer (optimizer_spec.hpp). Muon's has directions in place of gradients, which
  // `momentum` makes of them and of its state.
  OperandSpec made_loss = loss;
  made_loss.use = writes;
  OperandSpec made_norm = norm;
  made_norm.use = writes;
  const OperandSpec scale = optional(operand(reads, "loss_scale", fp32, {d(4)}));
  OperandSpec kept_scale = scale;
  kept_scale.use = updates;
  return {
      {.kind = update,
       .operands = {operand(reads, "step_block", bytes, {d(64)}), optional(loss), optional(norm)},
       .attributes = {"elements"}},
      {.kind = momentum,
       .operands = {operand(reads, "step_block", bytes, {d(64)}), loss, optional(norm)},
       .attributes = {"elements"}},
      {.kind = newton_schulz,
       .operands = {operand(updates, "matrix", compute, {d("rows"), d("cols")})},
       .attributes = {"bytes", "cols", "rows"},
       .flops = orthogonal_flops,
       .model_share = {.num = 0},  // a model has none of its optimizer's
       .workspace = orthogonal_workspace},
      {.kind = accumulate, .attributes = {"beta"}, .sum = GradientSum::of_ranks},
      {.kind = cast, .attributes = {"beta"}},
      {.kind = sum_ranks,
       .operands = {operand(reads, "input", gradient, {d("ranks"), d("count")}),
                    operand(adds, "output", gradient, {d("count")})},
       .attributes = {"beta", "count", "ranks"},
       .sum = GradientSum::of_ranks},
      {.kind = zero_padding},
      {.kind = loss_finish,
       .operands = {operand(reads, "input", statistic, {d(2, "data_ranks")}), made_loss, scale}},
      {.kind = norm_partial,
       .operands = {operand(writes, "output", partial, {d(1)})},
       .workspace = sum_workspace,
       .sum = GradientSum::of_squares},
      {.kind = norm_finish,
       .operands = {operand(reads, "input", partial, {d("groups", "members")}), loss, made_norm,
                    kept_scale},
       .attributes = {"groups", "limit"},
       .optional_attributes = {"scale_window"},
       .sum = GradientSum::of_squares}};
}

/// Three places a kind, as GEMMs are of three kinds; others have the first.
constexpr std::size_t kVariants = 3;
using Table = std::array<KernelSpec, kKernelKinds * kVariants>;

Table make_table() {
  Table table;
  std::size_t rows = 0;
  for (auto* make :
       {product_specs, attention_specs, row_specs, token_specs, expert_specs, step_specs})
    for (KernelSpec& spec : make()) {
      const auto variant = static_cast<std::size_t>(spec.variant.value_or(GemmKind::forward));
      table.at(static_cast<std::size_t>(spec.kind) * kVariants + variant) = std::move(spec);
      ++rows;
    }
  if (rows != kKernelKinds + 2) throw std::logic_error("a kernel's kind has no row, or two");
  return table;
}

}  // namespace

Access access_of(OperandUse use, bool adds) {
  switch (use) {
    case OperandUse::reads:
    case OperandUse::yields: return Access::read;
    case OperandUse::writes: return Access::write;
    case OperandUse::updates: return Access::read_write;
    case OperandUse::adds: return adds ? Access::read_write : Access::write;
    case OperandUse::scratch: break;
  }
  return Access::scratch;
}

const KernelSpec& spec_of(KernelKind kind, std::optional<GemmKind> variant) {
  static const Table table = make_table();
  return table.at(static_cast<std::size_t>(kind) * kVariants +
                  static_cast<std::size_t>(variant.value_or(GemmKind::forward)));
}

const KernelSpec* spec_of(const Kernel& kernel) {
  if (kernel.kind != gemm) return &spec_of(kernel.kind);
  const std::optional<GemmKind> variant = gemm_kind(kernel);
  return variant ? &spec_of(gemm, variant) : nullptr;
}

std::optional<GemmKind> gemm_kind(const Kernel& kernel) {
  if (kernel.kind != gemm) return std::nullopt;
  const std::int64_t number = kernel.attribute("kind");
  if (number < 0 || number >= static_cast<std::int64_t>(kVariants)) return std::nullopt;
  return static_cast<GemmKind>(number);
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

std::int64_t least_workspace(const Kernel& kernel) {
  const KernelSpec* spec = spec_of(kernel);
  return spec == nullptr || spec->workspace == nullptr ? 0 : spec->workspace(kernel);
}

}  // namespace mfsdp
