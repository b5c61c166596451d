// Measured errors of predicted engine memory.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/plan/config.hpp"
#include "core/plan/engine.hpp"
#include "core/plan/engine_options.hpp"

namespace mfsdp {

/// Largest errors, as fractions.
struct EngineErrors {
  double allocated = 0;
  double reserved = 0;
  double device = 0;
  std::string source;  ///< runs, machines and model code
};

/// Errors for a configuration on a GPU, given by its catalogue name; none if no run of that engine
/// on that GPU with these options was compared. Requires an engine other than mfsdp.
[[nodiscard]] std::optional<EngineErrors> engine_errors(EngineKind engine, const PlanConfig& config,
                                                        std::string_view gpu,
                                                        const EngineOptions& options = {});

/// A sentence which explains that the memory error is not known; for use without engine_errors().
[[nodiscard]] std::string unknown_memory_error(EngineKind engine, std::string_view gpu,
                                               const EngineOptions& options = {});

}  // namespace mfsdp
