#include "sim/engines/autocast_model.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kRootUnit = 0;
constexpr std::int64_t kScalarBytes = 4;

}  // namespace

AutocastModel::AutocastModel(StepBuilder& step, const PlanConfig& config, std::vector<UnitId> units,
                             Made made)
    : step_(step),
      config_(config),
      sizes_(llama_sizes(config)),
      wide_(2 * sizes_.state),
      units_(std::move(units)),
      made_(std::move(made)),
      functions_(eager_functions(step, config)),
      root_weights_(root_weights(config.model)),
      block_weights_(block_weights(config.model)),
      saved_(units_.size()) {}

void AutocastModel::at(std::size_t unit, Phase phase) { step_.at(units_[unit], phase); }

const std::vector<Weight>& AutocastModel::weights_of(std::size_t unit) const {
  return unit == kRootUnit ? root_weights_ : block_weights_;
}

ParameterPlace AutocastModel::place(std::size_t unit, std::string_view name) const {
  const std::vector<Weight>& weights = weights_of(unit);
  const auto found = std::ranges::find(weights, name, &Weight::name);
  return {.unit = unit, .weight = static_cast<std::size_t>(found - weights.begin())};
}

void AutocastModel::keep_inputs() {
  constexpr std::int64_t kTokenId = 8;
  at(kRootUnit, Phase::input);
  for (const char* name : {"cosine", "sine"})
    step_.keep(name, 2 * sizes_.angles, Category::activation);
  step_.keep("tokens", (sizes_.tokens + config_.micro_batch) * kTokenId, Category::activation);
}

// ---- Forward -------------------------------------------------------------------------------

/// From autocast's cache, if the weight was cast before.
Tensor AutocastModel::cast_weight(ParameterPlace weight) {
  if (const auto found = casts_.find(weight); found != casts_.end()) return found->second;
  const Weight& of = weights_of(weight.unit)[weight.weight];
  const Tensor cast =
      step_.allocate(of.name + "_cast", of.elements() * kHalf, Category::model_weight);
  step_.memory_bound(KernelKind::cast, of.name + "_cast", of.elements() * (kFull + kHalf));
  casts_[weight] = cast;
  return cast;
}

/// The cache is emptied. Only autograd's references are left, and recomputed blocks have none.
void AutocastModel::leave_autocast() {
  if (config_.recompute.kind != Recompute::full) return;
  for (auto cast = casts_.begin(); cast != casts_.end();) {
    if (cast->first.unit == kRootUnit) {
      ++cast;
      continue;
    }
    step_.free(cast->second);
    cast = casts_.erase(cast);
  }
}

AutocastModel::Normed32 AutocastModel::norm(std::string_view name) {
  const std::string own(name);
  const Normed32 made{
      .rows = step_.allocate(own + "_fp32", wide_, Category::activation),
      .statistic = step_.allocate(own + "_rstd", sizes_.statistic, Category::activation)};
  step_.memory_bound(KernelKind::rms_norm_forward, name, 2 * wide_);
  return made;
}

Tensor AutocastModel::gemm(ParameterPlace weight, std::string_view name, std::int64_t bytes) {
  const Weight& of = weights_of(weight.unit)[weight.weight];
  const Tensor output = step_.allocate(name, bytes, Category::activation);
  step_.gemm(GemmKind::forward, name, sizes_.tokens, of.rows, of.columns);
  return output;
}

Tensor AutocastModel::normed_gemm(ParameterPlace weight, std::string_view name,
                                  const Normed32& normed, Tensor& rows) {
  (void)cast_weight(weight);
  rows = step_.allocate(std::string(name) + "_input", sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::cast, std::string(name) + "_input", wide_ + sizes_.state);
  if (name == "qkv" && config_.model.qkv_bias) (void)cast_weight(place(weight.unit, "qkv_bias"));
  const Weight& of = weights_of(weight.unit)[weight.weight];
  const Tensor output = gemm(weight, name, sizes_.tokens * of.rows * kHalf);
  step_.free(normed.rows);
  return output;
}

/// The fp32 sum of a hidden state and a branch's bf16 output, which is freed.
Tensor AutocastModel::add_residual(std::string_view name, Tensor branch) {
  const Tensor sum = step_.allocate(name, wide_, Category::activation);
  step_.memory_bound(KernelKind::accumulate, name, 2 * wide_ + sizes_.state);
  step_.free(branch);
  return sum;
}

