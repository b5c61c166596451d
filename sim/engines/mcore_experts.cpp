#include "sim/engines/mcore_experts.hpp"

#include <string>
#include <utility>

namespace mfsdp {

ExpertSizes expert_sizes(const PlanConfig& config) {
  const ModelShape& model = config.model;
  ExpertSizes s;
  s.tokens = config.tokens_per_microbatch();
  s.rows = checked_mul(s.tokens, model.experts_per_token);
  s.experts = model.experts;
  s.local = config.experts_per_rank();
  s.peers = config.is_expert_parallel() ? config.expert_parallel : 1;
  s.hidden = model.hidden;
  s.width = model.expert_intermediate;
  s.shared = model.shared_intermediate;
  s.state = checked_mul(checked_mul(s.tokens, s.hidden), kHalf);
  s.row_states = checked_mul(checked_mul(s.rows, s.hidden), kHalf);
  s.product = checked_mul(checked_mul(s.rows, s.width), kHalf);
  s.gate_up = checked_mul(s.product, 2);
  return s;
}

void McoreExperts::drop(std::optional<Tensor>& tensor) {
  if (tensor) step_.free(*std::exchange(tensor, std::nullopt));
}

void McoreExperts::use_all(const std::vector<std::size_t>& weights) {
  for (const std::size_t weight : weights) hooks_.use(weight);
}

void McoreExperts::ready_all(const std::vector<std::size_t>& weights) {
  for (const std::size_t weight : weights) hooks_.ready(weight);
}

void McoreExperts::grouped(GemmKind kind, std::string_view name, std::int64_t outputs,
                           std::int64_t inputs) {
  const GroupedShape shape{
      .experts = sizes_.local, .rows = sizes_.rows, .outputs = outputs, .inputs = inputs};
  step_.grouped_gemm(kind, name, shape, gradient_);
  if (kind == GemmKind::weight_gradient) modules_.keep_stand_in(outputs, inputs);
}

// ---- Forward --------------------------------------------------------------------------------

Tensor McoreExperts::forward(const LayerWeights& layer, Saved& kept, bool keep) {
  const ExpertWeights& weights = *layer.experts;
  hooks_.use(layer.norm2);
  kept.normed = modules_.norm("normed2", sizes_.state, sizes_.tokens * kFull);
  route(weights, kept);
  count_rows(kept);
  Tensor rows = allocate("permuted", sizes_.row_states);
  kept.row_weights = allocate("row_weights", sizes_.rows * kFull);
  elementwise(KernelKind::permute_rows, "permuted",
              {2 * sizes_.row_states, AccessPattern::strided});
  // The host waits for the counts, and then continues.
  step_.host_wait(step_.record(StreamRole::compute));
  rows = exchanged("dispatch", rows);
  exchange_weights("dispatch_weights");
  if (sizes_.local > 1) rows = moved("by_expert", rows);
  kept.input = rows;

  use_all(weights.gate_up);
  kept.gate_up = allocate("experts_gate_up", sizes_.gate_up);
  grouped(GemmKind::forward, "experts_gate_up", 2 * sizes_.width, sizes_.hidden);
  if (!keep) drop(kept.input);
  kept.product = activate(kept);
  if (!keep) {
    drop(kept.gate_up);
    drop(kept.clamped);
  }
  use_all(weights.down);
  Tensor made = allocate("experts_down", sizes_.row_states);
  grouped(GemmKind::forward, "experts_down", sizes_.hidden, sizes_.width);
  if (!keep || again_) {
    drop(kept.product);
    drop(kept.clamped);
  }
  if (model_.traits().biases) add_bias();
  if (sizes_.local > 1) made = moved("by_rank", made);
  made = exchanged("combine", made);
  const Tensor sum = allocate("combined", sizes_.state);
  elementwise(KernelKind::combine_rows, "combined",
              {sizes_.row_states + sizes_.state, AccessPattern::strided});
  step_.free(made);
  const Tensor out = sizes_.shared == 0 ? sum : with_shared(weights, kept, sum, keep);
  if (!keep || again_) step_.free({kept.normed.rows, kept.normed.statistic});
  if (!keep)
    for (std::optional<Tensor>* tensor :
         {&kept.logits, &kept.weights, &kept.map, &kept.order, &kept.row_weights})
      drop(*tensor);
  return out;
}

/// Computes logits, a map of each token's experts, and their weights in fp32.
void McoreExperts::route(const ExpertWeights& weights, Saved& kept) {
  hooks_.use(weights.router);
  const std::int64_t cells = sizes_.tokens * sizes_.experts;
  kept.logits = allocate("router_logits", cells * kHalf);
  modules_.gemm(GemmKind::forward, "router", sizes_.tokens, sizes_.experts, sizes_.hidden);
  kept.weights = allocate("router_weights", cells * kFull);
  kept.map = allocate("router_map", cells);
  elementwise(KernelKind::router_forward, "route", cells * (kHalf + kFull + 1));
}

/// Counts the rows of each expert on all ranks, and computes the positions of each token's rows.
void McoreExperts::count_rows(Saved& kept) {
  constexpr std::int64_t kCount = 8;  // int64
  constexpr std::int64_t kPlace = 4;  // int32: of each expert, and the number of the token's
  const std::int64_t cells = sizes_.tokens * sizes_.experts;
  elementwise(KernelKind::expert_order, "count", cells);
  if (exchanges()) {
    step_.scratch("all_counts", sizes_.peers * sizes_.experts * kCount);
    step_.exchange(CollectiveKind::all_gather, "counts", sizes_.experts, DType::int64);
    elementwise(KernelKind::expert_order, "count_by_rank", sizes_.peers * sizes_.experts * kCount);
  }
  kept.order = allocate("row_order", (2 * cells + sizes_.tokens) * kPlace);
  for (const char* part : {"order_in_blocks", "order_of_blocks", "order_of_rows"})
    elementwise(KernelKind::expert_order, part, cells * kPlace);
}

Tensor McoreExperts::moved(std::string_view name, Tensor from) {
  const Tensor to = allocate(name, sizes_.row_states);
  elementwise(KernelKind::permute_rows, name, {2 * sizes_.row_states, AccessPattern::strided});
  step_.free(from);
  return to;
}

Tensor McoreExperts::exchanged(std::string_view name, Tensor from) {
  if (!exchanges()) return from;
  const Tensor to = allocate(name, sizes_.row_states);
  step_.exchange(CollectiveKind::all_to_all, name,
                 checked_mul(ceil_div(sizes_.rows, sizes_.peers), sizes_.hidden), DType::bf16);
  step_.free(from);
  return to;
}

void McoreExperts::exchange_weights(std::string_view name) {
  if (exchanges())
    step_.exchange(CollectiveKind::all_to_all, name, ceil_div(sizes_.rows, sizes_.peers),
                   DType::fp32);
}

Tensor McoreExperts::activate(Saved& kept) {
  const std::int64_t half = sizes_.product;
  if (clamps()) {
    const Tensor gate = allocate("clamped_gate", half);
    elementwise(KernelKind::swiglu_forward, "clamp_gate", {2 * half, AccessPattern::strided});
    const Tensor up = allocate("clamped_up", half);
    elementwise(KernelKind::swiglu_forward, "clamp_up", {2 * half, AccessPattern::strided});
    kept.clamped = allocate("clamped", sizes_.gate_up);
    elementwise(KernelKind::swiglu_forward, "join_clamped",
                {2 * sizes_.gate_up, AccessPattern::strided});
    step_.free({gate, up});
  }
  const Tensor product = allocate("experts_product", half);
  elementwise(KernelKind::weighted_swiglu_forward, "experts_swiglu",
              {3 * half, AccessPattern::strided});
  return product;
}

/// Biases times weights, added to the rows, concatenated over experts and cast back: all in fp32.
void McoreExperts::add_bias() {
  const std::int64_t narrow = sizes_.row_states;
  const std::int64_t wide = 2 * narrow;
  const Tensor scaled = allocate("scaled_bias", wide);
  step_.host_work(3 * (sizes_.local - 1) * kForwardKernel);
  elementwise(KernelKind::expert_bias_forward, "scale_bias", wide);
  const Tensor sums = allocate("biased", wide);
  elementwise(KernelKind::expert_bias_forward, "add_bias", narrow + 2 * wide);
  step_.free(scaled);
  const Tensor joined = allocate("biased_joined", wide);
  elementwise(KernelKind::expert_bias_forward, "join_biased", 2 * wide);
  step_.free(sums);
  elementwise(KernelKind::cast, "narrow_biased", wide + narrow);
  step_.free(joined);
}

Tensor McoreExperts::with_shared(const ExpertWeights& weights, Saved& kept, Tensor sum, bool keep) {
  const std::int64_t product = checked_mul(checked_mul(sizes_.tokens, sizes_.shared), kHalf);
  hooks_.use(*weights.shared_gate_up);
  kept.shared_gate_up = allocate("shared_gate_up", 2 * product);
  modules_.gemm(GemmKind::forward, "shared_gate_up", sizes_.tokens, 2 * sizes_.shared,
                sizes_.hidden);
  kept.shared_product = allocate("shared_product", product);
  elementwise(KernelKind::swiglu_forward, "shared_swiglu", {3 * product, AccessPattern::strided});
  if (!keep) drop(kept.shared_gate_up);
  hooks_.use(*weights.shared_down);
  const Tensor down = allocate("shared_down", sizes_.state);
  modules_.gemm(GemmKind::forward, "shared_down", sizes_.tokens, sizes_.hidden, sizes_.shared);
  if (!keep) drop(kept.shared_product);
  if (weights.shared_gate) {
    hooks_.use(*weights.shared_gate);
    elementwise(KernelKind::sigmoid_forward, "shared_gate", sizes_.state);
    elementwise(KernelKind::accumulate, "gated_shared", 2 * sizes_.state);
  }
  const Tensor out = allocate("with_shared", sizes_.state);
  elementwise(KernelKind::accumulate, "with_shared", 3 * sizes_.state);
  step_.free({sum, down});
  return out;
}

// ---- Backward -------------------------------------------------------------------------------

Tensor McoreExperts::backward(const LayerWeights& layer, Saved& kept) {
  const ExpertWeights& weights = *layer.experts;
  if (again_) {
    step_.set_phase(Phase::recompute);
    kept.normed = modules_.norm("normed2", sizes_.state, sizes_.tokens * kFull);
    step_.set_phase(Phase::backward);
  }
  std::optional<Tensor> shared;
  if (sizes_.shared != 0) shared = shared_backward(weights, kept);
  Tensor normed = experts_backward(weights, kept);
  normed = router_backward(weights, kept, normed);
  if (shared) {
    elementwise(KernelKind::accumulate, "d_shared_sum", 3 * sizes_.state);
    step_.free(*shared);
  }
  step_.free(kept.normed.rows);
  const auto [input, norm, no_bias] =
      modules_.norm_backward("normed2", sizes_.state, sizes_.hidden);
  step_.free({normed, kept.normed.statistic});
  modules_.add_to_buffer(layer.norm2, norm);
  return input;
}

Tensor McoreExperts::shared_backward(const ExpertWeights& weights, Saved& kept) {
  const std::int64_t product = checked_mul(checked_mul(sizes_.tokens, sizes_.shared), kHalf);
  if (weights.shared_gate) {
    elementwise(KernelKind::sigmoid_backward, "d_shared_gate", 3 * sizes_.state);
    hooks_.ready(*weights.shared_gate);
  }
  const auto products = [&](std::string_view name, std::int64_t outputs, std::int64_t inputs) {
    for (const GemmKind kind : {GemmKind::input_gradient, GemmKind::weight_gradient})
      modules_.gemm(kind, name, sizes_.tokens, outputs, inputs);
    modules_.keep_stand_in(outputs, inputs);
  };
  const Tensor made = allocate("d_shared_product", product);
  products("shared_down", sizes_.hidden, sizes_.shared);
  drop(kept.shared_product);
  hooks_.ready(*weights.shared_down);
  const Tensor both = allocate("d_shared_gate_up", 2 * product);
  elementwise(KernelKind::swiglu_backward, "d_shared_swiglu",
              {5 * product, AccessPattern::strided});
  step_.free(made);
  drop(kept.shared_gate_up);
  const Tensor normed = allocate("d_shared_normed", sizes_.state);
  products("shared_gate_up", 2 * sizes_.shared, sizes_.hidden);
  step_.free(both);
  hooks_.ready(*weights.shared_gate_up);
  return normed;
}

/// The gradient of the norm's output, without the router's part.
Tensor McoreExperts::experts_backward(const ExpertWeights& weights, Saved& kept) {
  Tensor rows = allocate("d_combined", sizes_.row_states);
  elementwise(KernelKind::permute_rows, "d_combined",
              {2 * sizes_.row_states, AccessPattern::strided});
  rows = exchanged("d_combine", rows);
  if (sizes_.local > 1) rows = moved("d_by_rank", rows);
  if (model_.traits().biases) bias_backward();
  const Tensor product = allocate("d_experts_product", sizes_.product);
  grouped(GemmKind::input_gradient, "experts_down", sizes_.hidden, sizes_.width);
  if (again_) {
    step_.set_phase(Phase::recompute);
    kept.product = activate(kept);
    step_.set_phase(Phase::backward);
  }
  grouped(GemmKind::weight_gradient, "experts_down", sizes_.hidden, sizes_.width);
  step_.free(rows);
  drop(kept.product);
  ready_all(weights.down);
  const Tensor both = activate_backward(kept, product);
  rows = allocate("d_by_expert", sizes_.row_states);
  grouped(GemmKind::input_gradient, "experts_gate_up", 2 * sizes_.width, sizes_.hidden);
  grouped(GemmKind::weight_gradient, "experts_gate_up", 2 * sizes_.width, sizes_.hidden);
  drop(kept.input);
  step_.free(both);
  ready_all(weights.gate_up);
  if (sizes_.local > 1) rows = moved("d_arrived", rows);
  exchange_weights("d_dispatch_weights");
  rows = exchanged("d_dispatch", rows);
  const Tensor normed = allocate("d_permuted", sizes_.state);
  elementwise(KernelKind::combine_rows, "d_permuted",
              {sizes_.row_states + sizes_.state, AccessPattern::strided});
  step_.free(rows);
  drop(kept.row_weights);
  drop(kept.order);
  return normed;
}

/// One kernel for the input, one for the sums of the rows' weights. With clamps, two further
/// kernels for each half precede them, and one that concatenates the halves.
Tensor McoreExperts::activate_backward(Saved& kept, Tensor product) {
  const std::int64_t half = sizes_.product;
  Tensor both = allocate("d_experts_gate_up", sizes_.gate_up);
  elementwise(KernelKind::weighted_swiglu_backward, "d_experts_swiglu",
              {5 * half, AccessPattern::strided});
  elementwise(KernelKind::weighted_swiglu_backward, "d_row_weights",
              {3 * half, AccessPattern::strided});
  step_.free(product);
  if (clamps()) {
    drop(kept.clamped);
    const Tensor gate = allocate("d_clamped_gate", half);
    elementwise(KernelKind::swiglu_backward, "d_clamp_gate", {3 * half, AccessPattern::strided});
    const Tensor up = allocate("d_clamped_up", half);
    elementwise(KernelKind::swiglu_backward, "d_clamp_up", {3 * half, AccessPattern::strided});
    step_.free(both);
    both = allocate("d_experts_gate_up_joined", sizes_.gate_up);
    elementwise(KernelKind::swiglu_backward, "d_join_clamped",
                {2 * sizes_.gate_up, AccessPattern::strided});
    step_.free({gate, up});
  }
  drop(kept.gate_up);
  return both;
}

void McoreExperts::bias_backward() {
  const std::int64_t narrow = sizes_.row_states;
  const std::int64_t wide = 2 * narrow;
  const Tensor widened = allocate("d_biased", wide);
  step_.host_work(5 * (sizes_.local - 1) * kBackwardKernel);
  elementwise(KernelKind::cast, "widen_d_biased", narrow + wide);
  const Tensor scaled = allocate("d_scaled_bias", wide);
  elementwise(KernelKind::expert_bias_gradient, "scale_d_bias", 2 * wide);
  elementwise(KernelKind::expert_bias_gradient, "sum_d_bias", wide);
  elementwise(KernelKind::expert_bias_dots, "d_bias_weights", 2 * wide);
  elementwise(KernelKind::expert_bias_dots, "sum_d_bias_weights", wide);
  step_.free(scaled);
  elementwise(KernelKind::cast, "narrow_d_biased", wide + narrow);
  elementwise(KernelKind::cast, "join_d_biased", 2 * narrow);
  step_.free(widened);
}

/// Adds the router's part to `normed`.
Tensor McoreExperts::router_backward(const ExpertWeights& weights, Saved& kept, Tensor normed) {
  const std::int64_t cells = sizes_.tokens * sizes_.experts;
  const Tensor logits = allocate("d_router_logits", cells * kHalf);
  elementwise(KernelKind::router_backward, "d_route", cells * (2 * kFull + 1 + kHalf));
  drop(kept.weights);
  drop(kept.map);
  const Tensor routed = allocate("d_router_normed", sizes_.state);
  modules_.gemm(GemmKind::input_gradient, "router", sizes_.tokens, sizes_.experts, sizes_.hidden);
  const Tensor weight =
      allocate("router_grad", sizes_.experts * sizes_.hidden * kHalf, Category::unsharded_grad);
  modules_.gemm(GemmKind::weight_gradient, "router", sizes_.tokens, sizes_.experts, sizes_.hidden);
  step_.free(logits);
  drop(kept.logits);
  modules_.add_to_buffer(weights.router, weight);
  if (weights.router_bias) {
    const Tensor bias =
        allocate("router_bias_grad", sizes_.experts * kHalf, Category::unsharded_grad);
    elementwise(KernelKind::bias_grad, "router_bias", cells * kHalf);
    modules_.add_to_buffer(*weights.router_bias, bias);
  }
  elementwise(KernelKind::accumulate, "d_router_sum", 3 * sizes_.state);
  step_.free(routed);
  return normed;
}

}  // namespace mfsdp
