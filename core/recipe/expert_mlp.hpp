// The MLP of a block with experts: a router chooses some of them for each token.
//
//   normed2 --gemm--> router_logits --route--> indices, weights --order--> ends, order, places
//   normed2 --dispatch, by order--> dispatched --grouped GEMM--> gate_up --swiglu * weight-->
//   `product` --grouped GEMM--> expert_out --combine, by places--> mlp_out
//
// Rows are sorted by expert: one row for each expert of each token. The routing weight is
// multiplied before the second GEMM, so that backward does not need the outputs of experts: the
// weight's gradient is a sum over the output of the first GEMM.
//
// A shared expert, which all tokens use, writes mlp_out, and the chosen ones are added to it.
// Qwen2's has a weight too: the sigmoid of a GEMM with one column.
//
// Expert-parallel: dispatched rows are sent to the ranks of ep that have their experts, and back. A
// block has capacity for the most rows that one rank can have for another:
//
//   rows by expert --peer_order--> blocks for ranks --all_to_all--> blocks of ranks
//   --arrival_order--> rows of all ranks, by expert
#pragma once

#include <string>

#include "core/recipe/builder.hpp"

namespace mfsdp::recipe {

class ExpertMlp {
 public:
  explicit ExpertMlp(Builder& builder);

  /// From "normed2" to "gate_up"; tensor names get the suffix.
  void forward(const std::string& suffix);
  /// From "gate_up" to "mlp_out".
  void finish();

  struct Backward {
    std::string suffix;         ///< of forward's tensors
    bool keeps_output = false;  ///< normed2, dispatched and `product` were kept
  };
  /// From the residual's gradient to "d_normed2".
  void backward_rows(const Backward& how);
  /// Weight gradients of the layers that read normed2. They run after the norm's backward, which
  /// recomputes normed2 in place of d_normed2 where it was not kept.
  void backward_weights(const Backward& how);

 private:
  /// `chooses`: attributes of forward, the only kernel that uses groups of experts.
  [[nodiscard]] std::vector<Attribute> routing(bool chooses) const;
  [[nodiscard]] std::vector<Attribute> rows() const;
  [[nodiscard]] std::vector<Attribute> arrived() const;
  /// The tensor with the counts of whole sequences.
  std::string all_counts(std::string counts);
  [[nodiscard]] std::int64_t parts_of_sequence() const;
  // Expert-parallel: rows are sent to the ranks of their experts.
  [[nodiscard]] bool deals() const { return b_.config.is_expert_parallel(); }
  void find_peers(const std::string& suffix);
  void send_out(const std::string& suffix);
  /// Exchanges rows [m, h].
  void exchange_rows(const std::string& name, const std::string& from, const std::string& to,
                     std::optional<ParameterRole> gradient_of = std::nullopt);
  /// Exchanges the weights [m] of rows.
  void exchange_weights(const std::string& name, const std::string& from, const std::string& to);
  /// Permutes rows, at most m, into the order that a tensor states.
  void arrange(const std::string& name, const std::string& from, const std::string& order,
               const std::string& to, std::optional<ParameterRole> gradient_of = std::nullopt);
  [[nodiscard]] std::vector<Attribute> inner() const;
  [[nodiscard]] std::vector<Attribute> sizes_of(const Linear& layer, bool adds = false) const;
  // The shared expert writes mlp_out before the others. With expert-parallel its kernels are issued
  // after the token exchanges, which they can hide.
  [[nodiscard]] bool shares() const { return model_.shared_intermediate != 0; }
  [[nodiscard]] std::vector<Attribute> shared_inner() const;
  void shared_forward(const std::string& suffix);
  void shared_finish();
  void route_backward(const Backward& how);
  void shared_backward_product(const Backward& how);
  void shared_backward_down(const Backward& how);
  void shared_backward_rows(const Backward& how);
  void shared_backward_weights(const Backward& how, const std::string& normed);
  // Biases of the router and of each expert. The bias of the second GEMM is multiplied by the row's
  // weight, as the GEMM's input is.
  [[nodiscard]] bool has_biases() const { return model_.traits().biases; }
  [[nodiscard]] std::vector<Attribute> bias_sizes(const Linear& layer) const;
  void bias_gradient(const std::string& name, const Linear& layer, ParameterRole bias,
                     RecipeOperand d_output, const Backward& how, bool weighted);
  void weight_gradient(const std::string& name, const Linear& layer, RecipeOperand d_output,
                       RecipeOperand input, const std::string& suffix);

  Builder& b_;
  const ModelShape& model_;
  std::int64_t chosen_;   ///< rows of this rank's tokens
  std::int64_t rows_;     ///< capacity for the experts of this rank
  std::int64_t experts_;  ///< on this rank
  Linear router_;
  Linear gate_up_;  ///< of one expert, as the next one
  Linear down_;
  Linear shared_gate_up_;
  Linear shared_down_;
  Linear shared_gate_;
};

}  // namespace mfsdp::recipe
