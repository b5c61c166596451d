// Kernels that work with token ids or labels. Ids come from data: a kernel may meet some that are
// not in the vocabulary, and must not follow them out of its operands.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/plan/kernel_costs.hpp"
#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/element_types.hpp"
#include "core/plan/kernels/matrix.hpp"
#include "core/plan/kernels/pieces.hpp"
#include "core/plan/loss_scale.hpp"

namespace mfsdp::kernels {

/// A microbatch's ids and labels, out of those of the step.
struct TokenCopy {
  std::int64_t count = 0;
  const std::int32_t* from = nullptr;
  std::int32_t* to = nullptr;

  void state(auto& op) {
    std::int64_t rows = 0;
    std::int64_t tokens = 0;
    op.reads("input", from, {"token_rows", "tokens"});
    op.writes("output", to, {"token_rows", "tokens"});
    op.dim("token_rows", rows);
    op.dim("tokens", tokens);
    count = rows * tokens;
  }
};

/// Row i of the output is row tokens[i] of the table, times `scale`; where there is a table of
/// positions, plus the row of that for the token's position. A rank may have a part of the
/// vocabulary, from id `vocab_begin` on: rows of other ids are 0.
template <class T>
struct EmbeddingForward {
  std::span<const std::int32_t> tokens;
  std::int64_t cols = 0;
  std::int64_t vocab = 0;
  Real<T> scale = 1;
  const T* table = nullptr;      ///< [vocab, cols]
  const T* positions = nullptr;  ///< [at least seq_len, cols], or null
  std::int64_t seq_len = 1;
  const std::int32_t* in_documents = nullptr;  ///< [tokens]: positions; null: places in sequences
  T* output = nullptr;                         ///< [tokens, cols]
  std::int64_t vocab_begin = 0;                ///< the id of the table's first row
  bool is_part = false;                        ///< of a vocabulary

  [[nodiscard]] constexpr std::int64_t position(std::int64_t token) const {
    return in_documents == nullptr ? token % seq_len : in_documents[token];
  }

  void state(auto& op) {
    std::int64_t rows = 0;
    std::int64_t most = 0;
    op.unread("bytes");
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.attribute_if_any("scale", scale);
    op.attribute_if_any("seq", seq_len);
    op.rank_attribute_if_any("vocab_begin", vocab_begin, is_part);
    op.reads("tokens", tokens, {"rows"});
    op.reads("weight", table, {"vocab", "cols"});
    op.reads("weight", positions, {"positions", "cols"}, {.optional = true});
    op.writes("output", output, {"rows", "cols"});
    op.reads("positions", in_documents, {"rows"}, {.optional = true});
    op.dim("vocab", vocab);
    if (positions == nullptr) return;
    op.dim("positions", most);
    op.expect(seq_len >= 1 && seq_len <= most && rows % seq_len == 0, "tokens",
              "expected sequences of at most ", most, " positions, got ", rows, " rows of ",
              seq_len);
  }
};

/// A token's place in the batch; ordered by token, then place.
struct TokenPlace {
  std::int32_t token = 0;
  std::int32_t place = 0;

  friend auto operator<=>(const TokenPlace&, const TokenPlace&) = default;
};

/// Each row of the gradient is the sum over its token's places, times `scale`. Rows of tokens that
/// do not occur become 0, or stay where `adds`. A part of the vocabulary as in EmbeddingForward.
template <class T, class G>
struct EmbeddingBackward {
  std::span<const std::int32_t> tokens;
  std::int64_t cols = 0;
  std::int64_t vocab = 0;
  Real<T> scale = 1;
  const T* d_output = nullptr;  ///< [tokens, cols]
  std::span<TokenPlace> order;  ///< scratch, one entry a token
  bool adds = false;
  G* gradient = nullptr;  ///< [vocab, cols]
  Pieces pieces = {};
  std::int64_t vocab_begin = 0;
  bool is_part = false;

  void state(auto& op) {
    std::int64_t rows = 0;
    std::uint8_t* places = nullptr;
    op.unread("bytes");
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.attribute_if_any("scale", scale);
    op.rank_attribute_if_any("vocab_begin", vocab_begin, is_part);
    op.reads("tokens", tokens, {"rows"});
    op.reads("d_output", d_output, {"rows", "cols"});
    op.scratch("token_order", places, {{24, "rows"}});
    op.adds("weight_grad", gradient, adds, {"vocab", "cols"});
    op.dim("vocab", vocab);
    op.pieces("rows", "tokens", rows, pieces);
    order = {reinterpret_cast<TokenPlace*>(places), tokens.size()};
  }
};

/// Row p of the gradient of the table of positions is the sum of the rows of tokens at position p,
/// in their order; rows of positions that no token has become 0, or stay where `adds`.
template <class T, class G>
struct PositionEmbeddingBackward {
  std::int64_t rows = 0;  ///< of all sequences, a multiple of seq_len
  std::int64_t cols = 0;
  std::int64_t seq_len = 1;
  std::int64_t positions = 0;                  ///< at least seq_len
  const std::int32_t* in_documents = nullptr;  ///< as of EmbeddingForward
  const T* d_output = nullptr;                 ///< [rows, cols]
  bool adds = false;
  G* gradient = nullptr;  ///< [positions, cols]
  Pieces pieces = {};

