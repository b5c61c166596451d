// Collectives of ranks that share sequences (core/plan/context_parallel.hpp), with the kernels that
// put rows in order for them.
//
//   a2a          qkv --split--> qkv.parts --all_to_all--> qkv.heads           rows of whole sequences
//                attention.heads --all_to_all--> attention.parts --join--> attention   and back
//   all_gather   qkv --take--> keys --all_gather--> all_keys
//                d_all_keys --reduce_scatter--> d_keys, d_query --join--> d_qkv
#pragma once

#include <string>
#include <vector>

#include "core/recipe/builder.hpp"

namespace mfsdp::recipe {

class SequenceExchange {
 public:
  explicit SequenceExchange(Builder& builder) : b_(builder), s_(builder.sizes) {}

  /// Whether attention has rows of whole sequences, and some of the heads.
  [[nodiscard]] bool by_heads() const { return s_.head_groups > 1; }
  /// Columns of keys in a row of all heads.
  [[nodiscard]] std::int64_t key_cols() const { return s_.kv_heads * s_.head_groups * s_.head_dim; }
  /// From rows of this rank's tokens to rows of whole sequences. `keys`: columns of keys among the
  /// `cols` of a row.
  void split(const std::string& name, std::int64_t cols, std::int64_t keys,
             const std::string& suffix);
  /// And back.
  void join(const std::string& name, std::int64_t cols, std::int64_t keys,
            const std::string& suffix);

  /// The part of each sequence whose queries a rank has, where it has all heads: "part", "parts".
  void add_part(std::vector<Attribute>& sizes) const;
  /// Columns of a rank's keys, and of its values.
  [[nodiscard]] std::int64_t own_keys() const { return s_.kv_heads * s_.head_dim; }
  /// Where keys and values lie: columns of rows.
  struct KeySource {
    std::string key;
    std::int64_t key_row;  ///< columns
    std::string value;     ///< rows of qkv
  };
  /// A rank's keys and values, [T, 2 own_keys()]: "keys".
  void take_keys(const KeySource& from, const std::string& suffix);
  /// The same, and those of all ranks: "all_keys".
  void gather_keys(const KeySource& from, const std::string& suffix);
  /// "d_keys" from the terms of all ranks' gradients.
  void sum_key_gradients();
  /// "d_qkv" from "d_query" and "d_keys".
  void join_gradients();

 private:
  [[nodiscard]] std::vector<Attribute> group_sizes(std::int64_t cols, std::int64_t keys) const;
  void exchange(const std::string& name, const char* from, const char* to, std::int64_t cols,
                const std::string& suffix);

  Builder& b_;
  const Sizes& s_;
};

}  // namespace mfsdp::recipe
