// Routing to experts, the order of rows, and the GEMMs of each expert with its rows
// (core/plan/kernels/experts.hpp). The caller ensures that row indices are in range.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/plan/kernels/experts.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/exponential.hpp"
#include "verify/cpu/kernels/gemm.hpp"
#include "verify/cpu/kernels/lanes.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {

// ---- the router --------------------------------------------------------------------------------

/// Softmax of a token's logits, the largest logit, and the sum of exponentials.
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

template <class T>
Real<T> logistic(T x) {
  return 1 / (1 + exponential(-widen(x)));
}

/// Takes the largest of the remaining values; the first one if several are equal. A NaN is never
/// preferred to an earlier value.
template <class R>
std::int64_t take_largest(const std::vector<R>& scores, std::vector<bool>& left) {
  std::size_t best = scores.size();
  for (std::size_t i = 0; i < scores.size(); ++i)
    if (left[i] && (best == scores.size() || scores[i] > scores[best])) best = i;
  left[best] = false;
  return static_cast<std::int64_t>(best);
}

/// The values by which experts are chosen.
template <class T>
std::vector<Real<T>> scores_of_choice(const RouterForward<T>& k, const T* logits) {
  std::vector<Real<T>> scores;
  for (std::int64_t e = 0; e < k.sizes.experts; ++e)
    scores.push_back(k.sizes.sigmoid ? logistic(logits[e]) + widen(k.correction[e])
                                     : widen(logits[e]));
  return scores;
}

/// Experts of the chosen groups; all experts if there are no groups.
template <class R>
std::vector<bool> experts_of_groups(const RoutingSizes& s, const std::vector<R>& scores) {
  std::vector<bool> left(scores.size(), s.groups == 0);
  if (s.groups == 0) return left;
  const auto size = static_cast<std::ptrdiff_t>(s.experts / s.groups);
  std::vector<R> of_groups;
  for (std::ptrdiff_t g = 0; g < s.groups; ++g) {
    const std::vector<R> of_group(scores.begin() + g * size, scores.begin() + (g + 1) * size);
    std::vector<bool> unseen(of_group.size(), true);
    R score = of_group[static_cast<std::size_t>(take_largest(of_group, unseen))];
    if (s.sigmoid) score += of_group[static_cast<std::size_t>(take_largest(of_group, unseen))];
    of_groups.push_back(score);
  }
  std::vector<bool> unseen(of_groups.size(), true);
  for (std::int64_t i = 0; i < s.chosen_groups; ++i) {
    const std::int64_t group = take_largest(of_groups, unseen);
    std::fill_n(left.begin() + group * size, size, true);
  }
  return left;
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
    if (s.sigmoid)
      std::transform(logits, logits + s.experts, probabilities.begin(), logistic<T>);
    else
      (void)softmax(s.experts, logits, probabilities.data());
    const std::vector<R> scores = scores_of_choice(k, logits);
    std::vector<bool> left = experts_of_groups(s, scores);
    R sum = 0;
    for (std::int64_t i = 0; i < s.top_k; ++i) {
      chosen[i] = static_cast<std::int32_t>(take_largest(scores, left));
      weights[i] = probabilities[static_cast<std::size_t>(chosen[i])];
      sum += weights[i];
      if (k.counts != nullptr) ++k.counts[t / s.seq * s.experts + chosen[i]];
    }
    for (std::int64_t i = 0; i < s.top_k; ++i) {
      if (s.normalised) weights[i] /= sum;
      weights[i] *= static_cast<R>(s.scale);
    }
  }
}

/// The gradient through the weights of the chosen experts and the softmax, plus that of the two
/// losses.
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
    const T* const logits = k.logits + t * s.experts;
    Softmax<R> of;
    if (s.sigmoid)
      std::transform(logits, logits + s.experts, p.begin(), logistic<T>);
    else
      of = softmax(s.experts, logits, p.data());
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
      dp[static_cast<std::size_t>(chosen[i])] =
          (d_weights[i] - dot) * static_cast<R>(s.scale) / sum;
    if (s.sigmoid) {
      for (std::int64_t e = 0; e < s.experts; ++e) {
        const auto i = static_cast<std::size_t>(e);
        k.d_logits[t * s.experts + e] = narrow<T>(dp[i] * p[i] * (1 - p[i]));
      }
      continue;
    }
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

/// The caller ensures that blocks are large enough for their rows.
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

/// The caller ensures that blocks are large enough for their rows.
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

// ---- GEMMs -------------------------------------------------------------------------------------

/// Calls visit(expert, first row, rows) for each.
void for_each_expert(const std::int32_t* ends, std::int64_t experts, const auto& visit) {
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    visit(e, begin, ends[e] - begin);
    begin = ends[e];
  }
}

/// The GEMM of one expert, as that of a linear layer.
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

// ---- biases ------------------------------------------------------------------------------------

template <class T>
void expert_bias_forward(const ExpertBiasForward<T>& k) {
  for_each_expert(k.ends, k.experts, [&](auto expert, auto begin, auto rows) {
    const T* const bias = k.bias + expert * k.cols;
    for (std::int64_t r = begin; r < begin + rows; ++r) {
      const Real<T> weight = k.row_weights == nullptr ? Real<T>(1) : k.row_weights[r];
      for (std::int64_t c = 0; c < k.cols; ++c) {
        T& out = k.output[r * k.cols + c];
        out = narrow<T>(widen(out) + widen(bias[c]) * weight);
      }
    }
  });
}

