// Kernels of experts: routing, the order of rows, and GEMMs of each expert with its rows. There are
// `m` rows in the order of experts; `ends` holds the end of each expert's rows. It is in device
// memory, and the host never reads it. Rows after the last end belong to no expert: no kernel reads
// or writes them.
//
//   tokens ─router─► indices, weights ─order─► ends, order, places
//   rows of tokens ─permute, by order─► rows of experts ──GEMMs──► ─combine, by places─► tokens
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "core/plan/kernel_costs.hpp"
#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/element_types.hpp"
#include "core/plan/kernels/pieces.hpp"
#include "core/plan/loss_scale.hpp"

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

  void state(auto& op) {
    op.attribute("experts", experts);
    op.attribute("rows", tokens);
    op.attribute("top_k", top_k);
    op.expect(top_k >= 1 && top_k <= experts, "indices", "expected from 1 to ", experts,
              " experts a token, got ", top_k);
    op.expect(top_k < 1 || tokens <= std::numeric_limits<std::int32_t>::max() / top_k, "indices",
              "expected fewer than 2^31 rows");
  }
  /// How weights follow from logits.
  void state_weights(auto& op) {
    op.attribute_if_any("normalised", normalised);
    op.attribute_if_any("scale", scale);
    op.attribute_if_any("seq", seq);
    op.attribute_if_any("sigmoid", sigmoid);
  }
  void state_groups(auto& op) {
    op.attribute_if_any("chosen_groups", chosen_groups);
    op.attribute_if_any("groups", groups);
    op.expect(groups == 0 || groups_fit(), "indices", "expected ", groups, " groups of ", experts,
              " experts, ", chosen_groups, " of them a token's");
  }
  /// Counts of whole sequences.
  void state_counts(auto& op, const std::int32_t* counts) {
    op.expect(counts == nullptr || (seq > 0 && tokens % seq == 0), "counts",
              "expected whole sequences, got ", tokens, " tokens in ones of ", seq);
    std::int64_t sequences = 0;
    op.dim("sequences", sequences);
    op.expect(counts == nullptr || sequences * seq == tokens, "counts",
              "expected a row for each sequence of ", seq, " tokens, got ", sequences);
  }

  [[nodiscard]] constexpr bool groups_fit() const {
    return groups >= 1 && experts % groups == 0 && chosen_groups >= 1 && chosen_groups <= groups &&
           experts / groups * chosen_groups >= top_k && (!sigmoid || experts / groups >= 2);
  }
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

  void state(auto& op) {
    sizes.state(op);
    sizes.state_weights(op);
    sizes.state_groups(op);
    op.reads("logits", logits, {"rows", "experts"});
    op.reads("weight", correction, {"experts"}, {.optional = true});
    op.writes("indices", indices, {"rows", "top_k"});
    op.writes("weights", weights, {"rows", "top_k"});
    op.writes("counts", counts, {"sequences", "experts"}, {.optional = true});
    sizes.state_counts(op, counts);
    op.expect(sizes.sigmoid == (correction != nullptr), "weight",
              "expected a correction of each expert with sigmoids, and none without");
  }
};

/// Gradients of the weights and of two losses, which are summed over tokens as the model's loss is:
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

  void state(auto& op) {
    sizes.state(op);
    sizes.state_weights(op);
    op.attribute_if_any("aux_loss", aux_loss);
    op.attribute_if_any("z_loss", z_loss);
    op.reads("logits", logits, {"rows", "experts"});
    op.reads("indices", indices, {"rows", "top_k"});
    op.reads("d_weights", d_weights, {"rows", "top_k"});
    op.reads("counts", counts, {"sequences", "experts"}, {.optional = true});
    op.reads("loss_scale", loss_scale, {4}, {.optional = true, .element = Element::fp32});
    op.writes("d_logits", d_logits, {"rows", "experts"});
    sizes.state_counts(op, counts);
    op.expect(aux_loss == 0 || counts != nullptr, "counts",
              "expected this operand, as the balance loss needs it");
  }
};

/// Stable: rows of an expert in the order of tokens.
struct ExpertOrder {
  RoutingSizes sizes = {};
  const std::int32_t* indices = nullptr;  ///< [tokens, top_k]
  std::int32_t* ends = nullptr;           ///< [experts]: where each expert's rows end
  std::int32_t* order = nullptr;          ///< [tokens * top_k]: of each row, token * top_k + k
  std::int32_t* places = nullptr;         ///< [tokens, top_k]: the row of each
  std::span<std::byte> workspace = {};    ///< scratch

  void state(auto& op) {
    sizes.state(op);
    op.reads("indices", indices, {"rows", "top_k"});
    op.writes("ends", ends, {"experts"});
    op.writes("order", order, {{"rows", "top_k"}});
    op.writes("places", places, {"rows", "top_k"});
    op.workspace(workspace, costs::order_workspace);
  }
};

