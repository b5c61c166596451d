#include "sim/engines/llama_head.hpp"

#include <utility>

namespace mfsdp {

LlamaHead::LlamaHead(StepBuilder& step, const PlanConfig& config,
                     std::unique_ptr<Elementwise> functions, std::function<void(Tensor)> made)
    : step_(step), sizes_(config), functions_(std::move(functions)), made_(std::move(made)) {}

void LlamaHead::forward() {
  normed_ = functions_->norm("normed");
  const Tensor logits = step_.allocate("logits", sizes_.logits, Category::logits);
  step_.gemm(GemmKind::forward, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden);
  loss_ = functions_->loss(logits);
}

void LlamaHead::begin_backward() { seed_ = step_.allocate("d_loss", kFull, Category::activation); }

LlamaHead::Gradients LlamaHead::backward(Tensor state) {
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

void LlamaHead::finish() { step_.free({seed_, loss_.value}); }

}  // namespace mfsdp
