// How far predictions of an engine's memory were off where they were held against runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/plan/config.hpp"
#include "core/plan/engine.hpp"

namespace mfsdp {

/// Fractions, at worst.
struct EngineErrors {
  double allocated = 0;
  double reserved = 0;
  double device = 0;
  std::string source;  ///< runs, machines and model code that these are from
};

/// Of a configuration on a GPU, by its catalogue name; none where no run of that engine on that GPU
/// was compared. Requires an engine other than ours.
[[nodiscard]] std::optional<EngineErrors> engine_errors(EngineKind engine, const PlanConfig& config,
                                                        std::string_view gpu);

/// The sentence that says so where engine_errors() has none.
[[nodiscard]] std::string unknown_memory_error(EngineKind engine, std::string_view gpu);

}  // namespace mfsdp
