// Rotary position embedding in Hugging Face's half-split form (Su et al., arXiv 2104.09864): with
// d the number of rotated elements (usually all of a head), elements i and i + d/2 of a head are
// rotated as a pair by the angle position * frequency_i. Optionally each head is RMS-normed first,
// as in Qwen3.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/plan/kernels/rope.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/norm.hpp"

namespace mfsdp::kernels {

/// Rotates the first elements of one head forwards or, for gradients, backwards. `table`: d/2
/// cosines of the position, then d/2 sines. `in` may be `out`.
template <class In, class Table, class Out>
void rotate_head(const In* in, const Table* table, const RopeShape& shape, bool backwards,
                 Out* out) {
  const std::int64_t half = shape.turned / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const Real<Out> cosine = table[i];
    const Real<Out> sine = backwards ? -table[half + i] : table[half + i];
    const Real<Out> first = widen(in[i]);
    const Real<Out> second = widen(in[half + i]);
    out[i] = narrow<Out>(first * cosine - second * sine);
    out[half + i] = narrow<Out>(second * cosine + first * sine);
  }
  for (std::int64_t i = shape.turned; i < shape.head_dim; ++i) out[i] = narrow<Out>(widen(in[i]));
}

/// Rotates all heads in place.
template <class T, class Table>
void rope(const RopeShape& s, const HeadRows<T>& heads, const Table* table, bool backwards) {
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      T* head = heads.at(t, h);
      rotate_head(head, table + s.position(t) * s.turned, s, backwards, head);
    }
}

template <class T, class Table = Real<T>>
void qk_norm_rope_forward(const QkNormRopeForward<T, Table>& k) {
  const RopeShape& s = k.shape;
  std::vector<Real<T>> normed(static_cast<std::size_t>(s.head_dim));
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const T* x = k.in.at(t, h);
      const T* weight = h < k.query_heads ? k.query_weight : k.key_weight;
      const Real<T> rstd = reciprocal_root_mean_square(x, s.head_dim, k.epsilon);
      k.rstd[t * s.heads + h] = rstd;
      for (std::int64_t i = 0; i < s.head_dim; ++i)
        normed[static_cast<std::size_t>(i)] =
            widen(x[i]) * rstd * (k.weight_offset + widen(weight[i]));
      rotate_head(normed.data(), k.table + s.position(t) * s.turned, s, false, k.out.at(t, h));
    }
}

template <class T, class Table = Real<T>>
void qk_norm_rope_backward(const QkNormRopeBackward<T, Table>& k) {
  const RopeShape& s = k.shape;
  std::fill_n(k.partials, 2 * k.partial_rows * s.head_dim, Real<T>(0));
  std::vector<Real<T>> dy(static_cast<std::size_t>(s.head_dim));
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const bool is_query = h < k.query_heads;
      const std::int64_t partial_row = t % k.partial_rows + (is_query ? 0 : k.partial_rows);
      rotate_head(k.gradient.at(t, h), k.table + s.position(t) * s.turned, s, true, dy.data());
      norm_row_backward(s.head_dim, dy.data(), k.in.at(t, h), k.rstd[t * s.heads + h],
                        is_query ? k.query_weight : k.key_weight, k.weight_offset, false,
                        k.gradient.at(t, h), k.partials + partial_row * s.head_dim);
    }
}

// ---- norms over all heads of a kind ------------------------------------------------------------

/// The heads of queries or of keys, which share a norm.
struct NormedHeads {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
[[nodiscard]] NormedHeads normed_heads(const auto& k, bool queries) {
  return queries ? NormedHeads{.first = 0, .count = k.query_heads}
                 : NormedHeads{.first = k.query_heads, .count = k.shape.heads - k.query_heads};
}

/// A token's consecutive heads of one kind.
template <class T>
void gather_heads(const HeadRows<const T>& from, std::int64_t token, const NormedHeads& heads,
                  std::int64_t head_dim, T* row) {
  for (std::int64_t h = 0; h < heads.count; ++h)
    std::copy_n(from.at(token, heads.first + h), head_dim, row + h * head_dim);
}

template <class T, class Table = Real<T>>
void qk_row_norm_rope_forward(const QkRowNormRopeForward<T, Table>& k) {
  const RopeShape& s = k.shape;
  std::vector<T> row(static_cast<std::size_t>(s.heads * s.head_dim));
  std::vector<Real<T>> normed(static_cast<std::size_t>(s.head_dim));
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (const bool queries : {true, false}) {
      const NormedHeads heads = normed_heads(k, queries);
      const T* const weight = queries ? k.query_weight : k.key_weight;
      gather_heads(k.in, t, heads, s.head_dim, row.data());
      const Real<T> rstd =
          reciprocal_root_mean_square(row.data(), heads.count * s.head_dim, k.epsilon);
      k.rstd[2 * t + (queries ? 0 : 1)] = rstd;
      for (std::int64_t h = 0; h < heads.count; ++h) {
        for (std::int64_t i = 0; i < s.head_dim; ++i) {
          const std::int64_t at = h * s.head_dim + i;
          normed[static_cast<std::size_t>(i)] = widen(row[static_cast<std::size_t>(at)]) * rstd *
                                                (k.weight_offset + widen(weight[at]));
        }
        rotate_head(normed.data(), k.table + s.position(t) * s.turned, s, false,
                    k.out.at(t, heads.first + h));
      }
    }
}

template <class T, class Table = Real<T>>
void qk_row_norm_rope_backward(const QkRowNormRopeBackward<T, Table>& k) {
  const RopeShape& s = k.shape;
  const auto width = static_cast<std::size_t>(s.heads * s.head_dim);
  std::fill_n(k.partials, k.partial_rows * s.heads * s.head_dim, Real<T>(0));
  std::vector<T> x(width);
  std::vector<Real<T>> dy(width);
  std::vector<T> dx(width);
  for (std::int64_t t = 0; t < s.tokens; ++t)
    for (const bool queries : {true, false}) {
      const NormedHeads heads = normed_heads(k, queries);
      const std::int64_t cols = heads.count * s.head_dim;
      gather_heads(k.in, t, heads, s.head_dim, x.data());
      for (std::int64_t h = 0; h < heads.count; ++h)
        rotate_head(k.gradient.at(t, heads.first + h), k.table + s.position(t) * s.turned, s, true,
                    dy.data() + h * s.head_dim);
      Real<T>* const partials =
          k.partials + k.partial_rows * heads.first * s.head_dim + t % k.partial_rows * cols;
      norm_row_backward(cols, dy.data(), x.data(), k.rstd[2 * t + (queries ? 0 : 1)],
                        queries ? k.query_weight : k.key_weight, k.weight_offset, false, dx.data(),
                        partials);
      for (std::int64_t h = 0; h < heads.count; ++h)
        std::copy_n(dx.data() + h * s.head_dim, s.head_dim, k.gradient.at(t, heads.first + h));
    }
}

}  // namespace mfsdp::kernels
