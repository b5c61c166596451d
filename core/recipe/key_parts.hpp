// Ranks of tp that hold the columns of one head of keys together, where there are more ranks than
// such heads. Each has equal parts of both projections' outputs; the ranks exchange them:
//
//   qkv --take--> key_part --all_gather--> key_parts, qkv --join--> qkv.heads: own queries, one head
//   d_qkv.heads --split--> d_key_parts --reduce_scatter--> d_key_part --join--> d_qkv
//
// Every element of the weights is on one rank, so that their gradients and saves are as all others.
#pragma once

#include <string>

#include "core/recipe/builder.hpp"

namespace mfsdp::recipe {

class KeyParts {
 public:
  explicit KeyParts(Builder& builder) : b_(builder), s_(builder.sizes) {}

  [[nodiscard]] bool apply() const { return s_.key_holders > 1; }
  /// "qkv.heads" from "qkv", each with the suffix.
  void join(const std::string& suffix);
  /// "d_qkv" from "d_qkv.heads".
  void split_gradients();

 private:
  [[nodiscard]] std::vector<Attribute> sizes(bool joins) const;
  [[nodiscard]] RecipeOperand queries(const std::string& rows, std::int64_t row) const;
  /// Columns of a rank's part of a key.
  [[nodiscard]] std::int64_t cols() const { return s_.head_dim / s_.key_holders; }

  Builder& b_;
  const Sizes& s_;
};

}  // namespace mfsdp::recipe