template <class T>
void expert_bias_dots(const ExpertBiasDots<T>& k) {
  for_each_expert(k.ends, k.experts, [&](auto expert, auto begin, auto rows) {
    const T* const bias = k.bias + expert * k.cols;
    for (std::int64_t r = begin; r < begin + rows; ++r) {
      const T* const row = k.d_output + r * k.cols;
      k.d_row_weights[r] += sum_lanes<Real<T>>(
          k.cols, [=](std::int64_t c) { return widen(row[c]) * widen(bias[c]); });
    }
  });
}

/// `sums`: null without --exact-sums; else each row is rounded before it is added.
template <class T, class G>
void expert_bias_gradient(const ExpertBiasGradient<T, G>& k, GridSums<Real<T>>* sums) {
  std::vector<Real<T>> sum(static_cast<std::size_t>(k.cols));
  for_each_expert(k.ends, k.experts, [&](auto expert, auto begin, auto rows) {
    G* const out = k.bias_grad + expert * k.cols;
    if (!k.adds && (sums != nullptr || rows == 0)) std::fill_n(out, k.cols, narrow<G>(0));
    std::ranges::fill(sum, Real<T>(0));
    for (std::int64_t r = begin; r < begin + rows; ++r) {
      const Real<T> weight = k.row_weights == nullptr ? Real<T>(1) : k.row_weights[r];
      const T* const row = k.d_output + r * k.cols;
      for (std::size_t c = 0; c < sum.size(); ++c)
        sum[c] = (sums == nullptr ? sum[c] : Real<T>(0)) + widen(row[c]) * weight;
      if (sums != nullptr) sums->add(std::span<const Real<T>>(sum), true, out);
    }
    if (sums == nullptr && rows > 0) accumulate(k.cols, sum.data(), k.adds, out);
  });
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

/// `activated` is gate * sigmoid(gate), or with clamping gate * sigmoid(alpha * gate); `factor` is
/// up, or with clamping up + 1.
template <class T>
struct WeightedGate {
  using R = Real<T>;
  R sigmoid = 0;
  R activated = 0;
  R slope = 0;  ///< derivative of `activated` by gate
  R factor = 0;
  R product = 0;   ///< without the weight of the row
  R up_moves = 1;  ///< 0: up is beyond the limit

  WeightedGate(T gate_number, T up_number, const SwigluClamp<R>& clamp) {
    R gate = widen(gate_number);
    factor = widen(up_number);
    R gate_moves = 1;
    if (clamp.limit != 0) {
      gate_moves = gate > clamp.limit ? R(0) : R(1);
      up_moves = std::fabs(factor) > clamp.limit ? R(0) : R(1);
      gate = std::min(gate, clamp.limit);
      factor = std::clamp(factor, -clamp.limit, clamp.limit) + 1;
    }
    sigmoid = 1 / (1 + exponential(-clamp.alpha * gate));
    activated = gate * sigmoid;
    slope = gate_moves * (sigmoid + clamp.alpha * activated * (1 - sigmoid));
    product = activated * factor;
  }
};

/// Layout of a row of gates and ups: element c is at gate + c * step and at up + c * step.
struct GateColumns {
  std::int64_t up;
  std::int64_t step;

  GateColumns(bool interleaved, std::int64_t cols)
      : up(interleaved ? 1 : cols), step(interleaved ? 2 : 1) {}
};

/// `rows`: those of experts.
template <class T>
void weighted_swiglu_forward(const WeightedSwigluForward<T>& k, std::int64_t rows) {
  const GateColumns at(k.interleaved, k.cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* gates = k.gate_up + r * 2 * k.cols;
    for (std::int64_t c = 0; c < k.cols; ++c)
      k.product[r * k.cols + c] = narrow<T>(
          WeightedGate<T>(gates[c * at.step], gates[at.up + c * at.step], k.clamp).product *
          (k.row_weights == nullptr ? 1 : k.row_weights[r]));
  }
}

template <class T>
void weighted_swiglu_backward(const WeightedSwigluBackward<T>& k, std::int64_t rows) {
  using R = Real<T>;
  std::vector<R> shares(static_cast<std::size_t>(k.cols));
  const GateColumns at(k.interleaved, k.cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    T* gates = k.gate_up + r * 2 * k.cols;
    T* ups = gates + at.up;
    const R weight = k.row_weights == nullptr ? R(1) : k.row_weights[r];
    for (std::int64_t c = 0; c < k.cols; ++c) {
      T& gate = gates[c * at.step];
      T& up = ups[c * at.step];
      const WeightedGate<T> of(gate, up, k.clamp);
      const R d = widen(k.d_product[r * k.cols + c]);
      shares[static_cast<std::size_t>(c)] = d * of.product;
      gate = narrow<T>(d * weight * of.factor * of.slope);
      up = narrow<T>(d * weight * of.activated * of.up_moves);
      if (k.product != nullptr) k.product[r * k.cols + c] = narrow<T>(of.product * weight);
    }
    if (k.d_row_weights == nullptr) continue;
    k.d_row_weights[r] =
        sum_lanes<R>(k.cols, [&](std::int64_t c) { return shares[static_cast<std::size_t>(c)]; });
  }
}

}  // namespace mfsdp::kernels
