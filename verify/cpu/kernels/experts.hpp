// Routing to experts, rows in their order, and the products of each expert with its rows
// (core/runtime/calls/experts.hpp). Whoever calls these has seen to it that places lie inside.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/runtime/calls/experts.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/exponential.hpp"
#include "verify/cpu/kernels/gemm.hpp"
#include "verify/cpu/kernels/lanes.hpp"

namespace mfsdp::kernels {

// ---- the router --------------------------------------------------------------------------------

/// Softmax of a token's logits; the largest, and the sum of exponentials behind it.
template <class R>
struct Softmax {
  R largest = 0;
  R sum = 0;
};

template <class T>
Softmax<Real<T>> softmax(std::int64_t count, const T* logits, Real<T>* out) {
  using R = Real<T>;
  Softmax<R> made;
  made.largest = max_lanes<R>(count, [logits](std::int64_t e) { return widen(logits[e]); });
  for (std::int64_t e = 0; e < count; ++e) out[e] = exponential(widen(logits[e]) - made.largest);
  made.sum = sum_lanes<R>(count, [out](std::int64_t e) { return out[e]; });
  for (std::int64_t e = 0; e < count; ++e) out[e] /= made.sum;
  return made;
}

/// The expert with the largest logit of those that are not among the first `k` of `chosen`; of
/// equal ones the lowest. What is not a number never comes before a lower expert.
template <class T>
std::int32_t next_expert(std::int64_t experts, const T* logits, const std::int32_t* chosen,
                         std::int64_t k) {
  std::int64_t best = -1;
  for (std::int64_t e = 0; e < experts; ++e) {
    if (std::find(chosen, chosen + k, static_cast<std::int32_t>(e)) != chosen + k) continue;
    if (best < 0 || widen(logits[e]) > widen(logits[best])) best = e;
  }
  return static_cast<std::int32_t>(best);
}

template <class T>
void router_forward(const RouterForward<T>& k) {
  using R = Real<T>;
  const RoutingSizes& s = k.sizes;
  std::vector<R> probabilities(static_cast<std::size_t>(s.experts));
  if (k.counts != nullptr) std::fill_n(k.counts, s.tokens / s.seq * s.experts, 0);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const T* logits = k.logits + t * s.experts;
    std::int32_t* chosen = k.indices + t * s.top_k;
    R* weights = k.weights + t * s.top_k;
    (void)softmax(s.experts, logits, probabilities.data());
    R sum = 0;
    for (std::int64_t i = 0; i < s.top_k; ++i) {
      chosen[i] = next_expert(s.experts, logits, chosen, i);
      weights[i] = probabilities[static_cast<std::size_t>(chosen[i])];
      sum += weights[i];
      if (k.counts != nullptr) ++k.counts[t / s.seq * s.experts + chosen[i]];
    }
    if (!s.normalised) continue;
    for (std::int64_t i = 0; i < s.top_k; ++i) weights[i] /= sum;
  }
}

/// Through the weights of the chosen, softmax, and what the two losses add.
template <class T>
void router_backward(const RouterBackward<T>& k) {
  using R = Real<T>;
  const RoutingSizes& s = k.sizes;
  const auto scale = k.loss_scale == nullptr ? R(1) : static_cast<R>(k.loss_scale->scale);
  std::vector<R> p(static_cast<std::size_t>(s.experts));
  std::vector<R> dp(p.size());
  const R balance = k.counts == nullptr ? R(0)
                                        : scale * k.aux_loss * static_cast<R>(s.experts) /
                                              static_cast<R>(s.seq * s.top_k);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const Softmax<R> of = softmax(s.experts, k.logits + t * s.experts, p.data());
    const std::int32_t* chosen = k.indices + t * s.top_k;
    const R* d_weights = k.d_weights + t * s.top_k;
    std::ranges::fill(dp, R(0));
    R sum = 1;
    R dot = 0;
    if (s.normalised) {
      sum = 0;
      for (std::int64_t i = 0; i < s.top_k; ++i) sum += p[static_cast<std::size_t>(chosen[i])];
      for (std::int64_t i = 0; i < s.top_k; ++i)
        dot += d_weights[i] * (p[static_cast<std::size_t>(chosen[i])] / sum);
    }
    for (std::int64_t i = 0; i < s.top_k; ++i)
      dp[static_cast<std::size_t>(chosen[i])] = (d_weights[i] - dot) / sum;
    if (k.counts != nullptr) {
      const std::int32_t* of_sequence = k.counts + t / s.seq * s.experts;
      for (std::int64_t e = 0; e < s.experts; ++e)
        dp[static_cast<std::size_t>(e)] += balance * static_cast<R>(of_sequence[e]);
    }
    const R mean = sum_lanes<R>(s.experts, [&](std::int64_t e) {
      return dp[static_cast<std::size_t>(e)] * p[static_cast<std::size_t>(e)];
    });
    const R z = scale * 2 * k.z_loss * (of.largest + logarithm(of.sum));
    for (std::int64_t e = 0; e < s.experts; ++e) {
      const auto i = static_cast<std::size_t>(e);
      k.d_logits[t * s.experts + e] = narrow<T>(p[i] * (dp[i] - mean + z));
    }
  }
}

