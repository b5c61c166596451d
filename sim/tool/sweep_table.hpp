// Candidates of a sweep or of a search as a table for people.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/cli/common_options.hpp"
#include "core/cli/table.hpp"
#include "core/cli/text_style.hpp"
#include "sim/search/candidates.hpp"

namespace mfsdp {

/// Positions of the candidates on their model's Pareto front of allocated memory and tokens per
/// second and GPU, among those that fit; by model, then by memory.
[[nodiscard]] std::vector<std::size_t> front_of(const std::vector<Candidate>& candidates);

/// A row for each candidate at `places`: its values on the axes, then memory and speed, and a mark
/// if it is on the front. Training columns if a run has an estimate.
[[nodiscard]] Table candidate_table(const std::vector<SearchAxis>& axes,
                                    const std::vector<Candidate>& candidates,
                                    std::span<const std::size_t> places);

/// The whole answer to a sweep: the table, what the marks mean, what is invalid and why, where the
/// runs are stored.
[[nodiscard]] std::string sweep_table(const std::vector<SearchAxis>& axes,
                                      const std::vector<Candidate>& candidates, OutputFormat format,
                                      const TextStyle& style, const std::string& stored);

}  // namespace mfsdp
