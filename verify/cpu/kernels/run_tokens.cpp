// Kernels that take token ids or labels: these come from data, so that each is checked.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/runtime/calls/take_tokens.hpp"
#include "verify/cpu/kernels/check_positions.hpp"
#include "verify/cpu/kernels/cross_entropy.hpp"
#include "verify/cpu/kernels/embedding.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp::kernels {
namespace {

/// All ids are of the vocabulary, or `ignored`.
Result<void> check_ids(const Kernel& kernel, std::string_view role,
                       std::span<const std::int32_t> ids, std::int64_t vocab,
                       std::optional<std::int32_t> ignored = {}) {
  const auto stray = std::ranges::find_if(
      ids, [&](std::int32_t id) { return id != ignored && (id < 0 || id >= vocab); });
  if (stray == ids.end()) return {};
  return fail(fmt::format("kernel {}: operand {}", to_string(kernel.kind), role),
              fmt::format("expected ids from 0 to {}, got {} at {}", vocab - 1, *stray,
                          stray - ids.begin()),
              Fault::environment);
}

template <class T, class G>
Result<void> backward(const KernelCall& call) {
  MFSDP_LET(k, (take_embedding_backward<T, G>(call)));
  MFSDP_TRY(check_ids(*call.kernel, "tokens", k.tokens, k.vocab));
  if (k.pieces.grid) {
    GridSums<Real<T>> sums(*k.pieces.grid);
    exact_embedding_backward(k, sums);
    return sums.result(*call.kernel, "weight_grad");
  }
  embedding_backward(k.tokens, k.cols, k.vocab, k.scale, k.d_output, k.order, k.adds, k.gradient);
  return {};
}

/// `T` is const where the logits are only read.
template <class T>
Result<void> loss(const KernelCall& call, const KernelSettings& settings) {
  MFSDP_LET(k, take_cross_entropy<T>(call, settings));
  MFSDP_TRY(check_ids(*call.kernel, "labels", k.labels, k.vocab, k.ignored));
  LossSums<Real<T>> chunk;
  if constexpr (std::is_const_v<T>)
    chunk = cross_entropy_loss(k.labels, k.vocab, k.ignored, k.logits, k.cap);
  else
    chunk = cross_entropy(k.labels, k.vocab, k.ignored, k.logits, k.cap,
                          k.scale == nullptr ? 1 : static_cast<Real<T>>(k.scale->scale));
  k.sums[0] = k.adds ? k.sums[0] + chunk.loss : chunk.loss;
  k.sums[1] = k.adds ? k.sums[1] + chunk.tokens : chunk.tokens;
  return {};
}

}  // namespace

template <>
Result<void> run_kind<KernelKind::token_copy>(const KernelCall& call,
                                              const KernelSettings& /*settings*/) {
  MFSDP_LET(k, take_token_copy(call));
  std::copy_n(k.from, k.count, k.to);
  return {};
}

template <>
Result<void> run_kind<KernelKind::embedding_forward>(const KernelCall& call,
                                                     const KernelSettings& /*settings*/) {
  return with_type_of(call, "weight", [&]<class T>(TypeTag<T>) -> Result<void> {
    MFSDP_LET(k, take_embedding_forward<T>(call));
    MFSDP_TRY(check_ids(*call.kernel, "tokens", k.tokens, k.vocab));
    MFSDP_TRY(check_positions(*call.kernel, k.in_documents, std::ssize(k.tokens), k.seq_len));
    embedding_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind<KernelKind::embedding_backward>(const KernelCall& call,
                                                      const KernelSettings& /*settings*/) {
  return with_type_of(call, "d_output", [&]<class T>(TypeTag<T>) {
    return with_type_beside<T>(AllElementTypes{}, call, "weight_grad",
                               [&]<class G>(TypeTag<G>) { return backward<T, G>(call); });
  });
}

template <>
Result<void> run_kind<KernelKind::position_embedding_backward>(const KernelCall& call,
                                                               const KernelSettings& /*settings*/) {
  return with_type_of(call, "d_output", [&]<class T>(TypeTag<T>) {
    return with_type_beside<T>(
        AllElementTypes{}, call, "weight_grad", [&]<class G>(TypeTag<G>) -> Result<void> {
          MFSDP_LET(k, (take_position_embedding_backward<T, G>(call)));
          MFSDP_TRY(check_positions(*call.kernel, k.in_documents, k.rows, k.seq_len));
          if (k.pieces.grid) {
            GridSums<Real<T>> sums(*k.pieces.grid);
            exact_position_embedding_backward(k, sums);
            return sums.result(*call.kernel, "weight_grad");
          }
          position_embedding_backward(k);
          return {};
        });
  });
}

template <>
Result<void> run_kind<KernelKind::cross_entropy>(const KernelCall& call,
                                                 const KernelSettings& settings) {
  return with_type_of(call, "logits", [&]<class T>(TypeTag<T>) { return loss<T>(call, settings); });
}

template <>
Result<void> run_kind<KernelKind::cross_entropy_loss>(const KernelCall& call,
                                                      const KernelSettings& settings) {
  return with_type_of(call, "logits",
                      [&]<class T>(TypeTag<T>) { return loss<const T>(call, settings); });
}

}  // namespace mfsdp::kernels
