// Rows of a table by token, and the table's gradient.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/kernels/tokens.hpp"
#include "core/runtime/scalar.hpp"

namespace mfsdp::kernels {

template <class T>
void embedding_forward(const EmbeddingForward<T>& k) {
  T* output = k.output;
  for (std::int64_t i = 0; i < std::ssize(k.tokens); ++i) {
    const std::int64_t place = k.tokens[static_cast<std::size_t>(i)] - k.vocab_begin;
    if (place < 0 || place >= k.vocab) {  // another rank has it
      output = std::fill_n(output, k.cols, narrow<T>(0));
      continue;
    }
    const T* row = k.table + place * k.cols;
    const T* position = k.positions == nullptr ? nullptr : k.positions + k.position(i) * k.cols;
    for (std::int64_t j = 0; j < k.cols; ++j) {
      const Real<T> scaled = k.scale * widen(row[j]);
      *output++ = narrow<T>(position == nullptr ? scaled : scaled + widen(position[j]));
    }
  }
}

/// Sums in the order of rows, rounded once.
template <class T, class G>
void position_embedding_backward(const PositionEmbeddingBackward<T, G>& k) {
  std::vector<Real<T>> sums(static_cast<std::size_t>(k.positions * k.cols));
  for (std::int64_t i = 0; i < k.rows; ++i)
    for (std::int64_t j = 0; j < k.cols; ++j)
      sums[static_cast<std::size_t>(k.position(i) * k.cols + j)] +=
          widen(k.d_output[i * k.cols + j]);
  for (std::size_t i = 0; i < sums.size(); ++i)
    k.gradient[i] = narrow<G>(k.adds ? widen(k.gradient[i]) + sums[i] : sums[i]);
}

/// Calls use(token, sum) for every token that occurs, with the sum of its rows in their order, each
/// times `scale`.
/// `order`: one entry a token, scratch.
template <class T, class Use>
void for_each_token_sum(std::span<const std::int32_t> tokens, std::int64_t cols, Real<T> scale,
                        const T* d_output, std::span<TokenPlace> order, const Use& use) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    order[i] = {.token = tokens[i], .place = static_cast<std::int32_t>(i)};
  std::ranges::sort(order);
  std::vector<Real<T>> sum(static_cast<std::size_t>(cols));
  for (std::size_t first = 0; first < order.size();) {
    const std::int32_t token = order[first].token;
    std::fill(sum.begin(), sum.end(), Real<T>(0));
    for (; first < order.size() && order[first].token == token; ++first) {
      const T* row = d_output + order[first].place * cols;
      for (std::int64_t j = 0; j < cols; ++j)
        sum[static_cast<std::size_t>(j)] += scale * widen(row[j]);
    }
    use(token, std::span<const Real<T>>(sum));
  }
}

/// Each row of the gradient is the sum over the positions of its token, rounded once. Rows of
/// tokens that do not occur become 0, or stay if `adds`.
template <class T, class G>
void embedding_backward(const EmbeddingBackward<T, G>& k) {
  if (!k.adds) std::fill_n(k.gradient, k.vocab * k.cols, narrow<G>(0));
  for_each_token_sum(k.tokens, k.cols, k.scale, k.d_output, k.order,
                     [&](std::int32_t token, std::span<const Real<T>> sum) {
                       const std::int64_t place = token - k.vocab_begin;
                       if (place < 0 || place >= k.vocab) return;  // another rank has it
                       G* out = k.gradient + place * k.cols;
                       for (std::size_t j = 0; j < sum.size(); ++j)
                         out[j] = narrow<G>(widen(out[j]) + sum[j]);
                     });
}

}  // namespace mfsdp::kernels
