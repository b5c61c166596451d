// Runs in the files of other tools: Perfetto, memory_viz, TensorBoard.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "reports/commands/known_plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

enum class FieldFormat { chrome, memory_snapshot, svg, tensorboard };

constexpr auto value_names(FieldFormat) {
  return name_array("chrome", "memory-snapshot", "svg", "tensorboard");
}

/// The name of a run's file in a folder of such files: "trace_3fa91b2c.json.gz",
/// "memory_3fa91b2c.pickle", "step_3fa91b2c.svg", or the name that TensorBoard looks for.
[[nodiscard]] std::string field_file_name(FieldFormat format, const RunHead& run);

/// An error if the name's ending implies other contents. Unknown endings are permitted.
[[nodiscard]] Result<void> check_field_name(FieldFormat format, const std::filesystem::path& path);

/// Writes one run. Errors: as the writers state; memory-snapshot also for a run whose plan is not
/// known.
[[nodiscard]] Result<void> export_field(FieldFormat format, const RunResult& run, KnownPlans& plans,
                                        const std::filesystem::path& path);

}  // namespace mfsdp
