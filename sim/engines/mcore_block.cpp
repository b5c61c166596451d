#include "sim/engines/mcore_block.hpp"

#include <string>
#include <utility>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

// ---- Forward --------------------------------------------------------------------------------

Tensor McoreBlock::forward(const LayerWeights& weights, Tensor /*input*/) {
  in_fp8_ = config_.has_fp8(weights.layer);
  const Saved kept = run(weights, !recomputes());
  if (!recomputes()) saved_.insert_or_assign(weights.out, kept);
  return kept.output;
}

McoreBlock::Saved McoreBlock::run(const LayerWeights& weights, bool keep) {
  Saved kept{};
  const Tensor out =
      is_latent() ? latent_.forward(weights, kept.latent, keep) : attend(weights, kept, keep);
  if (weights.out_bias) {
    hooks_.use(*weights.out_bias);
    if (!is_gpt()) elementwise(KernelKind::accumulate, "out_bias", 2 * rows_.state());
  }
  kept.sum = allocate("sum", rows_.state());
  elementwise(KernelKind::accumulate, "residual1", 3 * rows_.state());
  step_.free(out);
  const Tensor down = weights.experts ? experts_.forward(weights, kept.experts, keep)
                                      : multiply(weights, kept, keep);
  kept.output = allocate("output", rows_.state());
  elementwise(KernelKind::accumulate, "residual2", 3 * rows_.state());
  step_.free(down);
  if (!keep) step_.free(kept.sum);
  return kept;
}

Tensor McoreBlock::cast_input(std::string_view name, Tensor input, LargestMagnitude largest,
                              bool keep, std::optional<Tensor>& read) {
  if (!in_fp8_) return input;
  const TeCasts casts = modules_.cast(name, step_.bytes_of(input) / kHalf, largest, keep);
  step_.free(input);
  if (!keep) return casts.row;
  read = casts.row;
  return *casts.column;
}

void McoreBlock::use(std::initializer_list<std::optional<std::size_t>> weights) {
  for (const std::optional<std::size_t>& weight : weights)
    if (weight) hooks_.use(*weight);
}

Tensor McoreBlock::attend(const LayerWeights& weights, Saved& kept, bool keep) {
  use({weights.norm1, weights.norm1_bias, weights.qkv, weights.qkv_bias});
  kept.normed1 = modules_.norm("normed1", rows_.state(), rows_.statistic());
  std::optional<Tensor> read;
  kept.normed1.rows =
      cast_input("normed1", kept.normed1.rows, LargestMagnitude::by_norm, keep, read);
  cast_weight(weights.qkv, "qkv", sizes_.qkv_columns, sizes_.hidden);
  const Tensor qkv = column_product("qkv", "normed1", sizes_.qkv_columns);
  free_if_any(read);
  if (!keep) free_norm(kept.normed1);
  if (is_gpt())
    kept.rows = qkv;
  else
    heads(weights, kept, keep);
  mix(weights, kept, keep);
  hooks_.use(weights.out);
  std::optional<TeCasts> casts;
  if (in_fp8_)
    casts = modules_.cast("attention", sizes_.query / kHalf, LargestMagnitude::by_a_pass, keep);
  cast_weight(weights.out, "out", sizes_.hidden, sizes_.query_columns);
  const Tensor out = row_product("out", sizes_.query_columns);
  if (casts) step_.free(casts->row);
  if (casts) kept.mixed_cast = casts->column;
  if (!keep || !is_gpt()) step_.free(qkv);
  if (context_.shares())
    context_.free_inputs({.query = kept.query, .key = kept.key, .value = kept.value}, keep);
  else if (!keep && !is_gpt())
    step_.free({kept.query, kept.key});
  if (!keep) step_.free(kept.mixed);
  return out;
}

Tensor McoreBlock::column_product(std::string_view name, std::string_view rows,
                                  std::int64_t outputs) {
  if (rows_.in_pieces()) {
    const Tensor made = allocate(name, sizes_.tokens * outputs * kHalf);
    rows_.gather_beside(rows, gemm_of(GemmKind::forward, name, outputs, sizes_.hidden));
    return made;
  }
  const auto all = rows_.gathered(rows);
  const Tensor made = allocate(name, sizes_.tokens * outputs * kHalf);
  gemm(GemmKind::forward, name, outputs, sizes_.hidden);
  free_if_any(all);
  return made;
}

