// mfsdp-report history: a figure over many runs, and where it changed for good.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reports/commands/command.hpp"
#include "reports/measures/measure.hpp"
#include "reports/statistics/change_points.hpp"
#include "reports/store/store.hpp"

namespace mfsdp {

/// The runs of one model (or, where none is known, of one name), cluster and kind, whose steps have
/// as many tokens, in the order in which they were made.
struct MeasuredHistory {
  RunGroup group;
  std::string engine;
  std::string name;  ///< of runs of which no model is known: each name is a training of its own
  std::optional<std::int64_t> tokens;  ///< of a step, of all ranks; none: not known
  Measure measure;
  std::vector<StoredRun> runs;
  std::vector<double> values;
  std::vector<ChangePoint> changes;
};

[[nodiscard]] std::string render_history(const std::vector<MeasuredHistory>& histories,
                                         OutputFormat format, bool changes_only,
                                         const TextStyle& style);

[[nodiscard]] Command history_command();

}  // namespace mfsdp
