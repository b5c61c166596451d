// Causal attention with grouped key and value heads, one block of query rows at a time as in
// FlashAttention 2 (Dao, arXiv 2307.08691). Forward keeps the log-sum-exp of each row, from which
// backward recomputes the probabilities. With P the softmax of S = scale * Q K^T:
//
//   D_i = sum_d dO_id O_id     dV = P^T dO     dS = P * (dO V^T - D)     dQ = scale * dS K
//                                                                        dK = scale * dS^T Q
//
// With a sliding window, a query sees the last tokens only, as many as the window has. With
// positions, it sees only its document. A block of rows begins at the first key that its first row
// sees: no later row sees an earlier key. Queries may be those of a part of a sequence: then each row
// has a place in it, and keys are put in the order of places. So may keys: blocks of rows that see
// none of them are not computed. With a logit softcap, P is the softmax of the result C of
// the softcap, and dS is multiplied by the slope 1 - (C / cap)^2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/plan/kernels/attention.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/exponential.hpp"
#include "verify/cpu/kernels/lanes.hpp"
#include "verify/cpu/kernels/product.hpp"
#include "verify/cpu/kernels/soft_cap.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

inline constexpr std::int64_t kQueryBlock = 64;

/// One head as a contiguous [seq, head_dim] matrix in arithmetic precision.
template <class T>
class HeadMatrix {
 public:
  HeadMatrix(std::int64_t seq_len, std::int64_t head_dim)
      : rows_(seq_len), cols_(head_dim), values_(static_cast<std::size_t>(seq_len * head_dim)) {}

  void load(const T* from, std::int64_t position_stride, Real<T> factor = 1) {
    for (std::int64_t i = 0; i < rows_; ++i) load_row(i, from + i * position_stride, factor);
  }
  void store(T* to, std::int64_t position_stride, Real<T> factor = 1) const {
    for (std::int64_t i = 0; i < rows_; ++i) store_row(i, to + i * position_stride, factor);
  }
  /// Rows are in the order of places; those in memory may be in another.
  void load_keys(const T* from, std::int64_t position_stride, const AttentionShape& shape) {
    for (std::int64_t i = 0; i < rows_; ++i)
      load_row(i, from + shape.key_row(i) * position_stride, 1);
  }
  void store_keys(T* to, std::int64_t position_stride, const AttentionShape& shape) const {
    for (std::int64_t i = 0; i < rows_; ++i)
      store_row(i, to + shape.key_row(i) * position_stride, 1);
  }
  void clear() { clear(0, rows_); }
  void clear(std::int64_t begin, std::int64_t count) {
    std::fill_n(row(begin), count * cols_, Real<T>(0));
  }
  [[nodiscard]] Real<T>* row(std::int64_t i) { return values_.data() + i * cols_; }
  [[nodiscard]] const Real<T>* row(std::int64_t i) const { return values_.data() + i * cols_; }
  /// Rows from `i` on, for GEMMs.
  [[nodiscard]] Matrix<const Real<T>> from(std::int64_t i, bool transposed = false) const {
    return {.data = row(i), .row = cols_, .transposed = transposed};
  }
  [[nodiscard]] Matrix<Real<T>> into(std::int64_t i) { return {.data = row(i), .row = cols_}; }

 private:
  void load_row(std::int64_t i, const T* from, Real<T> factor) {
    for (std::int64_t j = 0; j < cols_; ++j) row(i)[j] = widen(from[j]) * factor;
  }
  void store_row(std::int64_t i, T* to, Real<T> factor) const {
    for (std::int64_t j = 0; j < cols_; ++j) to[j] = narrow<T>(row(i)[j] * factor);
  }

  std::int64_t rows_;
  std::int64_t cols_;
  std::vector<Real<T>> values_;
};

/// The columns of a block's logits that a row sees: [begin, end).
struct SeenColumns {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  /// Sets all other columns of a row of `cols` to 0.
  template <class R>
  void clear_others(R* row, std::int64_t cols) const {
    std::fill(row, row + begin, R(0));
    std::fill(row + end, row + cols, R(0));
  }
};

/// A block of query rows, whose places ascend, and the keys that some of its rows see.
struct ScoreBlock {
  ScoreBlock(const AttentionShape& shape, std::int64_t b, std::int64_t first_row)
      : sequence(b),
        begin(first_row),
        rows(std::min(kQueryBlock, shape.queries() - first_row)),
        first_key(shape.keys_before(shape.first_seen(b, shape.place(first_row)))),
        cols(shape.keys_before(shape.place(first_row + rows - 1) + 1) - first_key) {}

  /// The columns that row `row` of the block sees.
  [[nodiscard]] SeenColumns seen(const AttentionShape& shape, std::int64_t row) const {
    const std::int64_t place = shape.place(begin + row);
    return {.begin = shape.keys_before(shape.first_seen(sequence, place)) - first_key,
            .end = shape.keys_before(place + 1) - first_key};
  }