Tensor McoreBlock::row_product(std::string_view name, std::int64_t inputs) {
  if (rows_.in_pieces())
    return rows_.reduce_beside(name, gemm_of(GemmKind::forward, name, sizes_.hidden, inputs));
  const Tensor term = allocate(name, sizes_.state);
  gemm(GemmKind::forward, name, sizes_.hidden, inputs);
  return rows_.reduced(name, term);
}

void McoreBlock::free_norm(const TeNorm& norm) {
  step_.free(norm.rows);
  modules_.free_statistics(norm);
}

Tensor McoreBlock::multiply(const LayerWeights& weights, Saved& kept, bool keep) {
  use({weights.norm2, weights.norm2_bias, weights.gate_up, weights.gate_up_bias});
  kept.normed2 = modules_.norm("normed2", rows_.state(), rows_.statistic());
  std::optional<Tensor> read;
  kept.normed2.rows =
      cast_input("normed2", kept.normed2.rows, LargestMagnitude::by_norm, keep, read);
  cast_weight(weights.gate_up, "gate_up", inner_columns(), sizes_.hidden);
  kept.gate_up = column_product("gate_up", "normed2", inner_columns());
  free_if_any(std::exchange(read, std::nullopt));
  if (!keep) free_norm(kept.normed2);
  kept.product = allocate("product", sizes_.product);
  if (is_gpt())
    elementwise(KernelKind::gelu_forward, "gelu", 2 * sizes_.product);
  else
    elementwise(KernelKind::swiglu_forward, "swiglu", {3 * sizes_.product, AccessPattern::strided});
  if (!keep) step_.free(kept.gate_up);
  use({weights.down, weights.down_bias});
  kept.product = cast_input("product", kept.product, LargestMagnitude::by_a_pass, keep, read);
  cast_weight(weights.down, "down", sizes_.hidden, sizes_.ffn);
  const Tensor down = row_product("down", sizes_.ffn);
  free_if_any(read);
  if (!keep) step_.free(kept.product);
  return down;
}

bool McoreBlock::fuses_rotations() const {
  const RopeScaling& scaling = config_.model.rope_scaling;
  return scaling.kind != RopeKind::yarn || scaling.factor == Rational{1, 1};
}

AttentionKind McoreBlock::attention_of(const LayerWeights& weights) const {
  const ModelShape& model = config_.model;
  return {.window = model.window_of(model.slides(weights.layer), config_.seq_len),
          .heads = model.heads};
}

/// Rotates queries or keys. Not fused: times cosines, an exchange of the halves with one
/// negated, times sines, the sum, and a copy of it.
void McoreBlock::rotate(std::string_view name, std::int64_t bytes, AccessPattern pattern) {
  if (fuses_rotations()) return elementwise(KernelKind::rope_forward, name, {2 * bytes, pattern});
  const std::string own(name);
  const auto kernel = [&](std::string_view part, const Traffic& traffic) {
    elementwise(KernelKind::rope_forward, own + "_" + std::string(part), traffic);
  };
  const Tensor straight = allocate(own + "_times_cosine", bytes);
  kernel("times_cosine", {2 * bytes, AccessPattern::strided});
  const Tensor negated = allocate(own + "_negated", bytes / 2);
  kernel("negate", {bytes, AccessPattern::strided});
  const Tensor turned = allocate(own + "_exchanged", bytes);
  kernel("exchange", {2 * bytes, AccessPattern::pieces});
  step_.free(negated);
  const Tensor crossed = allocate(own + "_times_sine", bytes);
  kernel("times_sine", 2 * bytes);
  step_.free(turned);
  const Tensor sum = allocate(own + "_sum", bytes);
  kernel("add", 3 * bytes);
  step_.free({straight, crossed});
  kernel("copy", 2 * bytes);
  step_.free(sum);
}

void McoreBlock::rotate_back(std::string_view name, std::int64_t bytes) {
  if (fuses_rotations()) return elementwise(KernelKind::rope_backward, name, 2 * bytes);
  const std::string own(name);
  const auto kernel = [&](std::string_view part, const Traffic& traffic) {
    elementwise(KernelKind::rope_backward, own + "_" + std::string(part), traffic);
  };
  const Tensor crossed = allocate(own + "_times_sine", bytes);
  kernel("times_sine", 2 * bytes);
  const Tensor negated = allocate(own + "_negated", bytes / 2);
  kernel("negate", {bytes, AccessPattern::strided});
  const Tensor turned = allocate(own + "_exchanged", bytes);
  kernel("exchange", {2 * bytes, AccessPattern::pieces});
  step_.free({crossed, negated});
  const Tensor straight = allocate(own + "_times_cosine", bytes);
  kernel("times_cosine", 2 * bytes);
  kernel("add", 3 * bytes);
  step_.free({turned, straight});
}