  [[nodiscard]] constexpr std::int64_t position(std::int64_t row) const {
    return in_documents == nullptr ? row % seq_len : in_documents[row];
  }

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.attribute("seq", seq_len);
    op.reads("d_output", d_output, {"rows", "cols"});
    op.adds("weight_grad", gradient, adds, {"positions", "cols"});
    op.reads("positions", in_documents, {"rows"}, {.optional = true});
    op.dim("positions", positions);
    op.pieces("rows", "d_output", rows, pieces);
    op.expect(seq_len >= 1 && seq_len <= positions && rows % seq_len == 0, "d_output",
              "expected sequences of at most ", positions, " positions, got ", rows, " rows of ",
              seq_len);
    op.expect(!pieces.grid || pieces.rows == seq_len, "d_output", "expected pieces of ", seq_len,
              " rows, got ", pieces.rows);
  }
};

/// One rank's part of the softmax of a row whose columns ranks share.
template <class S>
struct SoftmaxPart {
  S largest = 0;   ///< of this rank's logits
  S sum = 0;       ///< of exp(logit - largest) over them
  S of_label = 0;  ///< the label's logit, 0 if another rank has it
};

/// The softmax of each row over a rank's columns, those of the ids from `vocab_begin` on. Rows
/// without a label have the label's logit 0.
template <class T>
struct SoftmaxParts {
  std::span<const std::int32_t> labels;  ///< one a row
  std::int64_t vocab = 0;                ///< ids of this rank
  std::int64_t vocab_begin = 0;
  const T* logits = nullptr;               ///< [rows, vocab]
  std::int64_t row = 0;                    ///< elements from one row to the next
  Real<T> cap = 0;                         ///< as of CrossEntropy
  SoftmaxPart<Real<T>>* output = nullptr;  ///< [rows]

  void state(auto& op) {
    std::int64_t rows = 0;
    bool is_part = false;
    Matrix<const T> matrix;
    Real<T>* parts = nullptr;
    op.unread("bytes");
    op.attribute("cols", vocab);
    op.attribute("rows", rows);
    op.attribute_if_any("logit_cap", cap);
    op.rank_attribute_if_any("vocab_begin", vocab_begin, is_part);
    op.reads("logits", matrix, {"rows", "cols"});
    logits = matrix.data;
    row = matrix.row;
    op.reads("labels", labels, {"rows"});
    op.writes("output", parts, {"rows", {3}});
    output = reinterpret_cast<SoftmaxPart<Real<T>>*>(parts);
  }
};

/// Cross-entropy of rows of logits, summed over those whose label is not `ignored`. The gradient
/// replaces the logits, unless T is const. Where ranks share the columns, `parts` has the softmax of
/// each rank's: the loss is that of the whole row on all of them, the gradient that of a rank's own
/// columns.
template <class T>
struct CrossEntropy {
  std::span<const std::int32_t> labels;  ///< one a row
  std::int64_t vocab = 0;
  std::int32_t ignored = 0;               ///< from the run's settings, not from an attribute
  T* logits = nullptr;                    ///< [rows, vocab]
  std::int64_t row = 0;                   ///< elements from one row to the next; 0: vocab
  Real<T>* sums = nullptr;                ///< [2]: loss, and rows with a label
  bool adds = false;                      ///< to the sums
  Real<T> cap = 0;                        ///< logits x count as cap * tanh(x / cap); 0: as they are
  const LossScaleState* scale = nullptr;  ///< of the gradient; null: none
  /// [rows], or null: each label's log-probability; 0 of rows whose label is `ignored`.
  Real<T>* log_probs = nullptr;
  /// Scratch; empty where a call has none, as not every machine needs it.
  std::span<std::byte> workspace = {};
  const SoftmaxPart<Real<T>>* parts = nullptr;  ///< [peers, rows], or null: columns are whole
  std::int64_t peers = 1;
  std::int64_t vocab_begin = 0;  ///< id of the first column

  [[nodiscard]] constexpr std::int64_t pitch() const { return row == 0 ? vocab : row; }

  void state(auto& op) {
    std::int64_t rows = 0;
    Matrix<T> matrix;
    op.unread("bytes");
    op.attribute("cols", vocab);
    op.attribute("rows", rows);
    bool is_part = false;
    const Real<T>* of_ranks = nullptr;
    op.attribute_if_any("logit_cap", cap);
    op.attribute_if_any("peers", peers);
    op.rank_attribute_if_any("vocab_begin", vocab_begin, is_part);
    if constexpr (std::is_const_v<T>)
      op.reads("logits", matrix, {"rows", "cols"});
    else
      op.updates("logits", matrix, {"rows", "cols"});
    logits = matrix.data;
    row = matrix.row;
    op.reads("labels", labels, {"rows"});
    op.adds("loss_sums", sums, adds, {2});
    if constexpr (!std::is_const_v<T>)
      op.reads("loss_scale", scale, {4}, {.optional = true, .element = Element::fp32});
    else
      op.writes("log_probs", log_probs, {"rows"}, {.optional = true});
    op.reads("parts", of_ranks, {{"peers", "rows"}, {3}}, {.optional = true});
    parts = reinterpret_cast<const SoftmaxPart<Real<T>>*>(of_ranks);
    op.expect(parts == nullptr || log_probs == nullptr, "parts",
              "expected no log-probabilities beside parts of rows");
    op.workspace(workspace, costs::sum_workspace);
  }
};
template <class T>
using CrossEntropyGradient = CrossEntropy<T>;
template <class T>
using CrossEntropyLoss = CrossEntropy<const T>;

}  // namespace mfsdp::kernels
