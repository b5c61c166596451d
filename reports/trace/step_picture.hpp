// A step as a picture for people: an SVG file that any browser shows, in light and in dark.
//
//   compute         | F 0 | F 1 | B 1 | B 0 |      a box an op, units' names above
//   all_gather  | AG 1 |                           one row a stream
//   memory        _--===--__                       bytes that change in the step, by category
//
// Pointing at a box shows the op's name and duration.
#pragma once

#include <filesystem>
#include <span>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Draws the step from its begin to its end; of launches of ranks the first rank. Ops narrower than
/// half a pixel share a box, so that a picture of any step is small. With `program`, the program of
/// the run's plan, units are named. Memory is drawn where the run has it. Errors: as
/// write_chrome_trace.
[[nodiscard]] Result<void> write_step_picture(const RunResult& run,
                                              const std::filesystem::path& path,
                                              const Program* program = nullptr,
                                              std::span<const Program> job = {});

/// Writes the file of --trace: a picture if the path ends in ".svg", else a Chrome trace. `job`: as
/// trace_model().
[[nodiscard]] Result<void> write_trace(const RunResult& run, const std::filesystem::path& path,
                                       const Program* program = nullptr,
                                       std::span<const Program> job = {});

}  // namespace mfsdp