void AutocastModel::mix(Saved& kept, bool keep) {
  constexpr std::int64_t kRandomState = 8;
  kept.seed = step_.allocate("attention_seed", kRandomState, Category::activation);
  kept.offset = step_.allocate("attention_offset", kRandomState, Category::activation);
  kept.mixed = step_.allocate("attention", sizes_.query, Category::activation);
  kept.scores = step_.allocate("attention_lse", sizes_.query_statistic, Category::activation);
  step_.scratch("attention_workspace", kAttentionWorkspaceBytes);
  step_.attention(KernelKind::attention_forward);
  if (!keep) step_.free({kept.scores, kept.seed, kept.offset});
}

/// Up to the MLP's second GEMM; `keep`: for backward.
AutocastModel::Saved AutocastModel::run_block(std::size_t unit, Tensor input, bool keep) {
  Saved kept;
  kept.input = input;
  const Normed32 normed1 = norm("normed1");
  kept.normed1_rstd = normed1.statistic;
  kept.qkv = normed_gemm(place(unit, "qkv"), "qkv", normed1, kept.normed1);
  if (!keep) step_.free({kept.normed1, kept.normed1_rstd});
  kept.query = functions_->rotate("query", sizes_.query);
  kept.key = functions_->rotate("key", sizes_.key);
  mix(kept, keep);
  (void)cast_weight(place(unit, "out"));
  kept.sum = add_residual("sum", gemm(place(unit, "out"), "out", sizes_.state));
  const Normed32 normed2 = norm("normed2");
  kept.normed2_rstd = normed2.statistic;
  kept.gate_up = normed_gemm(place(unit, "gate_up"), "gate_up", normed2, kept.normed2);
  if (!keep) step_.free({kept.normed2, kept.normed2_rstd});
  kept.activated = functions_->activate();
  if (!keep) step_.free({*kept.activated.gate, kept.gate_up});
  return kept;
}

Tensor AutocastModel::block_forward(std::size_t unit, Tensor input) {
  at(unit, Phase::forward);
  const bool keep = config_.recompute.kind != Recompute::full;
  const Saved kept = run_block(unit, input, keep);
  (void)cast_weight(place(unit, "down"));
  const Tensor down = gemm(place(unit, "down"), "down", sizes_.state);
  if (!keep) step_.free(kept.activated.product);
  const Tensor output = add_residual("output", down);
  if (!keep) step_.free({kept.sum, kept.query, kept.key, kept.qkv, kept.mixed});
  saved_[unit] = kept;
  return output;
}

void AutocastModel::forward() {
  at(kRootUnit, Phase::forward);
  Tensor state = step_.allocate("embedded", wide_, Category::activation);
  step_.memory_bound(KernelKind::embedding_forward, "embedding", 2 * wide_);
  for (std::size_t unit = 1; unit < units_.size(); ++unit) state = block_forward(unit, state);
  at(kRootUnit, Phase::forward);
  saved_[kRootUnit].input = state;
  last_norm_ = norm("normed");
  const std::string_view head = config_.model.tied_embeddings ? "embedding" : "head";
  (void)cast_weight(place(kRootUnit, head));
  last_rows_ = step_.allocate("head_input", sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::cast, "head_input", wide_ + sizes_.state);
  const Tensor logits = step_.allocate("logits", sizes_.logits, Category::logits);
  step_.gemm(GemmKind::forward, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden);
  step_.free(last_norm_.rows);
  loss_ = functions_->loss(logits);
  leave_autocast();
}

// ---- Backward ------------------------------------------------------------------------------

/// The gradient of a weight's cast becomes that of the weight. The cast itself is freed with the
/// GEMM's other inputs.
void AutocastModel::gradient_made(ParameterPlace weight, Tensor bf16) {
  const Weight& of = weights_of(weight.unit)[weight.weight];
  const Tensor wide =
      step_.allocate(of.name + "_grad_fp32", of.elements() * kFull, Category::unsharded_grad);
  step_.memory_bound(KernelKind::cast, of.name + "_grad_fp32", of.elements() * (kFull + kHalf));
  step_.free(bf16);
  made_(weight, wide);
}

/// A bf16 copy of a hidden state's gradient, for a branch.
Tensor AutocastModel::narrowed(std::string_view name) {
  const Tensor narrow = step_.allocate(name, sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::cast, name, wide_ + sizes_.state);
  return narrow;
}

