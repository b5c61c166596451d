// Parts of latent attention (DeepSeek-V2, arXiv 2405.04434) that other attention lacks: heads that
// combine values from latent vectors with a rotated part, and the norm of a latent vector within a
// wider row (core/plan/kernels/attention.hpp, norm.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/plan/kernels/attention.hpp"
#include "core/plan/kernels/norm.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/norm.hpp"

namespace mfsdp::kernels {

/// Rotates pairs of adjacent elements by the position's angles; backwards for gradients. The table
/// has the cosines of the angles, then their sines. `out` may be `in`.
template <class In, class Table, class Out>
void turn_pairs(const In* in, const Table* table, std::int64_t turned, bool backwards, Out* out) {
  const std::int64_t half = turned / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const Real<Out> cosine = table[i];
    const Real<Out> sine = backwards ? -table[half + i] : table[half + i];
    const Real<Out> first = widen(in[2 * i]);
    const Real<Out> second = widen(in[2 * i + 1]);
    out[2 * i] = narrow<Out>(first * cosine - second * sine);
    out[2 * i + 1] = narrow<Out>(second * cosine + first * sine);
  }
}

/// The consecutive heads of a token: queries, keys, values.
template <class T>
struct TokenHeads {
  T* query;
  T* key;
  T* value;

  TokenHeads(const LatentShape& s, T* rows, std::int64_t token)
      : query(rows + token * s.heads * (2 * s.head_dim + s.value_dim)),
        key(query + s.heads * s.head_dim),
        value(key + s.heads * s.head_dim) {}
};

template <class T>
void latent_heads_forward(const LatentHeadsForward<T>& k) {
  const LatentShape& s = k.shape;
  for (std::int64_t t = 0; t < s.rows; ++t) {
    const float* const angles = k.table + s.position(t) * s.turned;
    const TokenHeads<T> to(s, k.output, t);
    const T* const query = k.query + t * s.heads * s.head_dim;
    const T* const key_value = k.key_value + t * s.heads * (s.kept() + s.value_dim);
    const T* const turns = k.latent + (t + 1) * k.latent_width - s.turned;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t at = h * s.head_dim;
      std::copy_n(query + at, s.kept(), to.query + at);
      turn_pairs(query + at + s.kept(), angles, s.turned, false, to.query + at + s.kept());
      const T* const of_head = key_value + h * (s.kept() + s.value_dim);
      std::copy_n(of_head, s.kept(), to.key + at);
      turn_pairs(turns, angles, s.turned, false, to.key + at + s.kept());
      std::copy_n(of_head + s.kept(), s.value_dim, to.value + h * s.value_dim);
    }
  }
}

/// The shared part of all heads' keys gets the sum of their gradients, rounded once.
template <class T>
void latent_heads_backward(const LatentHeadsBackward<T>& k) {
  const LatentShape& s = k.shape;
  std::vector<Real<T>> sum(static_cast<std::size_t>(s.turned));
  for (std::int64_t t = 0; t < s.rows; ++t) {
    const float* const angles = k.table + s.position(t) * s.turned;
    const TokenHeads<const T> from(s, k.d_output, t);
    T* const query = k.d_query + t * s.heads * s.head_dim;
    T* const key_value = k.d_key_value + t * s.heads * (s.kept() + s.value_dim);
    std::ranges::fill(sum, Real<T>(0));
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t at = h * s.head_dim;
      std::copy_n(from.query + at, s.kept(), query + at);
      turn_pairs(from.query + at + s.kept(), angles, s.turned, true, query + at + s.kept());
      T* const of_head = key_value + h * (s.kept() + s.value_dim);
      std::copy_n(from.key + at, s.kept(), of_head);
      for (std::int64_t i = 0; i < s.turned; ++i)
        sum[static_cast<std::size_t>(i)] += widen(from.key[at + s.kept() + i]);
      std::copy_n(from.value + h * s.value_dim, s.value_dim, of_head + s.kept());
    }
    turn_pairs(sum.data(), angles, s.turned, true, k.d_turned + t * s.turned);
  }
}

template <class T>
void latent_norm_forward(const LatentNormForward<T>& k) {
  for (std::int64_t i = 0; i < k.rows; ++i) {
    const T* const x = k.input + i * k.width;
    k.rstd[i] = reciprocal_root_mean_square(x, k.cols, k.epsilon);
    for (std::int64_t j = 0; j < k.cols; ++j)
      k.normed[i * k.cols + j] = normed_value(x[j], k.rstd[i], widen(k.weight[j]));
  }
}

/// The backward of an RMS norm over the normed columns. `sums`: null without --exact-sums.
template <class T>
void latent_norm_backward(const LatentNormBackward<T>& k, GridSums<Real<T>>* sums) {
  std::vector<T> input(static_cast<std::size_t>(k.rows * k.cols));
  std::vector<T> d_input(input.size());
  for (std::int64_t i = 0; i < k.rows; ++i)
    std::copy_n(k.input + i * k.width, k.cols, input.data() + i * k.cols);
  const RmsNormBackward<T> norm{.rows = k.rows,
                                .cols = k.cols,
                                .partial_rows = k.partial_rows,
                                .d_normed = k.d_normed,
                                .input = input.data(),
                                .rstd = k.rstd,
                                .weight = k.weight,
                                .d_residual = d_input.data(),
                                .normed = k.normed,
                                .partials = k.partials,
                                .pieces = k.pieces};
  if (sums != nullptr)
    exact_rms_norm_backward(norm, *sums);
  else
    rms_norm_backward(norm);
  const std::int64_t rest = k.width - k.cols;
  for (std::int64_t i = 0; i < k.rows; ++i) {
    std::copy_n(d_input.data() + i * k.cols, k.cols, k.d_input + i * k.width);
    std::copy_n(k.d_rest + i * rest, rest, k.d_input + i * k.width + k.cols);
  }
}

}  // namespace mfsdp::kernels