  std::int64_t sequence;
  std::int64_t begin;  ///< the first row
  std::int64_t rows;
  std::int64_t first_key;  ///< the number of keys before the first column's
  std::int64_t cols;
};

/// Replaces scores[0, seen) with probabilities; returns the log-sum-exp, -infinity of none.
template <class R>
MFSDP_VECTOR_CLONES R softmax_row(R* scores, std::int64_t seen) {
  if (seen == 0) return -std::numeric_limits<R>::infinity();
  const auto score = [scores](std::int64_t j) { return scores[j]; };
  const R largest = max_lanes<R>(seen, score);
  for (std::int64_t j = 0; j < seen; ++j) scores[j] = exponential(scores[j] - largest);
  const R sum = sum_lanes<R>(seen, score);
  for (std::int64_t j = 0; j < seen; ++j) scores[j] *= 1 / sum;
  return largest + logarithm(sum);
}

/// A cap of 0 does nothing.
template <class R>
void cap_scores(R* scores, std::int64_t seen, R cap) {
  if (cap == 0) return;
  for (std::int64_t j = 0; j < seen; ++j) scores[j] = softcapped(scores[j], cap);
}

template <class T>
void attention_forward(const AttentionForward<T>& k) {
  const AttentionShape& s = k.shape;
  const Real<T> scale = 1 / std::sqrt(s.divisor<Real<T>>());
  const auto cap = static_cast<Real<T>>(s.score_cap);
  HeadMatrix<T> query(s.queries(), s.head_dim);
  HeadMatrix<T> key(s.keys(), s.head_dim);
  HeadMatrix<T> value(s.keys(), s.values());
  HeadMatrix<T> output(s.queries(), s.values());
  std::vector<Real<T>> block(
      static_cast<std::size_t>(std::min(kQueryBlock, s.queries()) * s.keys()));
  Real<T>* const scores = block.data();
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t group = h / (s.heads / s.kv_heads);
      query.load(k.query.at(b, h), k.query.position, scale);
      key.load_keys(k.key.at(b, group), k.key.position, s);
      value.load_keys(k.value.at(b, group), k.value.position, s);
      for (std::int64_t begin = 0; begin < s.queries(); begin += kQueryBlock) {
        const ScoreBlock at(s, b, begin);
        // No row of this block sees a key: nothing is computed.
        if (at.cols == 0) {
          output.clear(begin, at.rows);
          for (std::int64_t i = 0; i < at.rows; ++i)
            k.log_sum_exp[(b * s.queries() + begin + i) * s.heads + h] = softmax_row(scores, 0);
          continue;
        }
        multiply(query.from(begin), key.from(at.first_key, true), {.data = scores, .row = at.cols},
                 at.rows, at.cols, s.head_dim);
        for (std::int64_t i = 0; i < at.rows; ++i) {
          const SeenColumns seen = at.seen(s, i);
          Real<T>* const row = scores + i * at.cols;
          cap_scores(row + seen.begin, seen.size(), cap);
          k.log_sum_exp[(b * s.queries() + begin + i) * s.heads + h] =
              softmax_row(row + seen.begin, seen.size());
          seen.clear_others(row, at.cols);
        }
        multiply({.data = scores, .row = at.cols}, value.from(at.first_key), output.into(begin),
                 at.rows, s.values(), at.cols);
      }
      output.store(k.output.at(b, h), k.output.position);
    }
}

template <class T>
class AttentionBackwardRun {
 public:
  explicit AttentionBackwardRun(const AttentionBackward<T>& k)
      : k_(k),
        s_(k.shape),
        scale_(1 / std::sqrt(s_.divisor<Real<T>>())),
        cap_(static_cast<Real<T>>(s_.score_cap)),
        query_(s_.queries(), s_.head_dim),
        key_(s_.keys(), s_.head_dim),
        value_(s_.keys(), s_.values()),
        output_(s_.queries(), s_.values()),
        d_output_(output_),
        d_query_(query_),
        d_key_(key_),
        d_value_(value_),
        probabilities_(static_cast<std::size_t>(std::min(kQueryBlock, s_.queries()) * s_.keys())),
        d_scores_(probabilities_) {}