// ---- rows in the order of experts --------------------------------------------------------------

inline void expert_order(const ExpertOrder& k) {
  const RoutingSizes& s = k.sizes;
  const std::int64_t rows = s.tokens * s.top_k;
  std::fill_n(k.ends, s.experts, 0);
  for (std::int64_t i = 0; i < rows; ++i) ++k.ends[k.indices[i]];
  std::vector<std::int32_t> next(static_cast<std::size_t>(s.experts));
  std::int32_t end = 0;
  for (std::int64_t e = 0; e < s.experts; ++e) {
    next[static_cast<std::size_t>(e)] = end;
    end += k.ends[e];
    k.ends[e] = end;
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int32_t place = next[static_cast<std::size_t>(k.indices[i])]++;
    k.places[i] = place;
    k.order[place] = static_cast<std::int32_t>(i);
  }
}

/// Blocks are large enough for their rows: whoever calls this has seen to it.
inline void peer_order(const PeerOrder& k) {
  const RoutingSizes& s = k.sizes;
  const std::int64_t block = k.m / k.peers;
  const std::int64_t of_peer = s.experts / k.peers;
  std::fill_n(k.order, k.m, -1);
  std::int32_t begin = 0;  // of a peer's rows, by expert
  for (std::int64_t peer = 0; peer < k.peers; ++peer) {
    const std::int32_t end = k.ends[(peer + 1) * of_peer - 1];
    for (std::int32_t row = begin; row < end; ++row) {
      const std::int64_t placed = peer * block + row - begin;
      k.order[placed] = k.row_order[row];
      k.places[k.row_order[row]] = static_cast<std::int32_t>(placed);
    }
    begin = end;
  }
  for (std::int64_t e = 0; e < s.experts; ++e)
    k.counts[e] = k.ends[e] - (e == 0 ? 0 : k.ends[e - 1]);
}

/// Likewise.
inline void arrival_order(const ArrivalOrder& k) {
  const std::int64_t block = k.m / k.peers;
  std::fill_n(k.order, k.m, -1);
  std::fill_n(k.places, k.m, -1);
  std::vector<std::int64_t> next(static_cast<std::size_t>(k.peers));  // row of a block
  for (std::int64_t p = 0; p < k.peers; ++p) next[static_cast<std::size_t>(p)] = p * block;
  std::int32_t placed = 0;
  for (std::int64_t e = 0; e < k.experts; ++e) {
    for (std::int64_t p = 0; p < k.peers; ++p)
      for (std::int32_t i = 0; i < k.counts[p * k.experts + e]; ++i) {
        const std::int64_t row = next[static_cast<std::size_t>(p)]++;
        k.order[placed] = static_cast<std::int32_t>(row);
        k.places[row] = placed++;
      }
    k.ends[e] = placed;
  }
}

template <class T>
void permute_rows(const PermuteRows<T>& k) {
  for (std::int64_t j = 0; j < k.rows; ++j) {
    const std::int64_t from = k.order[j];
    if (from < 0) continue;
    std::copy_n(k.input + from / k.top_k * k.cols, k.cols, k.output + j * k.cols);
    if (k.weights != nullptr) k.row_weights[j] = k.weights[from];
  }
}

template <class T>
void combine_rows(const CombineRows<T>& k) {
  for (std::int64_t t = 0; t < k.tokens; ++t) {
    const std::int32_t* places = k.places + t * k.top_k;
    for (std::int64_t c = 0; c < k.cols; ++c) {
      T& out = k.output[t * k.cols + c];
      Real<T> sum = k.adds ? widen(out) : Real<T>(0);
      for (std::int64_t i = 0; i < k.top_k; ++i) sum += widen(k.input[places[i] * k.cols + c]);
      out = narrow<T>(sum);
    }
    if (k.weights == nullptr) continue;
    for (std::int64_t i = 0; i < k.top_k; ++i)
      k.weights[t * k.top_k + i] = k.row_weights[places[i]];
  }
}

