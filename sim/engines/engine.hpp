// Whose kernels, schedule and allocator a prediction describes.
#pragma once

#include <array>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

/// `mfsdp` is ours, whose plan runs as it is predicted. The others are described
/// (docs/engines.md): PyTorch FSDP2, with blocks as they are or compiled by Inductor.
enum class Engine { mfsdp, fsdp2, fsdp2_compile };

template <>
struct Names<Engine> {
  static constexpr std::array<std::string_view, 3> values{"mfsdp", "fsdp2", "fsdp2-compile"};
};

/// The version of PyTorch whose allocations and kernels were recorded.
inline constexpr std::string_view kTorchVersion = "2.11";

/// The configuration as the engine has it, which knows fewer choices than ours: what it has no
/// flag for is as it always is there (selective recomputation is none). Errors name the flag of
/// what the engine cannot do, or of what is not described of it.
[[nodiscard]] Result<PlanConfig> engine_config(Engine engine, const PlanConfig& config);

}  // namespace mfsdp