/// The fp32 gradient of a GEMM's input before its cast; frees the bf16 gradient.
Tensor AutocastModel::widened(std::string_view name, Tensor gradient) {
  const Tensor wide = step_.allocate(name, wide_, Category::activation);
  step_.memory_bound(KernelKind::cast, name, wide_ + sizes_.state);
  step_.free(gradient);
  return wide;
}

Tensor AutocastModel::gemm_backward(ParameterPlace weight, std::string_view name,
                                    std::int64_t bytes, Tensor& input_gradient) {
  const Weight& of = weights_of(weight.unit)[weight.weight];
  const Tensor gradient =
      step_.allocate(of.name + "_grad", of.elements() * kHalf, Category::unsharded_grad);
  step_.gemm(GemmKind::weight_gradient, name, sizes_.tokens, of.rows, of.columns);
  input_gradient = step_.allocate("d_" + std::string(name) + "_input", bytes, Category::activation);
  step_.gemm(GemmKind::input_gradient, name, sizes_.tokens, of.rows, of.columns);
  step_.free(casts_.at(weight));
  casts_.erase(weight);
  return gradient;
}

/// Frees `gradient`, `input` and `statistic`. The input's gradient is added to that of the hidden
/// state, in place.
void AutocastModel::norm_backward(ParameterPlace weight, Tensor gradient, Tensor input,
                                  Tensor statistic) {
  const Weight& of = weights_of(weight.unit)[weight.weight];
  const std::string own = "d_" + of.name;
  const Tensor added = step_.allocate(own, wide_, Category::activation);
  const Tensor weight_gradient =
      step_.allocate(of.name + "_grad", of.elements() * kFull, Category::unsharded_grad);
  step_.memory_bound(KernelKind::rms_norm_backward, own, 3 * wide_);
  step_.memory_bound(KernelKind::norm_weight_grad, of.name + "_grad", 2 * wide_);
  step_.free({gradient, input, statistic});
  step_.memory_bound(KernelKind::accumulate, of.name + "_residual", 3 * wide_);
  step_.free(added);
  made_(weight, weight_gradient);
}

/// The gradient of queries, keys and values, in rows.
Tensor AutocastModel::attention_backward(const Saved& kept, Tensor mixed) {
  const Tensor query = step_.allocate("d_query", sizes_.query, Category::activation);
  const Tensor key = step_.allocate("d_key", sizes_.key, Category::activation);
  const Tensor value = step_.allocate("d_value", sizes_.key, Category::activation);
  step_.scratch("attention_backward_workspace", sizes_.attention_workspace);
  step_.attention(KernelKind::attention_backward);
  step_.free(
      {mixed, kept.key, kept.query, kept.qkv, kept.scores, kept.mixed, kept.offset, kept.seed});
  const Tensor turned_key = functions_->rotate_backward("key", key, sizes_.key);
  const Tensor turned_query = functions_->rotate_backward("query", query, sizes_.query);
  const Tensor joined = step_.allocate("d_qkv_heads", sizes_.qkv, Category::activation);
  step_.memory_bound(KernelKind::rope_backward, "join", {2 * sizes_.qkv, AccessPattern::pieces});
  step_.free({turned_query, turned_key, value});
  const Tensor rows = step_.allocate("d_qkv", sizes_.qkv, Category::activation);
  step_.memory_bound(KernelKind::rope_backward, "rows", {2 * sizes_.qkv, AccessPattern::strided});
  step_.free(joined);
  return rows;
}

