#include "sim/search/candidates.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "sim/search/expert_capacity.hpp"
#include "sim/search/parallel.hpp"

namespace mfsdp {
namespace {

/// The candidate with its outcome.
Candidate predicted(Candidate candidate, Predict what) {
  const PredictionRequest request = *candidate.request;
  const auto invalid = [&](Error error) {
    candidate.invalid = std::move(error);
    candidate.request.reset();
    return std::move(candidate);
  };
  const bool must_fit = what == Predict::what_fits;
  if (must_fit)
    if (auto lack = lack_of_capacity(request)) return invalid(*std::move(lack));
  if (must_fit && cannot_fit(request)) {
    candidate.too_large = true;
    return candidate;
  }
  const auto ready = with_program(request);
  if (!ready) {
    candidate.invalid = ready.error();
    return candidate;
  }
  if (must_fit && !fits(*ready)) {
    candidate.memory = footprint_of(*ready);
    candidate.too_large = true;
    return candidate;
  }
  auto prediction = predict(*ready);
  if (!prediction) {
    candidate.invalid = prediction.error();
    return candidate;
  }
  candidate.run = std::move(prediction->run);
  candidate.run->timeline.clear();
  candidate.run->memory_timeline.clear();
  return candidate;
}

/// Figures that are compared: of runs, and those that no run beats.
struct Bound {
  double score = 0;
  double also = 0;
  Bytes memory;
};

Bound bound_of(const RunFigures& figures, const Pruning& pruning) {
  return {.score = pruning.score(figures),
          .also = pruning.also ? pruning.also(figures) : 0,
          .memory = figures.memory.deciding()};
}

/// Works on candidates in parallel, and hands their runs on in order.
class Stage {
 public:
  Stage(std::vector<Candidate>& candidates, std::int64_t total, Predict what,
        const SearchHooks& hooks)
      : candidates_(candidates), total_(total), what_(what), hooks_(hooks) {}

  /// False if cancelled.
  Result<bool> predict(std::span<const std::size_t> places) {
    std::vector<bool> finished(places.size(), false);
    std::size_t next = 0;
    Result<void> outcome;
    const auto keep_next = [&] {
      Candidate& candidate = candidates_[places[next++]];
      if (outcome && candidate.run && hooks_.keep) outcome = hooks_.keep(*candidate.run);
    };
    run_in_parallel(
        places.size(), std::thread::hardware_concurrency(),
        [&](std::size_t i) { return predicted(candidates_[places[i]], what_); },
        [&](std::size_t i, Candidate&& candidate) {
          if (hooks_.progress) hooks_.progress(++done_, total_);
          candidates_[places[i]] = std::move(candidate);
          finished[i] = true;
          while (next < finished.size() && finished[next]) keep_next();
          return outcome && !hooks_.stop();
        });
    while (next < finished.size()) keep_next();  // after a cancellation: those beyond a gap
    MFSDP_TRY(outcome);
    return !hooks_.stop();
  }

  /// The bounds of the candidates at `places`, by place. Candidates whose least memory does not fit
  /// are too large, and done.
  std::vector<Bound> bounds(std::span<const std::size_t> places, const Pruning& pruning) {
    std::vector<Bound> all(candidates_.size());
    run_in_parallel(
        places.size(), std::thread::hardware_concurrency(),
        [&](std::size_t i) -> std::optional<Bound> {
          const PredictionRequest& request = *candidates_[places[i]].request;
          if (cannot_fit(request)) return std::nullopt;
          return bound_of(pruning.best_case(request), pruning);
        },
        [&](std::size_t i, std::optional<Bound>&& bound) {
          all[places[i]] = bound.value_or(Bound{});
          candidates_[places[i]].too_large = !bound;
          if (!bound && hooks_.progress) hooks_.progress(++done_, total_);
          return !hooks_.stop();
        });
    return all;
  }

  /// Counts it as done.
  void prune(std::size_t place) {
    candidates_[place].pruned = true;
    ++done_;
  }

 private:
  std::vector<Candidate>& candidates_;
  std::int64_t total_;
  Predict what_;
  const SearchHooks& hooks_;
  std::int64_t done_ = 0;
};

bool beats(const Bound& one, const Bound& other, bool has_second) {
  if (!has_second) return one.score > other.score;
  return one.score >= other.score && one.also >= other.also && one.memory <= other.memory;
}

}  // namespace

const Setting* Candidate::find(std::string_view flag) const {
  const auto found = std::ranges::find(settings, flag, &Setting::flag);
  return found == settings.end() ? nullptr : &*found;
}

Result<Candidate> make_candidate(const JobOptions& job, std::vector<Setting> settings,
                                 PredictionRequests& requests) {
  Candidate candidate;
  auto request = requests.read(with_settings(job, settings));
  candidate.settings = std::move(settings);
  if (request)
    candidate.request = *std::move(request);
  else if (request.error().fault == Fault::environment || request.error().where == "--price")
    return tl::unexpected<Error>(request.error());
  else
    candidate.invalid = request.error();
  return candidate;
}

Result<std::vector<Candidate>> make_candidates(const JobOptions& job, const SearchSpace& space,
                                               PredictionRequests& requests,
                                               const SearchHooks& hooks, Refusals* refusals) {
  std::vector<Candidate> candidates;
  std::optional<Error> first;
  bool any_valid = false;
  for (std::size_t i = 0; i < space.size(); ++i) {
    std::vector<Setting> settings = space.combination(i);
    if (hooks.stop()) {
      candidates.emplace_back().settings = std::move(settings);
      any_valid = true;
      continue;
    }
    MFSDP_LET(candidate, make_candidate(job, std::move(settings), requests));
    any_valid |= !candidate.invalid;
    if (candidate.invalid && !first) first = candidate.invalid;
    if (candidate.invalid && refusals != nullptr)
      refusals->add(*candidate.invalid);
    else
      candidates.push_back(std::move(candidate));
  }
  if (!any_valid) return tl::unexpected<Error>(*first);
  return candidates;
}

std::vector<std::size_t> open_candidates(const std::vector<Candidate>& candidates) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].request && !candidates[i].too_large) places.push_back(i);
  return places;
}

Result<bool> predict_candidates(std::vector<Candidate>& candidates, std::vector<std::size_t> places,
                                Predict what, const SearchHooks& hooks, const Pruning* pruning) {
  Stage stage(candidates, std::ssize(places), what, hooks);
  if (pruning == nullptr) return stage.predict(places);

  const std::vector<Bound> bounds = stage.bounds(places, *pruning);
  if (hooks.stop()) return false;
  std::erase_if(places, [&](std::size_t place) { return candidates[place].too_large; });
  std::ranges::stable_sort(places, std::ranges::greater{},
                           [&](std::size_t place) { return bounds[place].score; });
  const bool has_second = static_cast<bool>(pruning->also);
  std::vector<Bound> runs;
  for (std::size_t begin = 0; begin < places.size(); begin += kRound) {
    std::vector<std::size_t> round;
    for (std::size_t i = begin; i < std::min(begin + kRound, places.size()); ++i) {
      const Bound& bound = bounds[places[i]];
      if (std::ranges::any_of(runs,
                              [&](const Bound& run) { return beats(run, bound, has_second); }))
        stage.prune(places[i]);
      else
        round.push_back(places[i]);
    }
    MFSDP_LET(whole, stage.predict(round));
    if (!whole) return false;
    for (const std::size_t place : round)
      if (const auto& run = candidates[place].run; run && can_run(*run))
        runs.push_back(bound_of(*run, *pruning));
  }
  return true;
}

}  // namespace mfsdp
