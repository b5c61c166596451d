#include "sim/engines/mcore_ends.hpp"

namespace mfsdp {

void McoreEnds::keep_inputs(bool has_embedding, bool has_head) {
  constexpr std::int64_t kToken = 8;       // int64: tokens, labels and positions
  constexpr std::int64_t kAngleBytes = 4;  // fp32, all positions, as wide as a head
  const auto keep = [&](std::string_view name, bool is_there, std::int64_t bytes) {
    if (is_there) step_.keep(name, sizes_.tokens * bytes, Category::activation);
  };
  keep("tokens", has_embedding, kToken);
  keep("labels", has_head, kToken);
  keep("positions", has_embedding, kToken);
  keep("loss_mask", has_head, kFull);
  if (!config_.model.traits().rotates) return;
  step_.keep("angles", config_.seq_len * config_.model.head_dim * kAngleBytes,
             Category::activation);
}

Tensor McoreEnds::embed(const McoreWeights& weights) {
  hooks_.use(weights.embedding);
  Tensor rows = step_.allocate("embedded", sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::embedding_forward, "embedding", 2 * sizes_.state);
  if (rows_.shares()) return summed_over_ids(weights, rows);
  if (weights.positions) rows = add_positions(*weights.positions, rows);
  return by_position(rows);
}

/// Layers have the layout [position, sequence].
Tensor McoreEnds::by_position(Tensor rows) {
  if (config_.micro_batch == 1) return rows;
  const Tensor turned = step_.allocate("embedded_by_position", sizes_.state, Category::activation);
  step_.memory_bound(KernelKind::cast, "embedded_by_position",
                     {2 * sizes_.state, AccessPattern::strided});
  step_.free(rows);
  return turned;
}

Tensor McoreEnds::summed_over_ids(const McoreWeights& weights, Tensor rows) {
  step_.memory_bound(KernelKind::zero_padding, "other_ids", 2 * sizes_.state);
  if (rows_.cuts() && !weights.positions) return rows_.reduced("embedded", by_position(rows));
  rows_.sum("embedded_sum_of_ids", sizes_.state / kHalf, DType::bf16);
  if (weights.positions) rows = add_positions(*weights.positions, rows);
  rows = by_position(rows);
  if (!rows_.cuts()) return rows;
  // Learned positions are added to whole rows; own ones are copied.
  const Tensor own = step_.allocate("embedded_own", rows_.state(), Category::activation);
  step_.memory_bound(KernelKind::cast, "embedded_own", 2 * rows_.state());
  step_.free(rows);
  return own;
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
  normed_ = modules_.norm("normed", rows_.state(), rows_.statistic());
  hooks_.use(weights.head);
  gather_rows(StreamRole::compute);
  logits_ = step_.allocate("logits", sizes_.logits, Category::logits);
  modules_.gemm(GemmKind::forward, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden,
                Library::pytorch);
  if (kind_ == VocabularyLoss::fused)
    fused_loss();
  else
    loss_in_fp32();
}

void McoreEnds::gather_rows(StreamRole stream) {
  if (!rows_.cuts()) return;
  if (!has_gathered_) step_.keep("gathered_rows", sizes_.state, Category::workspace);
  has_gathered_ = true;
  step_.collective_on(stream, CollectiveKind::all_gather, "rows_all", rows_.state() / kHalf,
                      DType::bf16, RankGroup::tensor);
}

void McoreEnds::fused_loss() {
  constexpr std::int64_t kSums = 3;  // of a token: maximum, sum, its own logit
  loss_ = step_.allocate("losses", sizes_.statistic, Category::activation);
  const Tensor sums = step_.allocate("loss_sums", kSums * sizes_.statistic, Category::activation);
  step_.memory_bound(KernelKind::cross_entropy_loss, "largest_and_sum", sizes_.logits);
  std::optional<Tensor> of_all;
  if (rows_.shares()) {
    of_all = step_.allocate("loss_sums_all", kSums * sizes_.statistic * rows_.ranks(),
                            Category::activation);
    rows_.gather_elements("loss_sums_all", kSums * sizes_.tokens, DType::fp32);
  }
  step_.memory_bound(KernelKind::cross_entropy, "loss_and_gradient", 2 * sizes_.logits);
  step_.free(sums);
  if (of_all) step_.free(*of_all);
}

void McoreEnds::loss_in_fp32() {
  constexpr std::int64_t kTarget = 8 + 1;  // its number, and whether another rank has it
  probabilities_ = step_.allocate("logits_fp32", sizes_.logits_fp32, Category::logits);
  step_.memory_bound(KernelKind::cast, "logits_cast", sizes_.logits + sizes_.logits_fp32);
  step_.memory_bound(KernelKind::cross_entropy_loss, "largest", sizes_.logits_fp32);
  const auto over_ids = [&](std::string_view what) {
    if (rows_.shares()) rows_.sum(what, sizes_.tokens, DType::fp32);
  };
  over_ids("largest_of_all");
  step_.memory_bound(KernelKind::cross_entropy_loss, "subtract", 2 * sizes_.logits_fp32);
  targets_ = step_.allocate("targets", sizes_.tokens * kTarget, Category::activation);
  step_.memory_bound(KernelKind::cross_entropy_loss, "exponential", 2 * sizes_.logits_fp32);
  step_.memory_bound(KernelKind::cross_entropy_loss, "sum", sizes_.logits_fp32);
  over_ids("target_of_all");
  over_ids("sum_of_all");
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
  std::optional<Mark> gathered;
  if (rows_.cuts()) {
    step_.wait(StreamRole::outer, step_.record(StreamRole::compute));
    gather_rows(StreamRole::outer);
    gathered = step_.record(StreamRole::outer);
  }
  const Tensor normed = step_.allocate("d_normed_rows", sizes_.state, Category::activation);
  const auto product = [&](GemmKind kind) {
    modules_.gemm(kind, "head", sizes_.tokens, sizes_.vocab, sizes_.hidden, Library::pytorch);
  };
  product(GemmKind::input_gradient);
  if (gathered) step_.wait(StreamRole::compute, *gathered);
  const McoreRows::Beside own = rows_.begin_reduction("d_normed_rows");
  product(GemmKind::weight_gradient);
  rows_.wait(own);
  modules_.keep_stand_in(sizes_.vocab, sizes_.hidden);
  if (config_.model.tied_embeddings)
    step_.memory_bound(KernelKind::zero_padding, "zero_stand_in",
                       sizes_.vocab * sizes_.hidden * kHalf);
  step_.free({logits, normed_.rows});
  if (!config_.model.tied_embeddings) hooks_.ready(weights.head);
  const TeNormGradients made = modules_.norm_backward("normed", rows_.state(), sizes_.hidden);
  step_.free(normed);
  if (own.rows) step_.free(*own.rows);
  modules_.free_statistics(normed_);
  step_.free(state);
  modules_.add_to_buffer(weights.norm, made.weight);
  if (weights.norm_bias) modules_.add_to_buffer(*weights.norm_bias, *made.bias);
  return made.input;
}

void McoreEnds::embedding_backward(const McoreWeights& weights, Tensor state) {
  const std::int64_t bytes = sizes_.vocab * sizes_.hidden * kHalf;
  if (rows_.cuts()) {
    const Tensor all = *rows_.gathered("d_embedded");
    step_.free(state);
    state = all;
  }
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
  if (rows_.shares()) step_.memory_bound(KernelKind::zero_padding, "d_other_ids", 2 * sizes_.state);
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