  void run() {
    const std::int64_t group_size = s_.heads / s_.kv_heads;
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t group = 0; group < s_.kv_heads; ++group) {
        key_.load_keys(k_.key.at(b, group), k_.key.position, s_);
        value_.load_keys(k_.value.at(b, group), k_.value.position, s_);
        d_key_.clear();
        d_value_.clear();
        for (std::int64_t h = group * group_size; h < (group + 1) * group_size; ++h)
          query_head(b, h);
        d_key_.store_keys(k_.d_key.at(b, group), k_.d_key.position, s_);
        d_value_.store_keys(k_.d_value.at(b, group), k_.d_value.position, s_);
      }
  }

 private:
  /// Adds the contribution of a query head to the gradients of its key and value head.
  void query_head(std::int64_t b, std::int64_t h) {
    query_.load(k_.query.at(b, h), k_.query.position, scale_);
    output_.load(k_.output.at(b, h), k_.output.position);
    d_output_.load(k_.d_output.at(b, h), k_.d_output.position);
    for (std::int64_t begin = 0; begin < s_.queries(); begin += kQueryBlock) {
      const ScoreBlock at(s_, b, begin);
      const std::int64_t rows = at.rows;
      const std::int64_t cols = at.cols;
      const std::int64_t first = at.first_key;
      if (cols == 0) {
        d_query_.clear(begin, rows);
        continue;
      }
      const Matrix<Real<T>> p{.data = probabilities_.data(), .row = cols};
      const Matrix<Real<T>> ds{.data = d_scores_.data(), .row = cols};
      multiply(query_.from(begin), key_.from(first, true), p, rows, cols, s_.head_dim);
      multiply(d_output_.from(begin), value_.from(first, true), ds, rows, cols, s_.values());
      for (std::int64_t i = 0; i < rows; ++i) {
        const SeenColumns seen = at.seen(s_, i);
        score_row(begin + i, k_.log_sum_exp[(b * s_.queries() + begin + i) * s_.heads + h], seen,
                  p.data + i * cols, ds.data + i * cols);
        seen.clear_others(p.data + i * cols, cols);
        seen.clear_others(ds.data + i * cols, cols);
      }
      const Matrix<const Real<T>> p_transposed{.data = p.data, .row = cols, .transposed = true};
      const Matrix<const Real<T>> ds_transposed{.data = ds.data, .row = cols, .transposed = true};
      multiply(p_transposed, d_output_.from(begin), d_value_.into(first), cols, s_.values(), rows,
               true);
      multiply(ds_transposed, query_.from(begin), d_key_.into(first), cols, s_.head_dim, rows,
               true);
      multiply({.data = ds.data, .row = cols}, key_.from(first), d_query_.into(begin), rows,
               s_.head_dim, cols);
    }
    d_query_.store(k_.d_query.at(b, h), k_.d_query.position, scale_);
  }

  /// Row `row` of the queries: scores become probabilities, d_probabilities become d_scores.
  MFSDP_VECTOR_CLONES void score_row(std::int64_t row, Real<T> log_sum_exp, const SeenColumns& seen,
                                     Real<T>* scores, Real<T>* d_probabilities) const {
    const Real<T>* const output = output_.row(row);
    const Real<T>* const d_output = d_output_.row(row);
    const auto sum =
        sum_lanes<Real<T>>(s_.values(), [=](std::int64_t d) { return d_output[d] * output[d]; });
    if (cap_ != 0) return capped_row(log_sum_exp, sum, seen, scores, d_probabilities);
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      scores[j] = exponential(scores[j] - log_sum_exp);
      d_probabilities[j] = scores[j] * (d_probabilities[j] - sum);
    }
  }
  void capped_row(Real<T> log_sum_exp, Real<T> sum, const SeenColumns& seen, Real<T>* scores,
                  Real<T>* d_probabilities) const {
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const Real<T> capped = softcapped(scores[j], cap_);
      scores[j] = exponential(capped - log_sum_exp);
      d_probabilities[j] = scores[j] * (d_probabilities[j] - sum) * softcap_slope(capped, cap_);
    }
  }

  const AttentionBackward<T>& k_;
  const AttentionShape& s_;
  const Real<T> scale_;
  const Real<T> cap_;
  HeadMatrix<T> query_, key_, value_, output_, d_output_, d_query_, d_key_, d_value_;
  std::vector<Real<T>> probabilities_;  // one block of rows
  std::vector<Real<T>> d_scores_;
};

template <class T>
void attention_backward(const AttentionBackward<T>& k) {
  AttentionBackwardRun<T>(k).run();
}

template <class T>
void sink_forward(const SinkForward<T>& k) {
  for (std::int64_t i = 0; i < k.rows * k.heads; ++i) {
    const Real<T> sink = widen(k.sinks[i % k.heads]);
    const Real<T> before = k.log_sum_exp[i];
    const Real<T> largest = std::max(sink, before);
    const Real<T> sum =
        largest + logarithm(exponential(sink - largest) + exponential(before - largest));
    const Real<T> share = exponential(before - sum);
    for (std::int64_t d = 0; d < k.head_dim; ++d) {
      T& out = k.output[i * k.head_dim + d];
      out = narrow<T>(widen(out) * share);
    }
    k.log_sum_exp[i] = sum;
  }
}

template <class T>
void sink_backward(const SinkBackward<T>& k) {
  for (std::int64_t i = 0; i < k.rows * k.heads; ++i) {
    const T* const output = k.output + i * k.head_dim;
    const T* const d_output = k.d_output + i * k.head_dim;
    const auto sum = sum_lanes<Real<T>>(
        k.head_dim, [=](std::int64_t d) { return widen(d_output[d]) * widen(output[d]); });
    const Real<T> share = exponential(widen(k.sinks[i % k.heads]) - k.log_sum_exp[i]);
    k.d_sinks[i] = narrow<T>(-share * sum);
  }
}

}  // namespace mfsdp::kernels
