// Queries, keys and values from latent vectors (multi-head latent attention, MLA): forward up to
// the attention kernel, backward from its gradient on.
//
//   normed1 --gemm--> q_latent --norm--> q_latent.normed --gemm--> query       or one gemm to query
//   normed1 --gemm--> kv_latent, whose last columns are rotated
//   kv_latent's first columns --norm--> kv_latent.normed --gemm--> key_value
//   query, key_value, kv_latent's last columns --heads, RoPE--> qkv
//
// Ranks of tp have other heads, so parts of the second gemms; latent vectors are those of a rank's rows,
// and their normed rows go to all ranks in place of normed1's.
//
// Rows of qkv have query, key and value heads, as in other models; values may be narrower.
#pragma once

#include <functional>
#include <string>

#include "core/recipe/builder.hpp"

namespace mfsdp::recipe {

class LatentAttention {
 public:
  /// `rope`: the table's operand, and positions where documents are masked.
  LatentAttention(Builder& builder, std::vector<RecipeOperand> rope);

  /// From "normed1" to "qkv"; tensor names get the suffix.
  void forward(const std::string& suffix);

  struct Backward {
    std::string suffix;            ///< of forward's tensors
    bool keeps_output = false;     ///< outputs of norms were kept
    std::function<void()> norm{};  ///< adds the backward of the norm of normed1, from d_normed1
  };
  /// From "d_qkv" to "d_normed1", with all weight gradients.
  void backward(const Backward& how);

 private:
  [[nodiscard]] std::vector<Attribute> head_sizes(bool forward) const;
  [[nodiscard]] std::vector<Attribute> latent_sizes() const;
  // Where ranks of tp share blocks, all but the second projections of latent vectors work on a rank's
  // rows; these read the rows of all ranks, and make terms of gradients.
  /// The rows of all ranks, in a tensor `whole`; without ranks of tp the rows themselves.
  [[nodiscard]] std::string whole(const std::string& rows, std::int64_t cols,
                                  const std::string& whole);
  [[nodiscard]] std::string terms(const std::string& rows) const;
  /// `rows` from its terms.
  void sum(const std::string& rows, std::int64_t cols);
  void query_backward(const Backward& how);
  void key_value_backward(const Backward& how);

  Builder& b_;
  const ModelShape& model_;
  std::vector<RecipeOperand> rope_;
  std::int64_t tokens_;
  std::int64_t rows_;   ///< of this rank between blocks
  std::int64_t heads_;  ///< of this rank
  std::int64_t width_;  ///< of kv_latent
  Linear q_;
  Linear q_a_;
  Linear q_b_;
  Linear kv_a_;
  Linear kv_b_;
};

}  // namespace mfsdp::recipe
