// Checks the positions that attention and RoPE use, because they come from data.
#pragma once

#include <fmt/format.h>

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/kernels/attention.hpp"
#include "core/plan/kernels/rope.hpp"
#include "core/plan/op.hpp"

namespace mfsdp::kernels {

/// `positions` [tokens] must begin with 0 in each sequence, and then increase by 1 or restart at 0.
/// Null: no positions. O(tokens).
[[nodiscard]] inline Result<void> check_positions(const Kernel& kernel,
                                                  const std::int32_t* positions,
                                                  std::int64_t tokens, std::int64_t seq_len) {
  for (std::int64_t t = 0; positions != nullptr && t < tokens; ++t) {
    const std::int64_t next = t % seq_len == 0 ? 0 : positions[t - 1] + std::int64_t{1};
    if (positions[t] != 0 && positions[t] != next)
      return fail(fmt::format("kernel {}: operand positions", to_string(kernel.kind)),
                  fmt::format("expected {}, or 0 where a document begins, got {} at {}", next,
                              positions[t], t),
                  Fault::environment);
  }
  return {};
}
[[nodiscard]] inline Result<void> check_documents(const Kernel& kernel, const AttentionShape& s) {
  return check_positions(kernel, s.positions, s.batch * s.seq_len, s.seq_len);
}
[[nodiscard]] inline Result<void> check_documents(const Kernel& kernel, const RopeShape& s) {
  return check_positions(kernel, s.positions, s.places(), s.seq_len);
}

[[nodiscard]] inline Result<void> check_documents(const Kernel& kernel, const LatentShape& s) {
  return check_positions(kernel, s.positions, s.rows, s.seq_len);
}

}  // namespace mfsdp::kernels
