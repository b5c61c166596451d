#include "sim/engines/mcore_ends.hpp"

namespace mfsdp {

void McoreEnds::keep_inputs() {
  constexpr std::int64_t kToken = 8;       // int64: tokens, labels and positions
  constexpr std::int64_t kAngleBytes = 4;  // fp32, all positions, as wide as a head
  for (const char* name : {"tokens", "labels", "positions"})
    step_.keep(name, sizes_.tokens * kToken, Category::activation);
  step_.keep("loss_mask", sizes_.tokens * kFull, Category::activation);
  if (!config_.model.traits().rotates) return;
  step_.keep("angles", config_.seq_len * config_.model.head_dim * kAngleBytes,
             Category::activation);
}

Tensor McoreEnds::embed(const McoreWeights& weights) {
  hooks_.use(weights.embedding);
  Tensor rows = step_.allocate("embedded", sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::embedding_forward, "embedding", 2 * sizes_.state);
  if (weights.positions) rows = add_positions(*weights.positions, rows);
  if (config_.micro_batch == 1) return rows;
  // Layers have the layout [position, sequence].
  const Tensor turned = step_.allocate("embedded_by_position", sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::cast, "embedded_by_position",
                     {2 * sizes_.state, AccessPattern::strided});
  step_.free(rows);
  return turned;
}

Tensor McoreEnds::add_positions(std::size_t table, Tensor rows) {
  hooks_.use(table);
  const Tensor positions = step_.allocate("position_rows", sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::embedding_forward, "position_rows", 2 * sizes_.state);
  const Tensor sum = step_.allocate("embedded_sum", sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::accumulate, "embedded_sum", 3 * sizes_.state);
  step_.free({rows, positions});
  return sum;
}

void McoreEnds::forward(const McoreWeights& weights) {
  hooks_.use(weights.norm);
  if (weights.norm_bias) hooks_.use(*weights.norm_bias);
  normed_ = modules_.norm("normed", sizes_.state, sizes_.statistic);
  hooks_.use(weights.head);
  logits_ = step_.allocate("logits", sizes_.logits, Category::logits);
  modules_.gemm(GemmKind::forward, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden,
                Library::pytorch);
  if (kind_ == VocabularyLoss::fused)
    fused_loss();
  else
    loss_in_fp32();
}

void McoreEnds::fused_loss() {
  constexpr std::int64_t kSums = 3;  // of a token: maximum, sum, its own logit
  loss_ = step_.allocate("losses", sizes_.statistic, Category::activation);
  const Tensor sums = step_.allocate("loss_sums", kSums * sizes_.statistic, Category::activation);
  step_.memory_bound(KernelKind::cross_entropy_loss, "largest_and_sum", sizes_.logits);
  step_.memory_bound(KernelKind::cross_entropy, "loss_and_gradient", 2 * sizes_.logits);
  step_.free(sums);
}

void McoreEnds::loss_in_fp32() {
  constexpr std::int64_t kTarget = 8 + 1;  // its number, and whether another rank has it
  probabilities_ = step_.allocate("logits_fp32", sizes_.logits_fp32, Category::logits);
  step_.memory_bound(KernelKind::cast, "logits_cast", sizes_.logits + sizes_.logits_fp32);
  step_.memory_bound(KernelKind::cross_entropy_loss, "largest", sizes_.logits_fp32);
  step_.memory_bound(KernelKind::cross_entropy_loss, "subtract", 2 * sizes_.logits_fp32);
  targets_ = step_.allocate("targets", sizes_.tokens * kTarget, Category::activation);
  step_.memory_bound(KernelKind::cross_entropy_loss, "exponential", 2 * sizes_.logits_fp32);
  step_.memory_bound(KernelKind::cross_entropy_loss, "sum", sizes_.logits_fp32);
  loss_ = step_.allocate("losses", sizes_.statistic, Category::activation);
  step_.memory_bound(KernelKind::cross_entropy_loss, "normalise", 2 * sizes_.logits_fp32);
  step_.free(logits_);
}

/// The gradient of the logits.
Tensor McoreEnds::loss_backward() {
  const Tensor gradient = step_.allocate("d_losses", sizes_.statistic, Category::activation);
  if (kind_ == VocabularyLoss::fused) {
    step_.memory_bound(KernelKind::cross_entropy, "scale_gradient", 2 * sizes_.logits);
  } else {
    step_.memory_bound(KernelKind::cross_entropy, "scale_gradient", 2 * sizes_.logits_fp32);
    logits_ = step_.allocate("d_logits", sizes_.logits, Category::logits);
    step_.memory_bound(KernelKind::cast, "d_logits_cast", sizes_.logits + sizes_.logits_fp32);
    step_.free({probabilities_, *targets_});
  }
  step_.free({gradient, loss_});
  return logits_;
}

Tensor McoreEnds::backward(const McoreWeights& weights, Tensor state) {
  const Tensor logits = loss_backward();
  const Tensor normed = step_.allocate("d_normed_rows", sizes_.state, Category::activation);
  for (const GemmKind kind : {GemmKind::input_gradient, GemmKind::weight_gradient})
    modules_.gemm(kind, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden, Library::pytorch);
  modules_.keep_stand_in(sizes_.vocab, sizes_.hidden);
  if (config_.model.tied_embeddings)
    step_.memory_bound(KernelKind::zero_padding, "zero_stand_in",
                       sizes_.vocab * sizes_.hidden * kHalf);
  step_.free({logits, normed_.rows});
  if (!config_.model.tied_embeddings) hooks_.ready(weights.head);
  const TeNormGradients made = modules_.norm_backward("normed", sizes_.state, sizes_.hidden);
  step_.free(normed);
  modules_.free_statistics(normed_);
  step_.free(state);
  modules_.add_to_buffer(weights.norm, made.weight);
  if (weights.norm_bias) modules_.add_to_buffer(*weights.norm_bias, *made.bias);
  return made.input;
}

void McoreEnds::embedding_backward(const McoreWeights& weights, Tensor state) {
  const std::int64_t bytes = sizes_.vocab * sizes_.hidden * kHalf;
  std::optional<Tensor> turned;
  if (config_.micro_batch > 1) {
    turned = step_.allocate("d_embedded", sizes_.state, Category::activation);
    step_.memory_bound(KernelKind::cast, "d_embedded", {2 * sizes_.state, AccessPattern::strided});
  }
  if (weights.positions) {
    const std::int64_t table = config_.model.max_seq_len * sizes_.hidden * kHalf;
    const Tensor positions = step_.allocate("positions_grad", table, Category::unsharded_grad);
    step_.memory_bound(KernelKind::position_embedding_backward, "positions",
                       table + 3 * sizes_.state);
    modules_.add_to_buffer(*weights.positions, positions);
  }
  Tensor gradient = step_.allocate("embedding_grad", bytes, Category::unsharded_grad);
  step_.memory_bound(KernelKind::embedding_backward, "embedding", bytes + 3 * sizes_.state);
  if (turned) step_.free(*turned);
  step_.free(state);
  if (config_.model.tied_embeddings) {
    // Zeros stand for the part that the head's GEMM has already added to the buffer.
    const Tensor sum = step_.allocate("tied_grad", bytes, Category::unsharded_grad);
    step_.memory_bound(KernelKind::accumulate, "tied", 3 * bytes);
    step_.free(gradient);
    gradient = sum;
  }
  modules_.add_to_buffer(weights.embedding, gradient);
}

}  // namespace mfsdp
