// The MLP of a block with experts: a router chooses some of them for each token.
//
//   normed2 --gemm--> router_logits --route--> indices, weights --order--> ends, order, places
//   normed2 --dispatch, by order--> dispatched --grouped product--> gate_up --swiglu * weight-->
//   product --grouped product--> expert_out --combine, by places--> mlp_out
//
// Rows of experts stand one expert after the other: as many as tokens have experts in all. The
// weight of a token's expert is multiplied before the second product, so that backward needs none
// of what experts make: its gradient is a sum over what the first product makes.
//
// An expert that all tokens share gives mlp_out what the chosen ones are added to. Qwen2's has a
// weight too, the sigmoid of a product of its own.
//
// With experts that are dealt out over the ranks of ep, dispatched rows go to the ranks that have
// their experts, in blocks of as many rows as one rank can have for another, and come back:
//
//   rows by expert --peer_order--> blocks for ranks --all_to_all--> blocks of ranks
//   --arrival_order--> rows by expert: those of all ranks
#pragma once

#include <string>

#include "core/recipe/parts.hpp"

namespace mfsdp::recipe {

class ExpertMlp {
 public:
  explicit ExpertMlp(Builder& builder);

  /// From "normed2" to "gate_up", each with that suffix.
  void forward(const std::string& suffix);
  /// From "gate_up" to "mlp_out".
  void finish();

  struct Backward {
    std::string suffix;         ///< of what forward made
    bool keeps_output = false;  ///< normed2, dispatched and product are still there
  };
  /// From the residual's gradient to "d_normed2".
  void backward_rows(const Backward& how);
  /// Gradients of what takes normed2: after the norm's backward, which has made it again over
  /// d_normed2 where it was not kept.
  void backward_weights(const Backward& how);

 private:
  /// `chooses`: forward, which alone asks for groups.
  [[nodiscard]] std::vector<Attribute> routing(bool chooses) const;
  [[nodiscard]] std::vector<Attribute> rows() const;
  [[nodiscard]] std::vector<Attribute> arrived() const;
  // Experts that are dealt out: rows leave for the ranks that have theirs, and arrive there.
  [[nodiscard]] bool deals() const { return b_.config.deals_experts(); }
  void find_peers(const std::string& suffix);
  void send_out(const std::string& suffix);
  /// Rows [m, h] from one tensor to another.
  void exchange_rows(const std::string& name, const std::string& from, const std::string& to,
                     std::optional<ParameterRole> gradient_of = std::nullopt);
  /// Their weights [m].
  void exchange_weights(const std::string& name, const std::string& from, const std::string& to);
  /// Rows in the order that a tensor states, of m or fewer.
  void arrange(const std::string& name, const std::string& from, const std::string& order,
               const std::string& to, std::optional<ParameterRole> gradient_of = std::nullopt);
  [[nodiscard]] std::vector<Attribute> inner() const;
  [[nodiscard]] std::vector<Attribute> sizes_of(const Linear& layer, bool adds = false) const;
  // The expert that all tokens have: into mlp_out before the others. Where those are dealt out, its
  // kernels stand behind exchanges of rows, which they can run beside.
  [[nodiscard]] bool shares() const { return model_.shared_intermediate != 0; }
  [[nodiscard]] std::vector<Attribute> shared_inner() const;
  void shared_forward(const std::string& suffix);
  void shared_finish();
  void shared_backward_product(const Backward& how);
  void shared_backward_down(const Backward& how);
  void shared_backward_rows(const Backward& how);
  void shared_backward_weights(const Backward& how, const std::string& normed);
  // Biases of the router and of each expert: that of its second product is multiplied by the row's
  // weight, as the product is.
  [[nodiscard]] bool has_biases() const { return model_.traits().biases; }
  [[nodiscard]] std::vector<Attribute> bias_sizes(const Linear& layer) const;
  void bias_gradient(const std::string& name, const Linear& layer, ParameterRole bias,
                     RecipeOperand d_output, const Backward& how, bool weighted);
  void weight_gradient(const std::string& name, const Linear& layer, RecipeOperand d_output,
                       RecipeOperand input, const std::string& suffix);

  Builder& b_;
  const ModelShape& model_;
  std::int64_t chosen_;   ///< rows of this rank's tokens
  std::int64_t rows_;     ///< of all experts that this rank has, at most
  std::int64_t experts_;  ///< that this rank has
  Linear router_;
  Linear gate_up_;  ///< of one expert, as the next is
  Linear down_;
  Linear shared_gate_up_;
  Linear shared_down_;
  Linear shared_gate_;
};

}  // namespace mfsdp::recipe
