// Two programs measured in turn, so that what drifts (clocks, heat, other users) meets both alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "reports/session/session.hpp"

namespace mfsdp {

struct SampledCommands {
  std::string run;
  std::optional<std::string> against;
  std::int64_t samples = 5;  ///< of each
};

struct CommandSamples {
  std::vector<RunResult> runs;
  std::vector<RunResult> against;
  bool timed = false;        ///< the commands left no results: their own time is the step
  bool interrupted = false;  ///< what was asked for is not complete
};

/// Runs both commands `samples` times, in the order run, against, against, run, run, ... Each
/// leaves one result (--output json or jsonl) on standard output; where the first one leaves none,
/// all are timed from start to end instead. Progress is shown on a terminal's standard error.
/// Errors name the command: it failed, or left no result or several.
[[nodiscard]] Result<CommandSamples> sample_commands(const SampledCommands& commands,
                                                     const Session& session);

}  // namespace mfsdp