/// Rows in blocks of equal numbers, one for each rank.
void state_blocks(auto& op, std::int64_t m, std::int64_t peers) {
  op.expect(peers >= 1 && m % peers == 0, "order", "expected ", m, " rows in equal blocks of ",
            peers, " ranks");
}

/// Rows in the order of experts -> rows in blocks of m / peers, one block for each rank. A rank has
/// experts / peers of the experts. The order within a block does not change.
struct PeerOrder {
  RoutingSizes sizes = {};
  std::int64_t m = 0;                       ///< rows of all blocks
  std::int64_t peers = 0;                   ///< ranks
  const std::int32_t* ends = nullptr;       ///< [experts], as of ExpertOrder
  const std::int32_t* row_order = nullptr;  ///< [tokens * top_k]
  std::int32_t* counts = nullptr;           ///< [experts]: rows of each
  std::int32_t* order = nullptr;   ///< [m]: of each row, token * top_k + k; -1 where there is none
  std::int32_t* places = nullptr;  ///< [tokens, top_k]: the row of each

  void state(auto& op) {
    sizes.state(op);
    op.attribute("m", m);
    op.attribute("peers", peers);
    op.reads("ends", ends, {"experts"});
    op.reads("row_order", row_order, {{"rows", "top_k"}});
    op.writes("counts", counts, {"experts"});
    op.writes("order", order, {"m"});
    op.writes("places", places, {"rows", "top_k"});
    state_blocks(op, m, peers);
    op.expect(peers < 1 || sizes.experts % peers == 0, "ends", "expected ", sizes.experts,
              " experts in equal numbers on ", peers, " ranks");
  }
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

  void state(auto& op) {
    op.attribute("experts", experts);
    op.attribute("m", m);
    op.attribute("peers", peers);
    op.reads("counts", counts, {"peers", "experts"});
    op.writes("ends", ends, {"experts"});
    op.writes("order", order, {"m"});
    op.writes("places", places, {"m"});
    state_blocks(op, m, peers);
  }
};

/// `rows` of a kernel between tokens and rows of experts: attribute "m" if it is present, else one
/// for each expert of each token. The name of this dim is `room`.
void state_room(auto& op, std::int64_t tokens, std::int64_t top_k, std::int64_t& rows) {
  rows = checked_mul(tokens, top_k);
  op.attribute_if_any("m", rows);
  op.let("room", rows);
}

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

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", tokens);
    op.attribute("top_k", top_k);
    op.unread_if_any("balanced_rows");
    state_room(op, tokens, top_k, rows);
    op.unread_if_any("peers");
    op.reads("input", input, {"rows", "cols"});
    op.reads("order", order, {"room"});
    op.reads("weights", weights, {"rows", "top_k"}, {.optional = true});
    op.writes("row_weights", row_weights, {"room"}, {.optional = true});
    op.writes("output", output, {"room", "cols"});
    op.expect((weights == nullptr) == (row_weights == nullptr), "row_weights",
              "expected it beside weights");
  }
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

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", tokens);
    op.attribute("top_k", top_k);
    op.unread_if_any("balanced_rows");
    state_room(op, tokens, top_k, rows);
    op.reads("input", input, {"room", "cols"});
    op.reads("places", places, {"rows", "top_k"});
    op.reads("row_weights", row_weights, {"room"}, {.optional = true});
    op.writes("weights", weights, {"rows", "top_k"}, {.optional = true});
    op.adds("output", output, adds, {"rows", "cols"});
    op.expect((weights == nullptr) == (row_weights == nullptr), "weights",
              "expected it beside row_weights");
  }
};

struct GroupedSizes {
  std::int64_t experts = 0;
  std::int64_t m = 0;  ///< rows there is room for; those of experts end at ends[experts - 1]
  std::int64_t n = 0;  ///< output features
  std::int64_t k = 0;  ///< input features

  void state(auto& op) {
    op.attribute("experts", experts);
    op.attribute("k", k);
    op.attribute("m", m);
    op.attribute("n", n);
    op.unread_if_any("balanced_rows");
    op.flops(costs::grouped_gemm);
  }
};

/// The GEMM of expert e with its rows: output = input * weight[e]^T, or d_input = d_output *
/// weight[e] (`gradient`). The bits of a row depend on no other row.
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
template <class T>
struct GroupedForward : GroupedProduct<T> {
  void state(auto& op) {
    this->sizes.state(op);
    op.reads("input", this->input, {"m", "k"});
    op.reads("weight", this->weight, {{"experts", "n"}, "k"});
    op.reads("ends", this->ends, {"experts"});
    op.writes("output", this->output, {"m", "n"});
    op.workspace(this->workspace);
  }
};
template <class T>
struct GroupedInputGradient : GroupedProduct<T> {
  void state(auto& op) {
    this->gradient = true;
    this->sizes.state(op);
    op.reads("d_output", this->input, {"m", "n"});
    op.reads("weight", this->weight, {{"experts", "n"}, "k"});
    op.reads("ends", this->ends, {"experts"});
    op.writes("d_input", this->output, {"m", "k"});
    op.workspace(this->workspace);
  }
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

