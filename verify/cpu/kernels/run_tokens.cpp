// Kernels that take token ids or labels: these come from data, so that each is checked.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "verify/cpu/kernels/check_positions.hpp"
#include "verify/cpu/kernels/cross_entropy.hpp"
#include "verify/cpu/kernels/embedding.hpp"
#include "verify/cpu/kernels/exact.hpp"
#include "verify/cpu/kernels/run_kind.hpp"

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

template <class T>
void add_loss(const CrossEntropy<T>& k, const LossSums<Real<T>>& chunk) {
  k.sums[0] = k.adds ? k.sums[0] + chunk.loss : chunk.loss;
  k.sums[1] = k.adds ? k.sums[1] + chunk.tokens : chunk.tokens;
}

}  // namespace

template <>
Result<void> run_kind(const KernelRun<K::token_copy>& run) {
  return run([](const auto& k) { std::copy_n(k.from, k.count, k.to); });
}

template <>
Result<void> run_kind(const KernelRun<K::embedding_forward>& run) {
  return run([&](const auto& k) -> Result<void> {
    if (!k.is_part) MFSDP_TRY(check_ids(run.kernel(), "tokens", k.tokens, k.vocab));
    MFSDP_TRY(check_positions(run.kernel(), k.in_documents, std::ssize(k.tokens), k.seq_len));
    embedding_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::embedding_backward>& run) {
  return run([&]<class T, class G>(const EmbeddingBackward<T, G>& k) -> Result<void> {
    if (!k.is_part) MFSDP_TRY(check_ids(run.kernel(), "tokens", k.tokens, k.vocab));
    return with_grid<Real<T>>(k.pieces.grid, run.kernel(), "weight_grad", [&](auto* sums) {
      if (sums != nullptr)
        exact_embedding_backward(k, *sums);
      else
        embedding_backward(k);
    });
  });
}

template <>
Result<void> run_kind(const KernelRun<K::position_embedding_backward>& run) {
  return run([&]<class T, class G>(const PositionEmbeddingBackward<T, G>& k) -> Result<void> {
    MFSDP_TRY(check_positions(run.kernel(), k.in_documents, k.rows, k.seq_len));
    return with_grid<Real<T>>(k.pieces.grid, run.kernel(), "weight_grad", [&](auto* sums) {
      sums != nullptr ? exact_position_embedding_backward(k, *sums)
                      : position_embedding_backward(k);
    });
  });
}

template <>
Result<void> run_kind(const KernelRun<K::softmax_parts>& run) {
  return run([&](const auto& k) { softmax_parts(k, run.settings.ignore_index); });
}

template <>
Result<void> run_kind(const KernelRun<K::cross_entropy>& run) {
  return run([&]<class T>(const CrossEntropy<T>& k) -> Result<void> {
    const std::int32_t ignored = run.settings.ignore_index;
    MFSDP_TRY(check_ids(run.kernel(), "labels", k.labels, k.vocab * k.peers, ignored));
    const Real<T> scale = k.scale == nullptr ? 1 : static_cast<Real<T>>(k.scale->scale);
    add_loss(k, k.parts != nullptr
                    ? cross_entropy_of_parts(k, ignored, scale)
                    : cross_entropy(k.labels, k.vocab, ignored, k.logits, k.cap, scale, k.pitch()));
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::cross_entropy_loss>& run) {
  return run([&](const auto& k) -> Result<void> {
    const std::int32_t ignored = run.settings.ignore_index;
    MFSDP_TRY(check_ids(run.kernel(), "labels", k.labels, k.vocab * k.peers, ignored));
    add_loss(k, k.parts != nullptr ? cross_entropy_of_parts(k, ignored)
                                   : cross_entropy_loss(k.labels, k.vocab, ignored, k.logits, k.cap,
                                                        k.pitch(), k.log_probs));
    return {};
  });
}

}  // namespace mfsdp::kernels