/// Query and key are normed if the model does so, and rotated; values are copied.
void McoreBlock::heads(const LayerWeights& weights, Saved& kept, bool keep) {
  std::optional<Tensor> query;
  std::optional<Tensor> key;
  if (groups() || weights.query_norm) {
    query = allocate("query_rows", sizes_.query);
    elementwise(KernelKind::cast, "query_rows", {2 * sizes_.query, AccessPattern::strided});
  }
  if (weights.query_norm) {
    hooks_.use(*weights.query_norm);
    kept.query_rows = query;
    query = normed_heads("normed_query", sizes_.query, sizes_.query_statistic, kept.query_rows,
                         kept.query_statistic, keep);
    hooks_.use(*weights.key_norm);
    kept.key_rows = allocate("key_rows", sizes_.key);
    elementwise(KernelKind::cast, "key_rows", {2 * sizes_.key, AccessPattern::strided});
    key = normed_heads("normed_key", sizes_.key, sizes_.key_statistic, kept.key_rows,
                       kept.key_statistic, keep);
  }
  const auto pattern = [](const std::optional<Tensor>& rows) {
    return rows ? AccessPattern::contiguous : AccessPattern::strided;
  };
  kept.query = allocate("query", sizes_.query);
  rotate("rope_query", sizes_.query, pattern(query));
  if (query) step_.free(*query);
  kept.key = allocate("key", sizes_.key);
  rotate("rope_key", sizes_.key, pattern(key));
  if (key) step_.free(*key);
  kept.value = allocate("value", sizes_.key);
  elementwise(KernelKind::cast, "value", {2 * sizes_.key, AccessPattern::strided});
}

Tensor McoreBlock::normed_heads(std::string_view name, std::int64_t bytes, std::int64_t statistic,
                                std::optional<Tensor>& rows, std::optional<Tensor>& sums,
                                bool keep) {
  const TeNorm normed = modules_.norm(name, bytes, statistic);
  sums = normed.statistic;
  if (!keep) step_.free({*rows, *sums});
  return normed.rows;
}

void McoreBlock::mix(const LayerWeights& weights, Saved& kept, bool keep) {
  if (context_.shares()) {
    kept.context =
        context_.forward({.query = kept.query, .key = kept.key, .value = kept.value}, keep);
    kept.mixed = kept.context.output;
    return;
  }
  if (weights.sinks) hooks_.use(*weights.sinks);
  constexpr std::int64_t kRandomState = 16;
  kept.mixed = allocate("attention", sizes_.query);
  kept.random_state = allocate("attention_random_state", kRandomState);
  const Tensor workspace =
      allocate("attention_workspace", kAttentionWorkspaceBytes, Category::workspace);
  kept.scores = allocate("attention_lse", sizes_.query_statistic);
  step_.attention(KernelKind::attention_forward, attention_of(weights));
  step_.free(workspace);
  if (!keep) step_.free({kept.scores, kept.random_state});
  if (!keep && !is_gpt()) step_.free(kept.value);
}

// ---- Backward -------------------------------------------------------------------------------

Tensor McoreBlock::input_and_weight(std::string_view name, std::int64_t outputs,
                                    std::int64_t inputs) {
  const std::string own = "d_" + std::string(name);
  std::optional<TeCasts> gradient;
  if (in_fp8_)
    gradient = modules_.cast(own, sizes_.tokens * outputs, LargestMagnitude::by_a_pass, true);
  const auto gathered = rows_.in_pieces() ? std::nullopt : rows_.gathered(own);
  const Tensor input = allocate(own + "_input", sizes_.tokens * inputs * kHalf);
  if (rows_.in_pieces())
    rows_.gather_beside(own, gemm_of(GemmKind::input_gradient, name, outputs, inputs));
  else
    gemm(GemmKind::input_gradient, name, outputs, inputs);
  gemm(GemmKind::weight_gradient, name, outputs, inputs);
  free_if_any(gathered);
  if (gradient) step_.free({gradient->row, *gradient->column});
  modules_.keep_stand_in(outputs, inputs);
  return input;
}

