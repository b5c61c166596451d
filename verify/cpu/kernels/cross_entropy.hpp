// Cross-entropy of rows of logits, summed over tokens: -log softmax(logits)[label]. Its gradient is
// softmax(logits) - onehot(label). The update divides by the number of tokens. A logit softcap
// replaces the logits x with cap * tanh(x / cap), and the gradient includes its slope.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/plan/kernels/tokens.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/exponential.hpp"
#include "verify/cpu/kernels/lanes.hpp"
#include "verify/cpu/kernels/soft_cap.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

template <class R>
struct LossSums {
  R loss = 0;
  R tokens = 0;  ///< number of tokens with a label
};

/// The loss of one row, and the values that its gradient needs.
template <class R>
struct RowLoss {
  R largest = 0;
  R sum = 0;  ///< of exp(logit - largest)
  R loss = 0;
};

/// The softmax over the columns of one row, without its label. `logit(i)` is element i of the row.
template <class R, class Logit>
[[nodiscard]] SoftmaxPart<R> row_softmax(const Logit& logit, std::int64_t columns) {
  SoftmaxPart<R> row;
  row.largest = max_lanes<R>(columns, logit);
  row.sum = sum_lanes<R>(columns, [&logit, largest = row.largest](std::int64_t j) {
    return exponential(logit(j) - largest);
  });
  return row;
}

/// `logit(i)` is element i of the row.
template <class R, class Logit>
[[nodiscard]] RowLoss<R> row_loss(const Logit& logit, std::int64_t vocab, std::int32_t label) {
  const SoftmaxPart<R> row = row_softmax<R>(logit, vocab);
  return {.largest = row.largest,
          .sum = row.sum,
          .loss = logarithm(row.sum) + row.largest - logit(label)};
}

/// Only the loss. Rows with the label `ignored` do not count. `cap`: 0 is none. `pitch`: elements
/// from one row to the next; 0: vocab. `log_probs`: null, or for each row the log-probability of its
/// label, 0 where that is `ignored`.
template <class T>
[[nodiscard]] LossSums<Real<T>> cross_entropy_loss(std::span<const std::int32_t> labels,
                                                   std::int64_t vocab, std::int32_t ignored,
                                                   const T* logits, Real<T> cap = 0,
                                                   std::int64_t pitch = 0,
                                                   Real<T>* log_probs = nullptr) {
  LossSums<Real<T>> sums;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (log_probs != nullptr) log_probs[i] = 0;
    if (labels[i] == ignored) continue;
    const T* const row = logits + static_cast<std::int64_t>(i) * (pitch == 0 ? vocab : pitch);
    const auto plain = [row](std::int64_t j) { return widen(row[j]); };
    const auto capped = [row, cap](std::int64_t j) { return softcapped(widen(row[j]), cap); };
    const Real<T> loss = cap == 0 ? row_loss<Real<T>>(plain, vocab, labels[i]).loss
                                  : row_loss<Real<T>>(capped, vocab, labels[i]).loss;
    if (log_probs != nullptr) log_probs[i] = -loss;
    sums.loss += loss;
    sums.tokens += 1;
  }
  return sums;
}

/// The gradient of one row with a cap, times `scale`, over its logits. `label`: its column, if it is
/// one of these.
template <class T>
void capped_gradient(T* row, std::int64_t vocab, std::int64_t label, Real<T> cap,
                     const RowLoss<Real<T>>& loss, Real<T> scale) {
  for (std::int64_t j = 0; j < vocab; ++j) {
    const Real<T> logit = softcapped(widen(row[j]), cap);
    const Real<T> probability = exponential(logit - loss.largest) / loss.sum;
    const Real<T> gradient =
        (j == label ? probability - 1 : probability) * softcap_slope(logit, cap);
    row[j] = narrow<T>(gradient * scale);
  }
}

/// The same of a whole row; returns its loss.
template <class T>
[[nodiscard]] Real<T> capped_row(T* row, std::int64_t vocab, std::int32_t label, Real<T> cap,
                                 Real<T> scale) {
  const auto capped = [row, cap](std::int64_t j) { return softcapped(widen(row[j]), cap); };
  const RowLoss<Real<T>> loss = row_loss<Real<T>>(capped, vocab, label);
  capped_gradient(row, vocab, label, cap, loss, scale);
  return loss.loss;
}

