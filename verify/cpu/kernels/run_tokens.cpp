// Kernels that take token ids or labels: these come from data, so that each is checked.
#include <algorithm>
#include <optional>

#include "verify/cpu/kernels/bindings.hpp"
#include "verify/cpu/kernels/cross_entropy.hpp"
#include "verify/cpu/kernels/embedding.hpp"
#include "verify/cpu/kernels/operand_reader.hpp"
#include "verify/cpu/kernels/pieces.hpp"

namespace mfsdp::kernels {
namespace {

/// `count` ids of the vocabulary, or `ignored`.
std::span<const std::int32_t> take_ids(OperandReader& in, std::string_view role, std::int64_t count,
                                       std::int64_t vocab,
                                       std::optional<std::int32_t> ignored = {}) {
  const auto* data = in.take<const std::int32_t>(role, {count});
  if (data == nullptr) return {};
  for (std::int64_t i = 0; i < count; ++i)
    if (data[i] != ignored && (data[i] < 0 || data[i] >= vocab))
      in.complain(role,
                  fmt::format("expected ids from 0 to {}, got {} at {}", vocab - 1, data[i], i));
  return {data, static_cast<std::size_t>(count)};
}

template <class T, class G>
Result<void> backward(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const std::int64_t vocab = in.dim("weight_grad", 0);
  const auto tokens = take_ids(in, "tokens", rows, vocab);
  const auto* d_output = in.take<const T>("d_output", {rows, cols});
  const std::int64_t scratch = in.dim("token_order", 0);
  auto* order = in.take<std::uint8_t>("token_order", {scratch});
  auto* gradient = in.take<G>("weight_grad", {vocab, cols});
  const bool adds = in.attribute("beta") != 0;
  if (scratch < rows * static_cast<std::int64_t>(sizeof(TokenPlace)))
    in.complain("token_order", fmt::format("expected at least {} bytes a token, got {} in all",
                                           sizeof(TokenPlace), scratch));
  const std::int64_t piece = take_piece_rows(in, "tokens", *call.kernel, rows);
  MFSDP_TRY(in.result());
  const std::span<TokenPlace> places{reinterpret_cast<TokenPlace*>(order), tokens.size()};
  if (auto sums = grid_sums<Real<T>>(*call.kernel)) {
    exact_embedding_backward(tokens, cols, vocab, d_output, places, piece, adds, *sums, gradient);
    return exact_result(*sums, *call.kernel, "weight_grad");
  }
  embedding_backward(tokens, cols, vocab, d_output, places, adds, gradient);
  return {};
}

/// `T` is const where the logits are only read.
template <class T>
Result<void> loss(const KernelCall& call, const KernelSettings& settings) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t vocab = in.attribute("cols");
  const auto labels = take_ids(in, "labels", rows, vocab, settings.ignore_index);
  auto* logits = in.take<T>("logits", {rows, vocab});
  auto* sums = in.take<Real<T>>("loss_sums", {2});
  const bool adds = in.attribute("beta") != 0;
  MFSDP_TRY(in.result());
  LossSums<Real<T>> chunk;
  if constexpr (std::is_const_v<T>)
    chunk = cross_entropy_loss(labels, vocab, settings.ignore_index, logits);
  else
    chunk = cross_entropy(labels, vocab, settings.ignore_index, logits);
  sums[0] = adds ? sums[0] + chunk.loss : chunk.loss;
  sums[1] = adds ? sums[1] + chunk.tokens : chunk.tokens;
  return {};
}

}  // namespace

Result<void> run_token_copy(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.dim("input", 0);
  const std::int64_t cols = in.dim("input", 1);
  const auto* from = in.take<const std::int32_t>("input", {rows, cols});
  auto* to = in.take<std::int32_t>("output", {rows, cols});
  MFSDP_TRY(in.result());
  std::copy_n(from, rows * cols, to);
  return {};
}

Result<void> run_embedding_forward(const KernelCall& call) {
  return with_type_of(call, "weight", [&]<class T>(TypeTag<T>) -> Result<void> {
    OperandReader in(call);
    const std::int64_t rows = in.attribute("rows");
    const std::int64_t cols = in.attribute("cols");
    const std::int64_t vocab = in.dim("weight", 0);
    const auto tokens = take_ids(in, "tokens", rows, vocab);
    const auto* table = in.take<const T>("weight", {vocab, cols});
    auto* output = in.take<T>("output", {rows, cols});
    MFSDP_TRY(in.result());
    embedding_forward(tokens, cols, table, output);
    return {};
  });
}

Result<void> run_embedding_backward(const KernelCall& call) {
  return with_type_of(call, "d_output", [&]<class T>(TypeTag<T>) {
    return with_type_beside<T>(call, "weight_grad",
                               [&]<class G>(TypeTag<G>) { return backward<T, G>(call); });
  });
}

Result<void> run_cross_entropy(const KernelCall& call, const KernelSettings& settings) {
  return with_type_of(call, "logits", [&]<class T>(TypeTag<T>) { return loss<T>(call, settings); });
}

Result<void> run_cross_entropy_loss(const KernelCall& call, const KernelSettings& settings) {
  return with_type_of(call, "logits",
                      [&]<class T>(TypeTag<T>) { return loss<const T>(call, settings); });
}

}  // namespace mfsdp::kernels
