// Sums of what a rank makes with the keys of one rank at a time, where keys go around ranks.
#pragma once

#include <cstdint>

#include "core/plan/kernels/element_types.hpp"

namespace mfsdp::kernels {

/// Attention with the keys of two sets is the mean of both, each weighted by the sum of its
/// exponentials, whose logarithm it has:
///
///   sum = log(exp(log_sum_exp) + exp(other_log_sum_exp))
///   output = output * exp(log_sum_exp - sum) + other * exp(other_log_sum_exp - sum)
///
/// A row that sees no key of a set has -infinity there.
template <class T>
struct AttentionMerge {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;       ///< of values
  T* output = nullptr;             ///< [rows, heads * head_dim]
  Real<T>* log_sum_exp = nullptr;  ///< [rows, heads]; becomes `sum`
  const T* other = nullptr;
  const Real<T>* other_log_sum_exp = nullptr;

  void state(auto& op) {
    op.attribute("head_dim", head_dim);
    op.attribute("heads", heads);
    op.attribute("rows", rows);
    op.updates("output", output, {"rows", {"heads", "head_dim"}});
    op.updates("log_sum_exp", log_sum_exp, {"rows", "heads"});
    op.reads("other", other, {"rows", {"heads", "head_dim"}});
    op.reads("other_log_sum_exp", other_log_sum_exp, {"rows", "heads"});
  }
};

/// output[row] += input[row]
template <class T>
struct AddRows {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  T* output = nullptr;  ///< [rows, cols]
  const T* input = nullptr;

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.updates("output", output, {"rows", "cols"});
    op.reads("input", input, {"rows", "cols"});
  }
};

}  // namespace mfsdp::kernels
