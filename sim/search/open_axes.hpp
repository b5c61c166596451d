// Axes that a search adds to those of the command line: fields that the job leaves open.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "sim/search/space.hpp"

namespace mfsdp {

/// Fields that a search varies only if asked: their names as --axes has them, which are the flags
/// without dashes. The axes of the mesh and the schedule of stages are what "all" stands for.
///   tp, cp               powers of two inside a node
///   pp                   powers of two, up to kMostStages and the model's blocks
///   vpp, schedule        chunks of a stage, and orders of its microbatches
///   ep                   powers of two that divide the experts, over any number of nodes
///   fp8                  off and every recipe: it changes the numbers, and "all" leaves it out
///   placement, gather, reduce   with every combination; else only with the best ones
[[nodiscard]] Result<void> check_axis_names(std::span<const std::string> names);

/// The space with further axes for the fields that are open: --strategy, --recompute, --micro-batch
/// and --outer-dp, and --ep for models with experts; for other engines those that they know. Then
/// those of `asked`. Partial recomputation is chosen for the job's own model. With axes of the mesh
/// there are fewer values of --recompute, --micro-batch and --outer-dp. Errors: an asked axis that
/// is set or listed as well; axes of the mesh without a global batch; more combinations than
/// kMostAddedCombinations, or with asked axes kMostAskedCombinations.
[[nodiscard]] Result<SearchSpace> with_open_axes(SearchSpace space, const JobOptions& job,
                                                 PredictionRequests& requests,
                                                 std::span<const std::string> asked = {});

inline constexpr std::size_t kMostAddedCombinations = 20'000;
inline constexpr std::size_t kMostAskedCombinations = 100'000;
inline constexpr std::int64_t kMostStages = 64;

}  // namespace mfsdp
