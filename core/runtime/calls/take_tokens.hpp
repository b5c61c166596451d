// From a call to the structs of tokens.hpp. Errors name the operand and what was expected; ids are
// not looked at, as they may lie on a device.
#pragma once

#include <fmt/format.h>

#include "core/runtime/calls/kernel_settings.hpp"
#include "core/runtime/calls/take_pieces.hpp"
#include "core/runtime/calls/take_workspace.hpp"
#include "core/runtime/calls/tokens.hpp"

namespace mfsdp::kernels {

[[nodiscard]] inline std::span<const std::int32_t> take_ids(OperandReader& in,
                                                            std::string_view role,
                                                            std::int64_t count) {
  const auto* data = in.take<const std::int32_t>(role, {count});
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(count)};
}

[[nodiscard]] inline Result<TokenCopy> take_token_copy(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.dim("input", 0);
  const std::int64_t cols = in.dim("input", 1);
  const TokenCopy k{.count = rows * cols,
                    .from = in.take<const std::int32_t>("input", {rows, cols}),
                    .to = in.take<std::int32_t>("output", {rows, cols})};
  MFSDP_TRY(in.result());
  return k;
}

template <class T>
[[nodiscard]] Real<T> take_scale(OperandReader& in) {
  const double scale = in.number_if_any("scale");
  return scale == 0 ? Real<T>(1) : static_cast<Real<T>>(scale);
}

/// Tokens of a sequence, of which each has a position.
[[nodiscard]] inline std::int64_t take_positions(OperandReader& in, std::string_view role,
                                                 std::int64_t rows, std::int64_t positions) {
  const std::int64_t seq = in.attribute("seq");
  if (seq >= 1 && seq <= positions && rows % seq == 0) return seq;
  in.complain(role, fmt::format("expected sequences of at most {} positions, got {} rows of {}",
                                positions, rows, seq));
  return 1;
}

template <class T>
[[nodiscard]] Result<EmbeddingForward<T>> take_embedding_forward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t vocab = in.dim("weight", 0);
  EmbeddingForward<T> k{.tokens = take_ids(in, "tokens", rows),
                        .cols = cols,
                        .vocab = vocab,
                        .scale = take_scale<T>(in),
                        .table = in.take<const T>("weight", {vocab, cols}, 0),
                        .output = in.take<T>("output", {rows, cols})};
  if (const OperandView* positions = in.find("weight", 1); positions != nullptr) {
    const std::int64_t count = positions->shape.empty() ? 0 : positions->shape[0];
    k.positions = in.take<const T>("weight", {count, cols}, 1);
    k.seq_len = take_positions(in, "tokens", rows, count);
    k.in_documents = in.take_if_any<const std::int32_t>("positions", {rows});
  }
  MFSDP_TRY(in.result());
  return k;
}

template <class T, class G>
[[nodiscard]] Result<EmbeddingBackward<T, G>> take_embedding_backward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t vocab = in.dim("weight_grad", 0);
  const std::int64_t scratch = in.dim("token_order", 0);
  EmbeddingBackward<T, G> k{.tokens = take_ids(in, "tokens", rows),
                            .cols = cols,
                            .vocab = vocab,
                            .scale = take_scale<T>(in),
                            .d_output = in.take<const T>("d_output", {rows, cols}),
                            .order = {},
                            .adds = in.attribute("beta") != 0,
                            .gradient = in.take<G>("weight_grad", {vocab, cols}),
                            .pieces = take_pieces(in, "tokens", *call.kernel, rows)};
  auto* order = in.take<std::uint8_t>("token_order", {scratch});
  if (scratch < rows * static_cast<std::int64_t>(sizeof(TokenPlace)))
    in.complain("token_order", fmt::format("expected at least {} bytes a token, got {} in all",
                                           sizeof(TokenPlace), scratch));
  MFSDP_TRY(in.result());
  k.order = {reinterpret_cast<TokenPlace*>(order), k.tokens.size()};
  return k;
}

template <class T, class G>
[[nodiscard]] Result<PositionEmbeddingBackward<T, G>> take_position_embedding_backward(
    const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t positions = in.dim("weight_grad", 0);
  const PositionEmbeddingBackward<T, G> k{
      .rows = rows,
      .cols = cols,
      .seq_len = take_positions(in, "d_output", rows, positions),
      .positions = positions,
      .in_documents = in.take_if_any<const std::int32_t>("positions", {rows}),
      .d_output = in.take<const T>("d_output", {rows, cols}),
      .adds = in.attribute("beta") != 0,
      .gradient = in.take<G>("weight_grad", {positions, cols}),
      .pieces = take_pieces(in, "d_output", *call.kernel, rows)};
  if (k.pieces.grid && k.pieces.rows != k.seq_len)
    in.complain("d_output",
                fmt::format("expected pieces of {} rows, got {}", k.seq_len, k.pieces.rows));
  MFSDP_TRY(in.result());
  return k;
}

/// `T` is const where the logits are only read: cross_entropy_loss.
template <class T>
[[nodiscard]] Result<CrossEntropy<T>> take_cross_entropy(const KernelCall& call,
                                                         const KernelSettings& settings) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t vocab = in.attribute("cols");
  const auto* scale = in.take_if_any<const float>("loss_scale", {4});
  const CrossEntropy<T> k{.labels = take_ids(in, "labels", rows),
                          .vocab = vocab,
                          .ignored = settings.ignore_index,
                          .logits = in.take<T>("logits", {rows, vocab}),
                          .sums = in.take<Real<T>>("loss_sums", {2}),
                          .adds = in.attribute("beta") != 0,
                          .cap = static_cast<Real<T>>(in.number_if_any("logit_cap")),
                          .scale = reinterpret_cast<const LossScaleState*>(scale),
                          .workspace = take_workspace_if_any(in)};
  MFSDP_TRY(in.result());
  return k;
}

}  // namespace mfsdp::kernels
