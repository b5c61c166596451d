// The attributes that --exact-sums and the loss scale give to the sums of a plan.
#include <algorithm>
#include <bit>

#include "verify/checker/model.hpp"

namespace mfsdp::checker {

/// The power of two by which a fixed loss scale makes gradients larger: the scale is of the mean
/// loss of a sequence, rounded up to a power of two, and gradients are of the sum.
Int Model::scale_exponent() const {
  if (!scales_loss) return 0;
  const Json& scale = config_.at("loss_scale");
  const auto bits = [](const Json& power) {
    return static_cast<Int>(std::bit_width(static_cast<std::uint64_t>(power.get<Int>()))) - 1;
  };
  const Int of_scale =
      scale.is_object() ? bits(scale.at("num")) - bits(scale.at("den")) : bits(scale);
  return of_scale - static_cast<Int>(std::bit_width(static_cast<std::uint64_t>(seq_ - 1)));
}

/// Sums of gradients are multiples of one power of two, small enough to be exact in fp32 (docs:
/// determinism). GEMMs take the rows of one sequence at a time, or of one chunk of logits where no
/// kernel needs whole sequences.
std::map<std::string, Json> Model::exact(const std::string& kernel, Int rows) const {
  if (!exact_) return {};
  static const Names of_rank{"bias_grad",
                             "embedding_backward",
                             "expert_bias_gradient",
                             "gemm 2",
                             "grouped_weight_gradient",
                             "latent_norm_backward",
                             "layer_norm_backward",
                             "norm_weight_grad",
                             "position_embedding_backward",
                             "qk_norm_rope_backward",
                             "qk_row_norm_rope_backward",
                             "rms_norm_backward"};
  static const Names rows_alone{"expert_bias_gradient", "grouped_weight_gradient",
                                "norm_weight_grad"};
  static const Names of_squares{"norm_finish", "norm_partial"};
  const auto limit = [](Int ranks) { return std::min((Int{1} << 24) / ranks, Int{1} << 22); };
  const Int all = times(times(tokens, microbatches), world_);
  const Int exponent = static_cast<Int>(std::bit_width(static_cast<std::uint64_t>(all - 1))) + 3 -
                       24 + scale_exponent();
  std::map<std::string, Json> made;
  const bool of_ranks = kernel == "accumulate" || kernel == "sum_ranks";
  if (of_rank.contains(kernel) || of_squares.contains(kernel) || of_ranks)
    made["grid_exponent"] = exponent;
  // Expert-parallel experts have summed the rows of all ranks of ep already.
  static const Names of_experts{"expert_bias_gradient", "grouped_weight_gradient"};
  const bool is_expert_parallel = expert_ranks_ != 0 && of_experts.contains(kernel);
  if (of_rank.contains(kernel))
    made["sum_limit"] = limit(is_expert_parallel ? world_ / expert_ranks_ : world_);
  if (of_ranks) made["sum_limit"] = limit(outer_);
  if (of_rank.contains(kernel) || kernel == "gemm 0" || kernel == "gemm 1")
    made["piece_rows"] = rows_alone.contains(kernel) ? 1 : std::min(piece_, rows);
  return made;
}

}  // namespace mfsdp::checker
