#include "sim/engines/llama_ends.hpp"

#include <utility>

namespace mfsdp {

LlamaEnds::LlamaEnds(StepBuilder& step, const PlanConfig& config,
                     std::unique_ptr<Elementwise> functions, std::function<void(Tensor)> made)
    : step_(step),
      config_(config),
      sizes_(llama_sizes(config)),
      functions_(std::move(functions)),
      made_(std::move(made)) {}

void LlamaEnds::keep_inputs() {
  constexpr std::int64_t kTokenId = 8;
  if (config_.model.traits().rotates) keep_angles();
  step_.keep("tokens", (sizes_.tokens + config_.micro_batch) * kTokenId, Category::activation);
}

void LlamaEnds::keep_angles() {
  // One half of either; it is concatenated with itself.
  const std::int64_t half = sizes_.angles;
  const Tensor turns = step_.once("turns", half, Category::activation);
  for (const char* name : {"cosine", "sine"}) {
    const Tensor low = step_.once("low_half", half, Category::activation);
    const Tensor high = step_.once("high_half", half, Category::activation);
    step_.keep(name, 2 * half, Category::activation);
    step_.free_once(high);
    step_.free_once(low);
  }
  step_.free_once(turns);
}

Tensor LlamaEnds::embed() {
  const Tensor embedded = step_.allocate("embedded", sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::embedding_forward, "embedding", 2 * sizes_.state);
  return embedded;
}

void LlamaEnds::forward() {
  head({});
  loss();
}

void LlamaEnds::head(Tensor /*state*/) {
  normed_ = functions_->norm("normed");
  logits_ = step_.allocate("logits", sizes_.logits, Category::logits);
  step_.gemm(GemmKind::forward, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden);
}

void LlamaEnds::loss() { loss_ = functions_->loss(logits_); }

void LlamaEnds::begin_backward() { seed_ = step_.allocate("d_loss", kFull, Category::activation); }

LlamaEnds::Gradients LlamaEnds::backward(Tensor state) {
  const Tensor logits = functions_->loss_backward(loss_);
  const Tensor head =
      step_.allocate("head_grad", sizes_.vocab * sizes_.hidden * kHalf, Category::unsharded_grad);
  step_.gemm(GemmKind::weight_gradient, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden);
  const Tensor normed = step_.allocate("d_normed", sizes_.state, Category::activation);
  step_.gemm(GemmKind::input_gradient, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden);
  step_.free({logits, normed_.rows});
  made(head);
  const NormGradients norm = functions_->norm_backward("norm", normed, state, normed_.statistic);
  made(norm.weight);
  return {.state = norm.input, .head = head, .norm = norm.weight};
}

std::vector<Tensor> LlamaEnds::embedding_backward(Tensor state, const Gradients& head) {
  const std::int64_t bytes = sizes_.vocab * sizes_.hidden * kHalf;
  const Tensor embedding = step_.allocate("embedding_grad", bytes, Category::unsharded_grad);
  step_.memory_bound(KernelKind::embedding_backward, "embedding", bytes + 3 * sizes_.state);
  step_.free(state);
  if (!config_.model.tied_embeddings) {
    made(embedding);
    return {embedding, head.norm, head.head};
  }
  return {add_tied(head.head, embedding), head.norm};
}

Tensor LlamaEnds::add_tied(Tensor head, Tensor embedding) {
  const std::int64_t bytes = step_.bytes_of(embedding);
  if (tied_stream_ != StreamRole::compute)
    step_.wait(tied_stream_, step_.record(StreamRole::compute));
  const Tensor sum = step_.allocate("tied_grad", bytes, Category::unsharded_grad, tied_stream_);
  step_.memory_bound(KernelKind::accumulate, "tied", 3 * bytes, tied_stream_);
  step_.free_after(head, tied_stream_);
  step_.free_after(embedding, tied_stream_);
  return sum;
}

void LlamaEnds::finish() { step_.free({seed_, loss_.value}); }

}  // namespace mfsdp
