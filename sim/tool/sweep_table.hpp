// Rows of a sweep or of a search as a table for people.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/cli/table.hpp"
#include "core/cli/text_style.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"
#include "sim/tool/sweep_run.hpp"

namespace mfsdp {

/// Positions of the rows on their model's front of allocated memory against tokens per second and
/// GPU, among those that fit; by model, then by memory.
[[nodiscard]] std::vector<std::size_t> front_of(const std::vector<SweepRow>& rows);

/// A line for each of the rows at `places`: the axes' values, then memory and speed; a mark for
/// those on the front. Training columns where a run has an estimate.
[[nodiscard]] Table rows_table(const Sweep& sweep, const std::vector<SweepRow>& rows,
                               std::span<const std::size_t> places);

/// The whole answer to a sweep: title, table, what the marks mean, what was not possible and why,
/// where the runs are stored.
[[nodiscard]] std::string sweep_table(const Sweep& sweep, const std::vector<SweepRow>& rows,
                                      OutputFormat format, const TextStyle& style,
                                      const std::string& stored);

}  // namespace mfsdp