// ---- products ----------------------------------------------------------------------------------

/// Calls visit(expert, first row, rows) for each.
template <class Visit>
void for_each_expert(const std::int32_t* ends, std::int64_t experts, const Visit& visit) {
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    visit(e, begin, ends[e] - begin);
    begin = ends[e];
  }
}

/// The product of one expert, as a layer of its own.
template <class T>
Gemm<T, T> product_of_expert(const GroupedProduct<T>& p, std::int64_t expert, std::int64_t begin,
                             std::int64_t rows) {
  const GroupedSizes& s = p.sizes;
  const std::int64_t inner = p.gradient ? s.n : s.k;
  const std::int64_t cols = p.gradient ? s.k : s.n;
  return {.rows = rows,
          .cols = cols,
          .inner = inner,
          .a = {.data = p.input + begin * inner, .row = inner},
          .b = {.data = p.weight + expert * s.n * s.k, .row = s.k, .transposed = !p.gradient},
          .c = p.output + begin * cols,
          .workspace = p.workspace};
}

template <class T, class G>
Gemm<T, G> product_of_expert(const GroupedWeightGradient<T, G>& p, std::int64_t expert,
                             std::int64_t begin, std::int64_t rows) {
  const GroupedSizes& s = p.sizes;
  return {.rows = s.n,
          .cols = s.k,
          .inner = rows,
          .a = {.data = p.d_output + begin * s.n, .row = s.n, .transposed = true},
          .b = {.data = p.input + begin * s.k, .row = s.k},
          .c = p.weight_grad + expert * s.n * s.k,
          .adds = p.adds,
          .workspace = p.workspace,
          .pieces = p.pieces};
}

// ---- the activation ----------------------------------------------------------------------------

template <class T>
void sigmoid_forward(const SigmoidForward<T>& k) {
  for (std::int64_t i = 0; i < k.rows; ++i) k.output[i] = 1 / (1 + exponential(-widen(k.input[i])));
}

template <class T>
void sigmoid_backward(const SigmoidBackward<T>& k) {
  for (std::int64_t i = 0; i < k.rows; ++i)
    k.d_input[i] = narrow<T>(k.d_output[i] * k.output[i] * (1 - k.output[i]));
}

template <class T>
struct WeightedGate {
  Real<T> sigmoid = 0;
  Real<T> activated = 0;
  Real<T> product = 0;  ///< without the row's weight

  WeightedGate(T gate, T up)
      : sigmoid(1 / (1 + exponential(-widen(gate)))),
        activated(widen(gate) * sigmoid),
        product(activated * widen(up)) {}
};

/// `rows`: those of experts.
template <class T>
void weighted_swiglu_forward(const WeightedSwigluForward<T>& k, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* gates = k.gate_up + r * 2 * k.cols;
    for (std::int64_t c = 0; c < k.cols; ++c)
      k.product[r * k.cols + c] =
          narrow<T>(WeightedGate<T>(gates[c], gates[k.cols + c]).product * k.row_weights[r]);
  }
}

template <class T>
void weighted_swiglu_backward(const WeightedSwigluBackward<T>& k, std::int64_t rows) {
  using R = Real<T>;
  std::vector<R> shares(static_cast<std::size_t>(k.cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    T* gates = k.gate_up + r * 2 * k.cols;
    T* ups = gates + k.cols;
    const R weight = k.row_weights[r];
    for (std::int64_t c = 0; c < k.cols; ++c) {
      const WeightedGate<T> of(gates[c], ups[c]);
      const R d = widen(k.d_product[r * k.cols + c]);
      const R slope = of.sigmoid + of.activated * (1 - of.sigmoid);
      shares[static_cast<std::size_t>(c)] = d * of.product;
      gates[c] = narrow<T>(d * weight * widen(ups[c]) * slope);
      ups[c] = narrow<T>(d * weight * of.activated);
      if (k.product != nullptr) k.product[r * k.cols + c] = narrow<T>(of.product * weight);
    }
    k.d_row_weights[r] =
        sum_lanes<R>(k.cols, [&](std::int64_t c) { return shares[static_cast<std::size_t>(c)]; });
  }
}

}  // namespace mfsdp::kernels