/// Loss, and the gradient, times `scale`, over the logits. Rows whose label is `ignored` get
/// gradient 0.
template <class T>
MFSDP_VECTOR_CLONES [[nodiscard]] LossSums<Real<T>> cross_entropy(
    std::span<const std::int32_t> labels, std::int64_t vocab, std::int32_t ignored, T* logits,
    Real<T> cap = 0, Real<T> scale = 1, std::int64_t pitch = 0) {
  LossSums<Real<T>> sums;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    T* row = logits + static_cast<std::int64_t>(i) * (pitch == 0 ? vocab : pitch);
    if (labels[i] == ignored) {
      std::fill_n(row, vocab, narrow<T>(0));
      continue;
    }
    sums.tokens += 1;
    if (cap != 0) {
      sums.loss += capped_row(row, vocab, labels[i], cap, scale);
      continue;
    }
    const RowLoss<Real<T>> loss =
        row_loss<Real<T>>([row](std::int64_t j) { return widen(row[j]); }, vocab, labels[i]);
    sums.loss += loss.loss;
    const auto probability = [loss](T logit) {
      return exponential(widen(logit) - loss.largest) / loss.sum;
    };
    const T of_label = narrow<T>((probability(row[labels[i]]) - 1) * scale);
    for (std::int64_t j = 0; j < vocab; ++j) row[j] = narrow<T>(probability(row[j]) * scale);
    row[labels[i]] = of_label;
  }
  return sums;
}

// ---- rows whose columns ranks share -------------------------------------------------------------

/// The softmax of each row over this rank's columns.
template <class T>
MFSDP_VECTOR_CLONES void softmax_parts(const SoftmaxParts<T>& k, std::int32_t ignored) {
  for (std::size_t i = 0; i < k.labels.size(); ++i) {
    const T* const row = k.logits + static_cast<std::int64_t>(i) * k.row;
    const auto plain = [row](std::int64_t j) { return widen(row[j]); };
    const auto capped = [row, cap = k.cap](std::int64_t j) {
      return softcapped(widen(row[j]), cap);
    };
    SoftmaxPart<Real<T>> part =
        k.cap == 0 ? row_softmax<Real<T>>(plain, k.vocab) : row_softmax<Real<T>>(capped, k.vocab);
    const std::int64_t own = k.labels[i] - k.vocab_begin;
    if (k.labels[i] != ignored && own >= 0 && own < k.vocab)
      part.of_label = k.cap == 0 ? plain(own) : capped(own);
    k.output[i] = part;
  }
}

/// The loss of one row, of the parts of all ranks in their order.
template <class R>
[[nodiscard]] RowLoss<R> merged_row(const SoftmaxPart<R>* parts, std::int64_t peers,
                                    std::int64_t rows, std::int64_t row) {
  RowLoss<R> merged{.largest = parts[row].largest};
  for (std::int64_t p = 1; p < peers; ++p)
    merged.largest = std::max(merged.largest, parts[p * rows + row].largest);
  R of_label = 0;
  for (std::int64_t p = 0; p < peers; ++p) {
    const SoftmaxPart<R>& part = parts[p * rows + row];
    merged.sum += part.sum * exponential(part.largest - merged.largest);
    of_label += part.of_label;
  }
  merged.loss = logarithm(merged.sum) + merged.largest - of_label;
  return merged;
}

/// As cross_entropy() or, where T is const, cross_entropy_loss(); of rows whose parts are known.
template <class T>
MFSDP_VECTOR_CLONES [[nodiscard]] LossSums<Real<T>> cross_entropy_of_parts(const CrossEntropy<T>& k,
                                                                           std::int32_t ignored,
                                                                           Real<T> scale = 1) {
  LossSums<Real<T>> sums;
  const std::int64_t rows = std::ssize(k.labels);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int32_t label = k.labels[static_cast<std::size_t>(i)];
    T* const row = k.logits + i * k.pitch();
    if (label == ignored) {
      if constexpr (!std::is_const_v<T>) std::fill_n(row, k.vocab, narrow<T>(0));
      continue;
    }
    const RowLoss<Real<T>> loss = merged_row(k.parts, k.peers, rows, i);
    sums.loss += loss.loss;
    sums.tokens += 1;
    if constexpr (!std::is_const_v<T>) {
      const auto probability = [loss](T logit) {
        return exponential(widen(logit) - loss.largest) / loss.sum;
      };
      const std::int64_t own = label - k.vocab_begin;
      if (k.cap != 0) {
        capped_gradient(row, k.vocab, own, k.cap, loss, scale);
        continue;
      }
      const bool is_own = own >= 0 && own < k.vocab;
      const T of_label = is_own ? narrow<T>((probability(row[own]) - 1) * scale) : T{};
      for (std::int64_t j = 0; j < k.vocab; ++j) row[j] = narrow<T>(probability(row[j]) * scale);
      if (is_own) row[own] = of_label;
    }
  }
  return sums;
}

}  // namespace mfsdp::kernels