/// Returns the gradient of the block's input: `gradient`, that of its output, with what the norms'
/// backwards add to it.
Tensor AutocastModel::block_backward(std::size_t unit, Tensor gradient) {
  at(unit, Phase::backward);
  if (config_.recompute.kind == Recompute::full) {
    step_.set_phase(Phase::recompute);
    saved_[unit] = run_block(unit, saved_[unit].input, true);
    (void)cast_weight(place(unit, "down"));
    step_.set_phase(Phase::backward);
  }
  const Saved kept = saved_[unit];
  Tensor d_input;
  const Tensor d_down = narrowed("d_down");
  Tensor grad = gemm_backward(place(unit, "down"), "down", sizes_.product, d_input);
  step_.free({kept.activated.product, d_down});
  gradient_made(place(unit, "down"), grad);
  const Tensor d_both = functions_->activate_backward(kept.activated, kept.gate_up, d_input);
  grad = gemm_backward(place(unit, "gate_up"), "gate_up", sizes_.state, d_input);
  step_.free({d_both, kept.normed2});
  const Tensor d_normed2 = widened("d_normed2", d_input);
  gradient_made(place(unit, "gate_up"), grad);
  norm_backward(place(unit, "norm2"), d_normed2, kept.sum, kept.normed2_rstd);
  const Tensor d_out = narrowed("d_out");
  grad = gemm_backward(place(unit, "out"), "out", sizes_.query, d_input);
  step_.free(d_out);
  gradient_made(place(unit, "out"), grad);
  const Tensor rows = attention_backward(kept, d_input);
  grad = gemm_backward(place(unit, "qkv"), "qkv", sizes_.state, d_input);
  std::optional<Tensor> bias;
  if (config_.model.qkv_bias) {
    const ParameterPlace of = place(unit, "qkv_bias");
    bias = step_.allocate("qkv_bias_grad", kHalf * sizes_.qkv_columns, Category::unsharded_grad);
    step_.memory_bound(KernelKind::bias_grad, "qkv_bias", sizes_.qkv);
    step_.free(casts_.at(of));
    casts_.erase(of);
  }
  step_.free({rows, kept.normed1});
  const Tensor d_normed1 = widened("d_normed1", d_input);
  gradient_made(place(unit, "qkv"), grad);
  if (bias) gradient_made(place(unit, "qkv_bias"), *bias);
  norm_backward(place(unit, "norm1"), d_normed1, kept.input, kept.normed1_rstd);
  return gradient;
}

/// Returns the gradient of the last block's output.
Tensor AutocastModel::head_backward() {
  const bool tied = config_.model.tied_embeddings;
  const ParameterPlace head = place(kRootUnit, tied ? "embedding" : "head");
  const Tensor logits = functions_->loss_backward(loss_);
  const Tensor grad =
      step_.allocate("head_grad", sizes_.vocab * sizes_.hidden * kHalf, Category::unsharded_grad);
  step_.gemm(GemmKind::weight_gradient, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden);
  const Tensor d_rows = step_.allocate("d_head_input", sizes_.state, Category::activation);
  step_.gemm(GemmKind::input_gradient, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden);
  step_.free({logits, last_rows_, casts_.at(head)});
  casts_.erase(head);
  const Tensor d_normed = widened("d_normed", d_rows);
  if (tied) {
    const std::int64_t elements = sizes_.vocab * sizes_.hidden;
    head_gradient_ = step_.allocate("head_grad_fp32", elements * kFull, Category::unsharded_grad);
    step_.memory_bound(KernelKind::cast, "head_grad_fp32", elements * (kFull + kHalf));
    step_.free(grad);
  } else {
    gradient_made(head, grad);
  }
  // The first gradient of the last hidden state: nothing to add it to.
  const Tensor state = step_.allocate("d_norm", wide_, Category::activation);
  const Tensor weight =
      step_.allocate("norm_grad", sizes_.hidden * kFull, Category::unsharded_grad);
  step_.memory_bound(KernelKind::rms_norm_backward, "d_norm", 3 * wide_);
  step_.memory_bound(KernelKind::norm_weight_grad, "norm_grad", 2 * wide_);
  step_.free({d_normed, saved_[kRootUnit].input, last_norm_.statistic});
  made_(place(kRootUnit, "norm"), weight);
  return state;
}

void AutocastModel::embedding_backward(Tensor gradient) {
  const std::int64_t bytes = sizes_.vocab * sizes_.hidden * kFull;
  Tensor made = step_.allocate("embedding_grad", bytes, Category::unsharded_grad);
  step_.memory_bound(KernelKind::embedding_backward, "embedding", bytes + 3 * wide_);
  step_.free(gradient);
  if (head_gradient_) {
    const Tensor sum = step_.allocate("tied_grad", bytes, Category::unsharded_grad);
    step_.memory_bound(KernelKind::accumulate, "tied", 3 * bytes);
    step_.free({*std::exchange(head_gradient_, std::nullopt), made});
    made = sum;
  }
  made_(place(kRootUnit, "embedding"), made);
}

void AutocastModel::backward() {
  at(kRootUnit, Phase::backward);
  seed_ = step_.allocate("d_loss", kScalarBytes, Category::activation);
  Tensor gradient = head_backward();
  for (std::size_t unit = units_.size(); unit-- > 1;) gradient = block_backward(unit, gradient);
  at(kRootUnit, Phase::backward);
  embedding_backward(gradient);
  step_.free({seed_, loss_.value});
}

}  // namespace mfsdp