McoreBlock::InputGradient McoreBlock::column_backward(std::string_view name, std::string_view rows,
                                                      std::int64_t outputs) {
  if (!rows_.shares()) return {.rows = input_and_weight(name, outputs, sizes_.hidden)};
  const std::string own = "d_" + std::string(name);
  const McoreRows::Beside gathered = rows_.begin_gather(rows);
  std::optional<Tensor> term;
  if (!rows_.in_pieces()) term = allocate(own + "_input", sizes_.state);
  gemm(GemmKind::input_gradient, name, outputs, sizes_.hidden);
  const McoreRows::Beside reduced = rows_.begin_reduction(own);
  rows_.wait(gathered);
  gemm(GemmKind::weight_gradient, name, outputs, sizes_.hidden);
  free_if_any(gathered.rows);
  rows_.wait(reduced);
  modules_.keep_stand_in(outputs, sizes_.hidden);
  if (!reduced.rows) return {.rows = *term};
  return {.rows = *reduced.rows, .term = term};
}

Tensor McoreBlock::backward(const LayerWeights& weights, Tensor input, Tensor output) {
  in_fp8_ = config_.has_fp8(weights.layer);
  if (recomputes()) {
    step_.set_phase(Phase::recompute);
    saved_.insert_or_assign(weights.out, run(weights, true));
    step_.set_phase(Phase::backward);
  }
  Saved kept = saved_.at(weights.out);
  if (weights.down_bias)
    modules_.bias_backward(*weights.down_bias, "down_bias", output, sizes_.hidden);
  const Tensor normed2 =
      weights.experts ? experts_.backward(weights, kept.experts) : mlp_backward(weights, kept);
  step_.free(kept.sum);
  // The checkpoint function holds the gradient that it received.
  const Tensor sum = recomputes() ? allocate("d_sum", rows_.state()) : output;
  elementwise(KernelKind::accumulate, "norm2_residual", 3 * rows_.state());
  step_.free(normed2);
  if (weights.out_bias) modules_.bias_backward(*weights.out_bias, "out_bias", sum, sizes_.hidden);
  const Tensor normed1 =
      is_latent() ? latent_.backward(weights, kept.latent) : heads_and_norm_backward(weights, kept);
  if (!recomputes()) step_.free(input);
  elementwise(KernelKind::accumulate, "norm1_residual", 3 * rows_.state());
  step_.free(normed1);
  if (recomputes()) step_.free({kept.output, output, input});
  return sum;
}

Tensor McoreBlock::heads_and_norm_backward(const LayerWeights& weights, const Saved& kept) {
  const Tensor qkv = is_gpt() ? rows_backward(weights, kept)
                              : heads_backward(weights, kept, attention_backward(weights, kept));
  return module_backward("qkv", "normed1", sizes_.qkv_columns, kept.normed1, qkv,
                         {.norm = weights.norm1,
                          .norm_bias = weights.norm1_bias,
                          .weight = weights.qkv,
                          .bias = weights.qkv_bias});
}

/// The gradient of the sum after attention, without the residual's part.
Tensor McoreBlock::mlp_backward(const LayerWeights& weights, const Saved& kept) {
  const Tensor product = input_and_weight("down", sizes_.hidden, sizes_.ffn);
  step_.free(kept.product);
  hooks_.ready(weights.down);
  const Tensor both = allocate("d_gate_up", sizes_.tokens * inner_columns() * kHalf);
  if (is_gpt())
    elementwise(KernelKind::gelu_backward, "d_gelu", 3 * sizes_.product);
  else
    elementwise(KernelKind::swiglu_backward, "d_swiglu",
                {5 * sizes_.product, AccessPattern::strided});
  step_.free({kept.gate_up, product});
  if (weights.gate_up_bias)
    modules_.bias_backward(*weights.gate_up_bias, "gate_up_bias", both, sizes_.ffn);
  return module_backward(
      "gate_up", "normed2", inner_columns(), kept.normed2, both,
      {.norm = weights.norm2, .norm_bias = weights.norm2_bias, .weight = weights.gate_up});
}

