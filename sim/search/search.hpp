// The best configurations of a search space.
//
//   PredictionRequests requests(scenarios);
//   JobOptions job;
//   job.common.model = "llama3_8b";
//   job.common.gpus = 64;
//   const auto space = with_open_axes({}, job, requests);  // or axes of one's own
//   const auto result = search(job, *space, {.score = tokens_per_second}, requests);
//   result->candidates[result->ranked.front()].run;  // the fastest
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/search/candidates.hpp"
#include "sim/search/open_axes.hpp"
#include "sim/search/refinement.hpp"
#include "sim/search/shared_batch.hpp"

namespace mfsdp {

struct SearchGoal {
  Score score;  ///< what the best has most of: tokens_per_second(), or 1 / cost_of()
  /// A second goal: then all are kept that no other beats in both scores and in memory.
  Score also = {};
  /// Figures that no run of a candidate, nor of a refinement of it, beats; cheaper than a prediction
  /// (StepFloors). Empty: none are known. Candidates that even so are not good enough are pruned,
  /// not predicted.
  std::function<RunFigures(const PredictionRequest&)> best_case = {};
};

/// Outcomes of the combinations; refinements of them are not counted.
struct SearchCounts {
  std::int64_t combinations = 0;
  std::int64_t invalid = 0;
  std::int64_t too_large = 0;
  std::int64_t pruned = 0;
  std::int64_t predicted = 0;  ///< these fit
};

/// Runs that a stage of refinements tried.
struct RefinementReport {
  RefinementKind kind = RefinementKind::schedule;
  std::vector<SearchAxis> axes;
  std::size_t refined = 0;  ///< number of combinations that were varied
};

struct SearchResult {
  SearchSpace space;  ///< with the axes that the search added
  /// The combinations that are no invalid ones, in order, then refinements that gain.
  std::vector<Candidate> candidates;
  std::vector<std::size_t> ranked;  ///< positions of those that fit, best first
  SearchCounts counts;
  std::vector<Refusal> refusals;  ///< of counts.invalid, by rule, the most frequent first
  std::optional<SharedBatch> batch;
  std::vector<RefinementReport> refinements;
  bool complete = true;  ///< false: cancelled; then nothing is ranked
};

/// Predicts every combination that fits, with one global batch for all (share_batch()). If none
/// fits, and some are too large, tries all again with memory_axes(). Then refines the best ones; a
/// refinement is a candidate of the result only if it gains more than 0.2 % on what it varies.
/// Equal scores are ranked by memory, then by position. The result does not depend on the number of
/// threads. Errors: as make_candidates(), and those of hooks.keep.
[[nodiscard]] Result<SearchResult> search(const JobOptions& job, const SearchSpace& space,
                                          const SearchGoal& goal, PredictionRequests& requests,
                                          const SearchHooks& hooks = {});

/// The combination that comes closest to fitting, if none fits; a plan may be built for it.
struct Smallest {
  const Candidate* candidate = nullptr;  ///< null if no combination is valid
  Bytes allocated;
};
[[nodiscard]] Smallest smallest(const std::vector<Candidate>& candidates);

}  // namespace mfsdp
