// How far predictions of an engine's memory were off where they were held against runs.
#pragma once

#include <string>

#include "core/plan/config.hpp"
#include "core/plan/engine.hpp"

namespace mfsdp {

/// Fractions, at worst.
struct EngineErrors {
  double allocated = 0;
  double reserved = 0;
  double device = 0;
  std::string source;
};

/// Requires an engine other than ours.
[[nodiscard]] EngineErrors engine_errors(EngineKind engine, const PlanConfig& config);

/// Whether the error of what its allocator reserves was measured: predictions were held against
/// runs. Else that of engine_errors() is assumed.
[[nodiscard]] bool has_measured_reserved(EngineKind engine);

}  // namespace mfsdp
