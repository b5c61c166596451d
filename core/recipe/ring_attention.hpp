// Attention of ranks that share sequences, with the keys and values of one rank at a time. These go
// around the ranks: in step s rank i has those of rank i - s, and sends them on meanwhile.
//
//   forward    step 0    attention with own keys        | keys to the next rank
//              step s    attention with keys of i - s   | keys to the next rank
//                        merge with the sum of the steps before
//
// Backward begins with the keys of the rank before, and ends with its own. The gradients of keys
// follow them one step later: each rank that had the keys adds its term, the last of all is the
// rank whose keys they are, where they are whole then.
//
//   backward   step s    gradients with keys of i - s   | keys to the next rank
//                        add the terms of other ranks   | terms of step s - 1 to the next rank
//              step N    gradients with own keys        | terms of step N - 1
//
// Nothing of other ranks is kept from forward to backward: queries, keys, values, output and
// log-sum-exp of a rank's own tokens are.
#pragma once

#include <string>
#include <vector>

#include "core/recipe/builder.hpp"
#include "core/recipe/sequence_exchange.hpp"

namespace mfsdp::recipe {

class RingAttention {
 public:
  RingAttention(Builder& builder, SequenceExchange& sequences)
      : b_(builder), s_(builder.sizes), sequences_(sequences) {}

  /// The attributes of attention, its operand "query", and "positions" where documents are masked.
  struct Inputs {
    std::vector<Attribute> sizes;
    RecipeOperand query;
    std::vector<RecipeOperand> positions;
  };

  using KeySource = SequenceExchange::KeySource;
  /// "attention" and "log_sum_exp" from the query and from a rank's keys and values.
  void forward(const Inputs& inputs, const KeySource& own, const std::string& suffix);
  /// The first exchange of backward. Kernels until backward() hide it.
  void begin_backward(const KeySource& own);
  /// "d_query" and "d_keys" from "d_attention" and what forward has made.
  void backward(const Inputs& inputs, const std::string& suffix);

 private:
  [[nodiscard]] std::vector<Attribute> sizes_of(const Inputs& inputs, std::int64_t shift) const;
  /// The operands of a step, with these after query, key and value.
  [[nodiscard]] std::vector<RecipeOperand> operands_of(
      const Inputs& inputs, const std::string& keys,
      const std::vector<RecipeOperand>& others) const;
  void send(const std::string& name, const std::string& from, const std::string& to);
  void add(const std::string& name, const std::string& from, const std::string& to,
           std::int64_t cols);

  Builder& b_;
  const Sizes& s_;
  SequenceExchange& sequences_;
};

}  // namespace mfsdp::recipe