Tensor McoreBlock::module_backward(std::string_view product, std::string_view norm,
                                   std::int64_t outputs, const TeNorm& normed, Tensor gradient,
                                   const ModuleWeights& weights) {
  const auto [rows, term] = column_backward(product, norm, outputs);
  std::optional<Tensor> bias_gradient;
  if (weights.bias)
    bias_gradient =
        allocate(std::string(product) + "_bias_grad", outputs * kHalf, Category::unsharded_grad);
  step_.free(normed.rows);
  const TeNormGradients made = modules_.norm_backward(norm, rows_.state(), sizes_.hidden);
  step_.free(rows);
  free_if_any(term);
  modules_.free_statistics(normed);
  step_.free(gradient);
  modules_.add_to_buffer(weights.norm, made.weight);
  if (weights.norm_bias) modules_.add_to_buffer(*weights.norm_bias, *made.bias);
  hooks_.ready(weights.weight);
  if (weights.bias) modules_.add_to_buffer(*weights.bias, *bias_gradient);
  return made.input;
}

/// The gradient of the QKV rows, of which query, key and value are views: attention writes it.
Tensor McoreBlock::rows_backward(const LayerWeights& weights, const Saved& kept) {
  const Tensor mixed = input_and_weight("out", sizes_.hidden, sizes_.query_columns);
  free_if_any(kept.mixed_cast);
  hooks_.ready(weights.out);
  const Tensor rows = allocate("d_qkv", sizes_.qkv);
  step_.scratch("attention_backward_workspace", sizes_.attention_workspace);
  step_.attention(KernelKind::attention_backward, attention_of(weights));
  step_.free({mixed, kept.rows, kept.mixed, kept.scores, kept.random_state});
  return rows;
}

McoreBlock::HeadGradients McoreBlock::attention_backward(const LayerWeights& weights,
                                                         const Saved& kept) {
  const Tensor mixed = input_and_weight("out", sizes_.hidden, sizes_.query_columns);
  free_if_any(kept.mixed_cast);
  hooks_.ready(weights.out);
  if (context_.shares()) {
    const auto [query, key, value] = context_.backward(kept.context, mixed);
    return {.query = query, .key = key, .value = value};
  }
  const Tensor query = allocate("d_query", sizes_.query);
  const Tensor key = allocate("d_key", sizes_.key);
  const Tensor value = allocate("d_value", sizes_.key);
  step_.scratch("attention_backward_workspace", sizes_.attention_workspace);
  step_.attention(KernelKind::attention_backward, attention_of(weights));
  if (weights.sinks)
    modules_.add_to_buffer(*weights.sinks, allocate("sinks_grad", config_.model.heads * kFull,
                                                    Category::unsharded_grad));
  step_.free({mixed, kept.query, kept.key, kept.value, kept.mixed, kept.scores, kept.random_state});
  return {.query = query, .key = key, .value = value};
}

/// The gradient of the QKV rows, concatenated from those of query, key and value.
Tensor McoreBlock::heads_backward(const LayerWeights& weights, const Saved& kept,
                                  HeadGradients made) {
  made.key = turned_back("key", made.key, sizes_.key);
  made.query = turned_back("query", made.query, sizes_.query);
  if (weights.query_norm) {
    made.key =
        norm_of_heads(*weights.key_norm, "normed_key", made.key, kept.key_rows, kept.key_statistic);
    made.query = norm_of_heads(*weights.query_norm, "normed_query", made.query, kept.query_rows,
                               kept.query_statistic);
  }
  const Tensor joined = allocate("d_qkv", sizes_.qkv);
  elementwise(KernelKind::rope_backward, "join", {2 * sizes_.qkv, AccessPattern::pieces});
  step_.free({made.query, made.key, made.value});
  return joined;
}

Tensor McoreBlock::turned_back(std::string_view name, Tensor gradient, std::int64_t bytes) {
  const std::string own = "d_" + std::string(name) + "_turned";
  const Tensor turned = allocate(own, bytes);
  rotate_back(own, bytes);
  step_.free(gradient);
  return turned;
}

Tensor McoreBlock::norm_of_heads(std::size_t weight, std::string_view name, Tensor gradient,
                                 const std::optional<Tensor>& rows,
                                 const std::optional<Tensor>& statistic) {
  const auto [input, own, no_bias] =
      modules_.norm_backward(name, step_.bytes_of(gradient), config_.model.head_dim);
  step_.free({gradient, *rows, *statistic});
  modules_.add_to_buffer(weight, own);
  return input;
}

}  // namespace mfsdp