  void state(auto& op) {
    sizes.state(op);
    op.reads("d_output", d_output, {"m", "n"});
    op.reads("input", input, {"m", "k"});
    op.reads("ends", ends, {"experts"});
    op.adds("weight_grad", weight_grad, adds, {{"experts", "n"}, "k"});
    op.workspace(workspace);
    op.pieces("m", "input", sizes.m, pieces, {.rows_are_sums = true});
    op.expect(!pieces.grid || pieces.rows == 1, "input", "expected pieces of one row, got ",
              pieces.rows);
  }
};

/// output = 1 / (1 + exp(-input)), one number a row.
template <class T>
struct SigmoidForward {
  std::int64_t rows = 0;
  const T* input = nullptr;   ///< [rows, 1]
  Real<T>* output = nullptr;  ///< [rows]

  void state(auto& op) {
    op.attribute("rows", rows);
    op.reads("input", input, {"rows", 1});
    op.writes("output", output, {"rows"});
  }
};

/// d_input = d_output * output * (1 - output).
template <class T>
struct SigmoidBackward {
  std::int64_t rows = 0;
  const Real<T>* output = nullptr;    ///< [rows]
  const Real<T>* d_output = nullptr;  ///< [rows]
  T* d_input = nullptr;               ///< [rows, 1]

  void state(auto& op) {
    op.attribute("rows", rows);
    op.reads("output", output, {"rows"});
    op.reads("d_output", d_output, {"rows"});
    op.writes("d_input", d_input, {"rows", 1});
  }
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

  void state(auto& op) {
    op.attribute("experts", experts);
    op.attribute("m", rows);
    op.attribute("n", cols);
    op.unread_if_any("balanced_rows");
    op.updates("output", output, {"m", "n"});
    op.reads("weight", bias, {{"experts", "n"}});
    op.reads("ends", ends, {"experts"});
    op.reads("row_weights", row_weights, {"m"}, {.optional = true});
  }
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

  void state(auto& op) {
    op.attribute("experts", experts);
    op.attribute("m", rows);
    op.attribute("n", cols);
    op.unread_if_any("balanced_rows");
    op.reads("d_output", d_output, {"m", "n"});
    op.reads("weight", bias, {{"experts", "n"}});
    op.reads("ends", ends, {"experts"});
    op.updates("d_row_weights", d_row_weights, {"m"});
  }
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

  void state(auto& op) {
    op.attribute("experts", experts);
    op.attribute("m", rows);
    op.attribute("n", cols);
    op.unread_if_any("balanced_rows");
    op.reads("d_output", d_output, {"m", "n"});
    op.reads("ends", ends, {"experts"});
    op.reads("row_weights", row_weights, {"m"}, {.optional = true});
    op.adds("weight_grad", bias_grad, adds, {{"experts", "n"}});
    op.pieces("m", "d_output", rows, pieces, {.rows_are_sums = true});
    op.expect(!pieces.grid || pieces.rows == 1, "d_output", "expected pieces of one row, got ",
              pieces.rows);
  }
};

/// GPT-OSS's: of gate, at most `limit`, and up, between -limit and limit, (up + 1) * gate *
/// sigmoid(alpha * gate). Beyond the limit gradients are 0. limit 0: SwiGLU.
template <class R>
struct SwigluClamp {
  R alpha = 1;
  R limit = 0;

  void state(auto& op) {
    op.attribute_if_any("alpha", alpha);
    op.attribute_if_any("limit", limit);
    if (limit == 0) alpha = 1;
  }
};

/// `product` = silu(gate) * up * weight of the row.
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

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("experts", experts);
    op.attribute("m", rows);
    op.unread_if_any("balanced_rows");
    op.attribute_if_any("interleaved", interleaved);
    clamp.state(op);
    op.reads("gate_up", gate_up, {"m", {2, "cols"}});
    op.reads("row_weights", row_weights, {"m"}, {.optional = true});
    op.reads("ends", ends, {"experts"}, {.optional = true});
    op.writes("product", product, {"m", "cols"});
  }
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

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("experts", experts);
    op.attribute("m", rows);
    op.unread_if_any("balanced_rows");
    op.attribute_if_any("interleaved", interleaved);
    clamp.state(op);
    op.updates("gate_up", gate_up, {"m", {2, "cols"}});
    op.reads("row_weights", row_weights, {"m"}, {.optional = true});
    op.reads("ends", ends, {"experts"}, {.optional = true});
    op.yields("d_product", d_product, product, {"m", "cols"});
    op.writes("d_row_weights", d_row_weights, {"m"}, {.optional = true});
    op.expect((row_weights == nullptr) == (d_row_weights == nullptr), "d_row_weights",
              "expected it beside row_weights");
  }
};

}  // namespace mfsdp::kernels
