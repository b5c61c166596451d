// What the kernels take that work with token ids or labels. These come from data: a kernel may meet
// ids that are none of the vocabulary, and must not follow them out of its operands.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/plan/loss_scale.hpp"
#include "core/runtime/calls/pieces.hpp"
#include "core/runtime/scalar.hpp"

namespace mfsdp::kernels {

/// A microbatch's ids and labels, out of those of the step.
struct TokenCopy {
  std::int64_t count = 0;
  const std::int32_t* from = nullptr;
  std::int32_t* to = nullptr;
};

/// Row i of the output is row tokens[i] of the table, times `scale`; where there is a table of
/// positions, plus the row of that for the token's position.
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

  [[nodiscard]] constexpr std::int64_t position(std::int64_t token) const {
    return in_documents == nullptr ? token % seq_len : in_documents[token];
  }
};

/// A token's place in the batch; ordered by token, then place.
struct TokenPlace {
  std::int32_t token = 0;
  std::int32_t place = 0;

  friend auto operator<=>(const TokenPlace&, const TokenPlace&) = default;
};

/// Each row of the gradient is the sum over its token's places, times `scale`. Rows of tokens that
/// do not occur become 0, or stay where `adds`.
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
};

/// Row p of the gradient of the table of positions is the sum of the rows of tokens at position p,
/// in their order; rows of positions that no token has become 0, or stay where `adds`.
template <class T, class G>
struct PositionEmbeddingBackward {
  std::int64_t rows = 0;  ///< of all sequences, a multiple of seq_len
  std::int64_t cols = 0;
  std::int64_t seq_len = 1;
  std::int64_t positions = 0;                  ///< at least seq_len
  const std::int32_t* in_documents = nullptr;  ///< as above
  const T* d_output = nullptr;                 ///< [rows, cols]
  bool adds = false;
  G* gradient = nullptr;  ///< [positions, cols]
  Pieces pieces = {};

  [[nodiscard]] constexpr std::int64_t position(std::int64_t row) const {
    return in_documents == nullptr ? row % seq_len : in_documents[row];
  }
};

/// Cross-entropy of rows of logits, summed over those whose label is not `ignored`. The gradient
/// goes over the logits, unless T is const.
template <class T>
struct CrossEntropy {
  std::span<const std::int32_t> labels;  ///< one a row
  std::int64_t vocab = 0;
  std::int32_t ignored = 0;
  T* logits = nullptr;                    ///< [rows, vocab]
  Real<T>* sums = nullptr;                ///< [2]: loss, and rows with a label
  bool adds = false;                      ///< to the sums
  Real<T> cap = 0;                        ///< logits x count as cap * tanh(x / cap); 0: as they are
  const LossScaleState* scale = nullptr;  ///< of the gradient; null: none
  /// Scratch; empty where a call has none, as not every machine needs it.
  std::span<std::byte> workspace = {};
};

}  // namespace mfsdp::kernels
