// What the kernels of experts take (core/plan/kernel_spec.cpp, expert_specs). Rows of experts stand
// one expert after the other; where each one's end lies in device memory, `ends`: no host reads it.
//
//   tokens ─router─► indices, weights ─order─► ends, order, places
//   rows of tokens ─permute, by order─► rows of experts ─products─► ─combine, by places─► tokens
#pragma once

#include <cstdint>
#include <span>

#include "core/plan/loss_scale.hpp"
#include "core/runtime/calls/pieces.hpp"
#include "core/runtime/scalar.hpp"

namespace mfsdp::kernels {

struct RoutingSizes {
  std::int64_t tokens = 0;
  std::int64_t experts = 0;
  std::int64_t top_k = 0;   ///< experts of a token
  std::int64_t seq = 0;     ///< tokens of a sequence; 0 where nothing is counted by sequences
  bool normalised = false;  ///< the weights of a token's experts sum to 1
  /// Weights are sigmoids of logits, and experts are chosen by these and a correction of each. Else
  /// weights are softmax's, and experts are chosen by logits.
  bool sigmoid = false;
  std::int64_t groups = 0;         ///< of experts, equally large; 0: none
  std::int64_t chosen_groups = 0;  ///< of a token, by their best expert or, of sigmoids, best two
  double scale = 1;                ///< of weights, at last
};

/// The experts with the largest logits, the lower of two that are equal, the largest first; their
/// weights are softmax(logits), of all experts or, normalised, divided by the sum of the chosen.
/// Those outside of the chosen groups are none of a token's.
template <class T>
struct RouterForward {
  RoutingSizes sizes = {};
  const T* logits = nullptr;        ///< [tokens, experts]
  const T* correction = nullptr;    ///< [experts], of sigmoids; null else
  std::int32_t* indices = nullptr;  ///< [tokens, top_k]
  Real<T>* weights = nullptr;       ///< [tokens, top_k]
  std::int32_t* counts = nullptr;   ///< [tokens / seq, experts]; null where not wanted
};

/// Of the weights, and of two losses, which are summed over tokens as the model's loss is:
///   balance, of a sequence:  aux_loss * experts * sum over e of counts[e] / (seq * top_k) * sum
///                            over its tokens of softmax(logits)[e]
///   z:                       z_loss * sum over tokens of log(sum of exp(logits))^2
template <class T>
struct RouterBackward {
  RoutingSizes sizes = {};
  const T* logits = nullptr;
  const std::int32_t* indices = nullptr;
  const Real<T>* d_weights = nullptr;          ///< [tokens, top_k]
  const std::int32_t* counts = nullptr;        ///< null: no balance loss
  const LossScaleState* loss_scale = nullptr;  ///< null: 1
  Real<T> aux_loss = 0;
  Real<T> z_loss = 0;
  T* d_logits = nullptr;
};

/// Stable: rows of an expert in the order of tokens.
struct ExpertOrder {
  RoutingSizes sizes = {};
  const std::int32_t* indices = nullptr;  ///< [tokens, top_k]
  std::int32_t* ends = nullptr;           ///< [experts]: where each expert's rows end
  std::int32_t* order = nullptr;          ///< [tokens * top_k]: of each row, token * top_k + k
  std::int32_t* places = nullptr;         ///< [tokens, top_k]: the row of each
  std::span<std::byte> workspace = {};    ///< scratch
};

/// Rows in the order of experts -> rows in blocks of m / peers, one for each rank that has
/// experts / peers of the experts, each block's in the order that they had.
struct PeerOrder {
  RoutingSizes sizes = {};
  std::int64_t m = 0;                       ///< rows of all blocks
  std::int64_t peers = 0;                   ///< ranks
  const std::int32_t* ends = nullptr;       ///< [experts], as of ExpertOrder
  const std::int32_t* row_order = nullptr;  ///< [tokens * top_k]
  std::int32_t* counts = nullptr;           ///< [experts]: rows of each
  std::int32_t* order = nullptr;   ///< [m]: of each row, token * top_k + k; -1 where there is none
  std::int32_t* places = nullptr;  ///< [tokens, top_k]: the row of each
};

/// Rows in blocks of m / peers, as ranks have sent them, each block's by expert -> rows by expert,
/// those of an expert in the order of ranks.
struct ArrivalOrder {
  std::int64_t experts = 0;
  std::int64_t m = 0;
  std::int64_t peers = 0;
  const std::int32_t* counts = nullptr;  ///< [peers, experts]: rows in each rank's block
  std::int32_t* ends = nullptr;          ///< [experts]: where each expert's rows end
  std::int32_t* order = nullptr;   ///< [m]: of each row by expert, the one in blocks; -1: none
  std::int32_t* places = nullptr;  ///< [m]: of each row in blocks, the one by expert; -1: none
};

/// output[j] = input[order[j] / top_k]; likewise weights, one of each row. Where order[j] is -1
/// there is no row j: it stays as it was.
template <class T>
struct PermuteRows {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;  ///< of the output: tokens * top_k, or more
  std::int64_t cols = 0;
  std::int64_t top_k = 0;
  const T* input = nullptr;             ///< [tokens, cols]
  const std::int32_t* order = nullptr;  ///< [rows]
  const Real<T>* weights = nullptr;     ///< [tokens, top_k]; null, as the next then is
  Real<T>* row_weights = nullptr;       ///< [rows]
  T* output = nullptr;                  ///< [rows, cols]
};

/// output[t] = (output[t] +) input[places[t, 0]] + input[places[t, 1]] + ..., in this order.
template <class T>
struct CombineRows {
  std::int64_t tokens = 0;
  std::int64_t rows = 0;  ///< of the input: tokens * top_k, or more
  std::int64_t cols = 0;
  std::int64_t top_k = 0;
  bool adds = false;
  const T* input = nullptr;              ///< [rows, cols]
  const std::int32_t* places = nullptr;  ///< [tokens, top_k]
  const Real<T>* row_weights = nullptr;  ///< [rows]; null, as the next then is
  Real<T>* weights = nullptr;            ///< [tokens, top_k]
  T* output = nullptr;                   ///< [tokens, cols]
};

struct GroupedSizes {
  std::int64_t experts = 0;
  std::int64_t m = 0;  ///< rows there is room for; those of experts end at ends[experts - 1]
  std::int64_t n = 0;  ///< output features
  std::int64_t k = 0;  ///< input features
};

/// Of expert e with its rows: output = input * weight[e]^T, or d_input = d_output * weight[e]
/// (`gradient`). A row's bits are its own: they depend on no other row.
template <class T>
struct GroupedProduct {
  GroupedSizes sizes = {};
  bool gradient = false;
  const T* input = nullptr;            ///< [m, k], or d_output [m, n]
  const T* weight = nullptr;           ///< [experts * n, k]
  const std::int32_t* ends = nullptr;  ///< [experts]
  T* output = nullptr;                 ///< [m, n], or d_input [m, k]
  std::span<std::byte> workspace = {};
};

/// weight_grad[e] = (weight_grad[e] +) d_output^T * input over the rows of expert e.
template <class T, class G>
struct GroupedWeightGradient {
  GroupedSizes sizes = {};
  const T* d_output = nullptr;         ///< [m, n]
  const T* input = nullptr;            ///< [m, k]
  const std::int32_t* ends = nullptr;  ///< [experts]
  bool adds = false;
  G* weight_grad = nullptr;  ///< [experts * n, k]
  std::span<std::byte> workspace = {};
  Pieces pieces = {};  ///< a row each
};

/// output = 1 / (1 + exp(-input)), one number a row.
template <class T>
struct SigmoidForward {
  std::int64_t rows = 0;
  const T* input = nullptr;   ///< [rows, 1]
  Real<T>* output = nullptr;  ///< [rows]
};

/// d_input = d_output * output * (1 - output).
template <class T>
struct SigmoidBackward {
  std::int64_t rows = 0;
  const Real<T>* output = nullptr;    ///< [rows]
  const Real<T>* d_output = nullptr;  ///< [rows]
  T* d_input = nullptr;               ///< [rows, 1]
};

/// output += bias of the row's expert, times the row's weight.
template <class T>
struct ExpertBiasForward {
  std::int64_t rows = 0;  ///< as GroupedSizes::m
  std::int64_t cols = 0;
  std::int64_t experts = 0;
  T* output = nullptr;                   ///< [rows, cols]
  const T* bias = nullptr;               ///< [experts * cols]
  const std::int32_t* ends = nullptr;    ///< [experts]
  const Real<T>* row_weights = nullptr;  ///< [rows]; null: 1
};

/// d_row_weights += d_output * bias of the row's expert, summed over columns.
template <class T>
struct ExpertBiasDots {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t experts = 0;
  const T* d_output = nullptr;         ///< [rows, cols]
  const T* bias = nullptr;             ///< [experts * cols]
  const std::int32_t* ends = nullptr;  ///< [experts]
  Real<T>* d_row_weights = nullptr;    ///< [rows]
};

/// bias_grad[e] = (bias_grad[e] +) the sum of d_output, times the row's weight, over its rows.
template <class T, class G>
struct ExpertBiasGradient {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t experts = 0;
  const T* d_output = nullptr;           ///< [rows, cols]
  const std::int32_t* ends = nullptr;    ///< [experts]
  const Real<T>* row_weights = nullptr;  ///< [rows]; null: 1
  bool adds = false;
  G* bias_grad = nullptr;  ///< [experts * cols]
  Pieces pieces = {};      ///< a row each
};

/// GPT-OSS's: of gate, at most `limit`, and up, between -limit and limit, (up + 1) * gate *
/// sigmoid(alpha * gate). Beyond the limit gradients are 0. limit 0: SwiGLU.
template <class R>
struct SwigluClamp {
  R alpha = 1;
  R limit = 0;
};

/// product = silu(gate) * up * weight of the row.
template <class T>
struct WeightedSwigluForward {
  std::int64_t rows = 0;  ///< as GroupedSizes::m
  std::int64_t cols = 0;
  std::int64_t experts = 0;
  const T* gate_up = nullptr;            ///< [rows, 2 cols], gates first
  const Real<T>* row_weights = nullptr;  ///< [rows]; null: 1
  const std::int32_t* ends = nullptr;    ///< [experts]; null: all rows are there
  T* product = nullptr;                  ///< [rows, cols]
  bool interleaved = false;              ///< gate and up in turn
  SwigluClamp<Real<T>> clamp = {};
};

/// Overwrites gate_up with its gradient.
template <class T>
struct WeightedSwigluBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t experts = 0;
  T* gate_up = nullptr;
  const Real<T>* row_weights = nullptr;
  const std::int32_t* ends = nullptr;
  const T* d_product = nullptr;      ///< [rows, cols]
  T* product = nullptr;              ///< made again over d_product; null where not wanted
  Real<T>* d_row_weights = nullptr;  ///< [rows]; null as row_weights is
  bool interleaved = false;
  SwigluClamp<Real<T>> clamp = {};
};

}  // namespace mfsdp::kernels
