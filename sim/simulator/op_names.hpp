// Names in results of ops that take time.
#pragma once

#include <string_view>

#include "core/plan/op.hpp"

namespace mfsdp {

/// Whether it is a kernel, a collective or a copy.
[[nodiscard]] inline bool takes_time(const Op& op) {
  return op.kind() == OpKind::kernel || op.kind() == OpKind::collective ||
         op.kind() == OpKind::copy;
}

/// "gemm", "all_gather", "h2d", ...; only for ops that take time.
[[nodiscard]] inline std::string_view kind_name(const Op& op) {
  if (const auto* kernel = std::get_if<Kernel>(&op.body)) return to_string(kernel->kind);
  if (const auto* collective = std::get_if<Collective>(&op.body))
    return to_string(collective->kind);
  return to_string(std::get<Copy>(op.body).kind);
}

/// The name under which ops without a unit are counted.
inline constexpr std::string_view kNoUnit = "no unit";

}  // namespace mfsdp
