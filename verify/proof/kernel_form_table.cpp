#include "verify/proof/kernel_form_table.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "verify/proof/roles.hpp"

namespace mfsdp {
namespace {

using enum KernelKind;

constexpr Dim d(std::string_view name) { return {.first = name}; }
constexpr Dim d(std::int64_t times, std::string_view name = {}) {
  return {.first = name, .times = times};
}
constexpr Dim d(std::string_view first, std::string_view second) {
  return {.first = first, .second = second};
}

OperandForm operand(std::string_view role, Element element, std::initializer_list<Dim> shape) {
  OperandForm form;
  form.role = role;
  form.element = element;
  for (const Dim& dim : shape) form.shape[form.dims++] = dim;
  return form;
}
OperandForm optional(OperandForm form) {
  form.optional = true;
  return form;
}
OperandForm strided(std::string_view role, std::initializer_list<Dim> shape) {
  OperandForm form = operand(role, Element::compute, shape);
  form.strided = true;
  return form;
}

const OperandForm kRopeTable = operand("rope_table", Element::fp32, {d("seq"), d("head_dim")});

std::vector<KernelForm> product_forms() {
  using enum Element;
  return {{.kind = gemm,
           .gemm_kind = kForwardGemm,
           .operands = {operand("input", compute, {d("m"), d("k")}),
                        operand("weight", compute, {d("n"), d("k")}),
                        optional(operand("weight", compute, {d("n")})),  // bias
                        operand("output", compute, {d("m"), d("n")})}},
          {.kind = gemm,
           .gemm_kind = kInputGradientGemm,
           .operands = {operand("d_output", compute, {d("m"), d("n")}),
                        operand("weight", compute, {d("n"), d("k")}),
                        operand("d_input", compute, {d("m"), d("k")})}},
          {.kind = gemm,
           .gemm_kind = kWeightGradientGemm,
           .operands = {operand("d_output", compute, {d("m"), d("n")}),
                        operand("input", compute, {d("m"), d("k")}),
                        operand("weight_grad", gradient, {d("n"), d("k")})}},
          {.kind = bias_grad,
           .operands = {operand("d_output", compute, {d("rows"), d("cols")}),
                        operand("partials", statistic, {d("partial_rows"), d("cols")}),
                        operand("weight_grad", gradient, {d("cols")})}}};
}

std::vector<KernelForm> attention_forms() {
  using enum Element;
  const Dim tokens = d("batch", "seq");
  const Dim width = d("heads", "head_dim");
  const auto heads = [](std::string_view role, std::string_view count) {
    return strided(role, {d("batch"), d(count), d("seq"), d("head_dim")});
  };
  // Query and key heads of a token: "rotated" of them.
  const auto rotated = [](std::string_view role) {
    return strided(role, {d("rows"), d("rotated"), d("head_dim")});
  };
  const OperandForm head_weight = operand("weight", compute, {d("head_dim")});
  const OperandForm rstd = operand("rstd", statistic, {d("rows"), d("rotated")});
  return {{.kind = attention_forward,
           .operands = {heads("query", "heads"), heads("key", "kv_heads"),
                        heads("value", "kv_heads"), operand("output", compute, {tokens, width}),
                        operand("log_sum_exp", statistic, {tokens, d("heads")})}},
          {.kind = attention_backward,
           .operands = {heads("query", "heads"), heads("key", "kv_heads"),
                        heads("value", "kv_heads"), operand("output", compute, {tokens, width}),
                        operand("d_output", compute, {tokens, width}),
                        operand("log_sum_exp", statistic, {tokens, d("heads")}),
                        operand("d_qkv", compute, {tokens, d("all_heads", "head_dim")}),
                        operand("d_query_sum", statistic, {tokens, width}),
                        operand("row_sums", statistic, {tokens, d("heads")})}},
          {.kind = rope_forward, .operands = {rotated("query_key"), kRopeTable}},
          {.kind = rope_backward, .operands = {rotated("d_query_key"), kRopeTable}},
          {.kind = qk_norm_rope_forward,
           .operands = {rotated("query_key"), kRopeTable, head_weight, head_weight,
                        rotated("output"), rstd}},
          {.kind = qk_norm_rope_backward,
           .operands = {rotated("d_query_key"), rotated("query_key"), kRopeTable, rstd, head_weight,
                        head_weight,
                        operand("partials", statistic, {d(2, "partial_rows"), d("head_dim")})}}};
}

std::vector<KernelForm> row_forms() {
  using enum Element;
  const auto matrix = [](std::string_view role) {
    return operand(role, compute, {d("rows"), d("cols")});
  };
  const OperandForm rstd = operand("rstd", statistic, {d("rows")});
  const OperandForm weight = operand("weight", compute, {d("cols")});
  const OperandForm tokens = operand("tokens", int32, {d("rows")});
  const OperandForm labels = operand("labels", int32, {d("rows")});
  const OperandForm sums = operand("loss_sums", statistic, {d(2)});
  return {
      {.kind = rms_norm_forward,
       .operands = {matrix("residual"), optional(matrix("delta")), weight,
                    optional(matrix("residual_out")), matrix("normed"), rstd}},
      {.kind = rms_norm_backward,
       .operands = {matrix("d_normed"), matrix("input"), rstd, weight, matrix("d_residual"),
                    operand("partials", statistic, {d("partial_rows"), d("cols")})}},
      {.kind = norm_weight_grad,
       .operands = {operand("partials", statistic, {d("rows"), d("cols")}),
                    operand("weight_grad", gradient, {d("cols")})}},
      {.kind = swiglu_forward,
       .operands = {operand("gate_up", compute, {d("rows"), d(2, "cols")}), matrix("product")}},
      {.kind = swiglu_backward,
       .operands = {operand("gate_up", compute, {d("rows"), d(2, "cols")}), matrix("d_product")}},
      {.kind = embedding_forward,
       .operands = {tokens, operand("weight", compute, {d("vocab"), d("cols")}), matrix("output")}},
      {.kind = embedding_backward,
       .operands = {tokens, matrix("d_output"), operand("token_order", bytes, {d(24, "rows")}),
                    operand("weight_grad", gradient, {d("vocab"), d("cols")})}},
      {.kind = cross_entropy, .operands = {matrix("logits"), labels, sums}},
      {.kind = cross_entropy_loss, .operands = {matrix("logits"), labels, sums}}};
}

std::vector<KernelForm> step_forms() {
  using enum Element;
  const OperandForm loss = operand("loss", fp32, {d(4)});
  const OperandForm norm = operand("norm", fp32, {d(4)});
  // The slices that an update works on are compared with each other elsewhere (updates.hpp), and
  // so is whether it has 1/T and a norm (scales.hpp).
  const std::vector<OperandForm> update{operand("step_block", bytes, {d(64)}), optional(loss),
                                        optional(norm)};
  return {
      {.kind = adamw, .operands = update},
      {.kind = sgd, .operands = update},
      {.kind = token_copy,
       .operands = {operand("input", int32, {d(2), d("tokens")}),
                    operand("output", int32, {d(2), d("tokens")})}},
      {.kind = loss_finish, .operands = {operand("input", statistic, {d(2, "data_ranks")}), loss}},
      {.kind = norm_partial, .operands = {operand("output", partial, {d(1)})}},
      {.kind = norm_finish,
       .operands = {operand("input", partial, {d("groups", "members")}), loss, norm}}};
}

/// cuDNN's: its own 256 bytes, gradients of keys and values for each query head that shares them,
/// and a matrix of scores where sums are in one order. It works on 2 bytes an element.
std::int64_t attention_backward_workspace(const Kernel& kernel) {
  constexpr std::int64_t kElement = 2;
  std::int64_t bytes = 256;
  const Operand* query = operand_of(kernel, "query");
  if (query == nullptr || size_of(query->dtype) != kElement) return bytes;
  const std::int64_t batch = kernel.attribute("batch");
  const std::int64_t heads = kernel.attribute("heads");
  const std::int64_t seq = kernel.attribute("seq");
  if (heads != kernel.attribute("kv_heads")) {
    const std::int64_t gradient =
        product_of(batch, seq, heads, kernel.attribute("head_dim"), kElement);
    bytes = checked_add(bytes, checked_mul(2, round_up(gradient, 128)));
  }
  if (kernel.attribute("deterministic") != 0)
    bytes = checked_add(bytes,
                        product_of(batch, heads, round_up(seq, 64), round_up(seq, 128), kElement));
  return bytes;
}

}  // namespace

std::int64_t least_workspace(const Kernel& kernel) {
  switch (kernel.kind) {
    case attention_backward: return attention_backward_workspace(kernel);
    case attention_forward: return 256;  // cuDNN's
    case cross_entropy:
    case cross_entropy_loss:
    case norm_partial: return 1024 * 2 * 8 + 8;  // two doubles a block, and who has come
    default: return 0;
  }
}

const KernelForm* form_of(const Kernel& kernel) {
  static const std::vector<KernelForm> all = [] {
    std::vector<KernelForm> list;
    for (auto* make : {product_forms, attention_forms, row_forms, step_forms})
      for (KernelForm& form : make()) list.push_back(std::move(form));
    return list;
  }();
  const std::int64_t gemm_kind = kernel.attribute("kind");
  const auto found = std::ranges::find_if(all, [&](const KernelForm& form) {
    return form.kind == kernel.kind && (!form.gemm_kind || *form.gemm_kind == gemm_kind);
  });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace mfsdp
