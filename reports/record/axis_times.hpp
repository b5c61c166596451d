// Exposed communication by axes of the mesh, so that the cost of each way to share work is seen.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan.hpp"
#include "reports/record/facts.hpp"

namespace mfsdp {

/// Time in which no kernel runs and compute waits for collectives over these axes ("tp",
/// "dp_shard+cp").
using AxesTime = std::pair<std::string, Nanos>;

/// `by_communicator`: exposed communication for each of the program's communicators, ns. Facts of
/// topic "exposed": "tp_ns", "dp_shard+cp_ns" and so on, by axes with several ranks. None if all
/// communicators are over dp_shard.
[[nodiscard]] Facts axis_facts(const Program& program,
                               std::span<const std::int64_t> by_communicator);

/// The times that such facts state, the longest first.
[[nodiscard]] std::vector<AxesTime> axis_times(const Facts& facts);

}  // namespace mfsdp
