// Candidates of a search space: their requests, and their predictions on all cores.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "sim/search/refusals.hpp"
#include "sim/search/space.hpp"

namespace mfsdp {

/// A combination of settings, and its outcome.
struct Candidate {
  std::vector<Setting> settings;             ///< that the job gets, in order
  std::optional<PredictionRequest> request;  ///< none if it is invalid
  std::optional<Error> invalid;              ///< why there is no such configuration
  bool too_large = false;                    ///< not predicted, since it does not fit
  bool pruned = false;                       ///< not predicted, since its bound is not good enough
  std::optional<Footprint> memory;           ///< of plans that were built and do not fit
  std::optional<PredictedRun> run;           ///< without its timelines; none if stopped before it

  /// The candidate's setting of that flag, or null.
  [[nodiscard]] const Setting* find(std::string_view flag) const;
};

/// How a caller follows a search. All are called on the searching thread, and each may be empty.
struct SearchHooks {
  /// `done` of `total` candidates of the present stage are finished.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  /// Asked after each candidate; true stops the search.
  std::function<bool()> cancelled = {};
  /// Gets each run, in the order of the candidates. An error stops the search.
  std::function<Result<void>(PredictedRun&)> keep = {};

  [[nodiscard]] bool stop() const { return cancelled && cancelled(); }
};

/// More is better.
using Score = std::function<double(const RunFigures&)>;

/// Leaves candidates out that cannot become the best, or with a second score cannot be on the front
/// of both scores and memory.
struct Pruning {
  Score score;
  Score also = {};
  /// No run of the candidate, nor of a refinement of it, has better figures. Called on all threads.
  std::function<RunFigures(const PredictionRequest&)> best_case;
};

/// The candidate with those settings. Errors: what no other settings would mend (files, prices).
[[nodiscard]] Result<Candidate> make_candidate(const JobOptions& job, std::vector<Setting> settings,
                                               PredictionRequests& requests);

/// All combinations, in order; those after a cancellation have no request. With `refusals` those
/// that are invalid are counted there and left out. Errors: as make_candidate(), and
/// the first candidate's if all are invalid.
[[nodiscard]] Result<std::vector<Candidate>> make_candidates(const JobOptions& job,
                                                             const SearchSpace& space,
                                                             PredictionRequests& requests,
                                                             const SearchHooks& hooks,
                                                             Refusals* refusals = nullptr);

/// Positions of the candidates whose outcome is open.
[[nodiscard]] std::vector<std::size_t> open_candidates(const std::vector<Candidate>& candidates);

enum class Predict { everything, what_fits };

/// Predicts the candidates at `places`; false if cancelled. With `pruning` those of the best bounds
/// come first, in rounds of kRound, without those whose lower bound of memory does not fit: a
/// candidate is pruned if a run of the rounds before beats its bounds, so that the result does not
/// depend on the number of threads.
[[nodiscard]] Result<bool> predict_candidates(std::vector<Candidate>& candidates,
                                              std::vector<std::size_t> places, Predict what,
                                              const SearchHooks& hooks,
                                              const Pruning* pruning = nullptr);

inline constexpr std::size_t kRound = 8;

}  // namespace mfsdp
