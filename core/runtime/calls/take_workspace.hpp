// Scratch whose use is the machine's own affair: bytes of any number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/runtime/calls/operand_reader.hpp"

namespace mfsdp::kernels {

[[nodiscard]] inline std::span<std::byte> take_workspace(OperandReader& in) {
  const std::int64_t bytes = in.dim("workspace", 0);
  auto* data = in.take<std::uint8_t>("workspace", {bytes});
  return {reinterpret_cast<std::byte*>(data), static_cast<std::size_t>(bytes)};
}

/// Empty for a call without one: not every machine needs it.
[[nodiscard]] inline std::span<std::byte> take_workspace_if_any(OperandReader& in) {
  if (in.find("workspace") == nullptr) return {};
  return take_workspace(in);
}

}  // namespace mfsdp::kernels
