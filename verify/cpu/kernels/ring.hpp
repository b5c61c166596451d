// Sums over the steps of a ring (core/plan/kernels/ring.hpp) on the CPU.
#pragma once

#include <algorithm>
#include <limits>

#include "core/plan/kernels/ring.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/exponential.hpp"

namespace mfsdp::kernels {

template <class T>
void attention_merge(const AttentionMerge<T>& k) {
  for (std::int64_t i = 0; i < k.rows * k.heads; ++i) {
    const Real<T> own = k.log_sum_exp[i];
    const Real<T> other = k.other_log_sum_exp[i];
    if (other == -std::numeric_limits<Real<T>>::infinity()) continue;
    const Real<T> largest = std::max(own, other);
    const Real<T> own_sum = exponential(own - largest);
    const Real<T> other_sum = exponential(other - largest);
    const Real<T> sum = own_sum + other_sum;
    for (std::int64_t d = 0; d < k.head_dim; ++d) {
      T& out = k.output[i * k.head_dim + d];
      out =
          narrow<T>((widen(out) * own_sum + widen(k.other[i * k.head_dim + d]) * other_sum) / sum);
    }
    k.log_sum_exp[i] = largest + logarithm(sum);
  }
}

template <class T>
void add_rows(const AddRows<T>& k) {
  for (std::int64_t i = 0; i < k.rows * k.cols; ++i)
    k.output[i] = narrow<T>(widen(k.output[i]) + widen(k.input[i]));
}

}  // namespace mfsdp::kernels
