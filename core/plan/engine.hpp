// Whose kernels, schedule and allocator a plan describes.
#pragma once

#include <array>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// `mfsdp` is ours, whose plan runs as it is predicted. The others are described (sim/engines):
/// PyTorch FSDP2, with blocks as they are or compiled by Inductor.
enum class EngineKind { mfsdp, fsdp2, fsdp2_compile };

template <>
struct Names<EngineKind> {
  static constexpr std::array<std::string_view, 3> values{"mfsdp", "fsdp2", "fsdp2-compile"};
};

}  // namespace mfsdp
