// Cross-entropy of rows of logits, summed over tokens: -log softmax(logits)[label]. Its gradient is
// softmax(logits) - onehot(label); division by the number of tokens comes with the update.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/exponential.hpp"
#include "verify/cpu/kernels/lanes.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

template <class R>
struct LossSums {
  R loss = 0;
  R tokens = 0;  ///< those with a label
};

/// The loss of one row, and what its gradient needs.
template <class R>
struct RowLoss {
  R largest = 0;
  R sum = 0;  ///< of exp(logit - largest)
  R loss = 0;
};

template <class T>
[[nodiscard]] RowLoss<Real<T>> row_loss(const T* logits, std::int64_t vocab, std::int32_t label) {
  RowLoss<Real<T>> row;
  row.largest = max_lanes<Real<T>>(vocab, [logits](std::int64_t j) { return widen(logits[j]); });
  row.sum = sum_lanes<Real<T>>(vocab, [logits, largest = row.largest](std::int64_t j) {
    return exponential(widen(logits[j]) - largest);
  });
  row.loss = logarithm(row.sum) + row.largest - widen(logits[label]);
  return row;
}

/// Loss alone. Rows whose label is `ignored` count nothing.
template <class T>
[[nodiscard]] LossSums<Real<T>> cross_entropy_loss(std::span<const std::int32_t> labels,
                                                   std::int64_t vocab, std::int32_t ignored,
                                                   const T* logits) {
  LossSums<Real<T>> sums;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == ignored) continue;
    sums.loss += row_loss(logits + static_cast<std::int64_t>(i) * vocab, vocab, labels[i]).loss;
    sums.tokens += 1;
  }
  return sums;
}

/// Loss, and the gradient over the logits. Rows whose label is `ignored` get gradient 0.
template <class T>
MFSDP_VECTOR_CLONES [[nodiscard]] LossSums<Real<T>> cross_entropy(
    std::span<const std::int32_t> labels, std::int64_t vocab, std::int32_t ignored, T* logits) {
  LossSums<Real<T>> sums;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    T* row = logits + static_cast<std::int64_t>(i) * vocab;
    if (labels[i] == ignored) {
      std::fill_n(row, vocab, narrow<T>(0));
      continue;
    }
    const RowLoss<Real<T>> loss = row_loss(row, vocab, labels[i]);
    sums.loss += loss.loss;
    sums.tokens += 1;
    const auto probability = [loss](T logit) {
      return exponential(widen(logit) - loss.largest) / loss.sum;
    };
    const T of_label = narrow<T>(probability(row[labels[i]]) - 1);
    for (std::int64_t j = 0; j < vocab; ++j) row[j] = narrow<T>(probability(row[j]));
    row[labels[i]] = of_label;
  }
  return sums;
}

}  // namespace mfsdp::kernels
