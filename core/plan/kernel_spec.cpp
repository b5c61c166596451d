#include "core/plan/kernel_spec.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/plan/newton_schulz.hpp"
#include "core/plan/op.hpp"
#include "core/plan/spec_words.hpp"

namespace mfsdp {
namespace spec {
namespace {

using enum KernelKind;
using enum Element;
using enum OperandUse;

// ---- FLOPs and workspaces -----------------------------------------------------------------------

std::int64_t gemm_flops(const Kernel& k) {
  return product_of(2, k.attribute("m"), k.attribute("n"), k.attribute("k"));
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
  for (auto* make : {product_specs, attention_specs, latent_specs, rotation_specs, row_specs,
                     token_specs, routing_specs, expert_specs, expert_activation_specs, step_specs})
    for (KernelSpec& spec : make()) {
      const auto variant = static_cast<std::size_t>(spec.variant.value_or(GemmKind::forward));
      table.at(static_cast<std::size_t>(spec.kind) * kVariants + variant) = std::move(spec);
      ++rows;
    }
  if (rows != kKernelKinds + 2) throw std::logic_error("a kernel's kind has no row, or two");
  return table;
}

}  // namespace
}  // namespace spec

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
  static const spec::Table table = spec::make_table();
  return table.at(static_cast<std::size_t>(kind) * spec::kVariants +
                  static_cast<std::size_t>(variant.value_or(GemmKind::forward)));
}

const KernelSpec* spec_of(const Kernel& kernel) {
  if (kernel.kind != KernelKind::gemm) return &spec_of(kernel.kind);
  const std::optional<GemmKind> variant = gemm_kind(kernel);
  return variant ? &spec_of(KernelKind::gemm, variant) : nullptr;
}

std::optional<GemmKind> gemm_kind(const Kernel& kernel) {
  if (kernel.kind != KernelKind::gemm) return std::nullopt;
  const std::int64_t number = kernel.attribute("kind");
  if (number < 0 || number >= static_cast<std::int64_t>(spec::kVariants)) return std::nullopt;
  return static_cast<GemmKind>(number);
}

std::int64_t room_of(const Kernel& kernel) {
  return kernel.attribute("m", checked_mul(kernel.attribute("rows"), kernel.attribute("top_k")));
}

std::int64_t usual_rows(const Kernel& kernel) {
  return kernel.attribute("balanced_rows", kernel.attribute("m"));
}

std::int64_t least_workspace(const Kernel& kernel) {
  const KernelSpec* found = spec_of(kernel);
  return found == nullptr || found->workspace == nullptr ? 0 : found->workspace(kernel);
}

}  // namespace mfsdp
