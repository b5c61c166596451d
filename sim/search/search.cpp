#include "sim/search/search.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/search/memory_settings.hpp"

namespace mfsdp {
namespace {

/// A refinement counts only if its score is this much better than that of what it varies.
constexpr double kGain = 1.002;

/// Outcomes of the candidates. Invalid ones among them are refused only now.
SearchCounts count_outcomes(const std::vector<Candidate>& candidates, Refusals& refusals) {
  SearchCounts counts{.combinations = std::ssize(candidates) + refusals.count()};
  for (const Candidate& candidate : candidates) {
    if (candidate.invalid)
      refusals.add(*candidate.invalid);
    else if (candidate.run)
      ++counts.predicted;
    else if (candidate.too_large)
      ++counts.too_large;
    else if (candidate.pruned)
      ++counts.pruned;
  }
  counts.invalid = refusals.count();
  return counts;
}

/// One search and what it works with.
class Search {
 public:
  Search(const JobOptions& job, const SearchGoal& goal, PredictionRequests& requests,
         const SearchHooks& hooks)
      : job_(job),
        goal_(goal),
        requests_(requests),
        hooks_(hooks),
        pruning_{.score = goal.score, .also = goal.also, .best_case = goal.best_case} {}

  Result<SearchResult> run(const SearchSpace& space) {
    MFSDP_TRY(try_space(space));
    if (result_.complete && result_.counts.too_large > 0 && ranked(result_.candidates).empty()) {
      SearchSpace longer = space;
      const std::vector<SearchAxis> axes = memory_axes(job_, space);
      longer.axes.insert(longer.axes.end(), axes.begin(), axes.end());
      if (!axes.empty()) MFSDP_TRY(try_space(longer));
    }
    if (result_.complete) MFSDP_TRY(refine_best());
    if (result_.complete) result_.ranked = ranked(result_.candidates);
    return std::move(result_);
  }

 private:
  Result<void> try_space(const SearchSpace& space) {
    result_.space = space;
    Refusals refusals;
    MFSDP_SET(result_.candidates, make_candidates(job_, space, requests_, hooks_, &refusals));
    result_.batch = share_batch(result_.candidates, job_, space, hooks_);
    MFSDP_TRY(predict(result_.candidates));
    result_.counts = count_outcomes(result_.candidates, refusals);
    result_.refusals = refusals.by_rule();
    return {};
  }

  Result<void> predict(std::vector<Candidate>& candidates) {
    MFSDP_SET(result_.complete,
              predict_candidates(candidates, open_candidates(candidates), Predict::what_fits,
                                 hooks_, pruning_.best_case ? &pruning_ : nullptr));
    return {};
  }

  Result<void> refine_best() {
    const auto batch = result_.batch ? std::optional(result_.batch->sequences) : std::nullopt;
    std::set<std::size_t> outdone;  // combinations of which a refinement is better
    for (const RefinementKind kind : {RefinementKind::transports, RefinementKind::schedule}) {
      std::vector<std::size_t> best = ranked(result_.candidates);
      std::erase_if(best, [&](std::size_t place) { return outdone.contains(place); });
      MFSDP_LET(refinement, refine(kind, job_, result_.space, result_.candidates, best, batch,
                                   requests_, hooks_));
      if (!refinement.candidates.empty())
        result_.refinements.push_back(
            {.kind = kind, .axes = refinement.axes, .refined = refinement.refined});
      MFSDP_TRY(predict(refinement.candidates));
      if (!result_.complete) return {};
      const std::vector<std::size_t> gains = gaining(refinement);
      for (const std::size_t place : gains) outdone.insert(refinement.bases[place]);
      adopt(refinement, gains, result_.space, result_.candidates);
    }
    return {};
  }

  /// Positions of the refinements that gain: of each combination the best one, best first.
  std::vector<std::size_t> gaining(const Refinement& refinement) const {
    std::vector<std::size_t> places;
    std::set<std::size_t> seen;
    for (const std::size_t place : ranked(refinement.candidates)) {
      const std::size_t base = refinement.bases[place];
      if (seen.insert(base).second && goal_.score(*refinement.candidates[place].run) >
                                          kGain * goal_.score(*result_.candidates[base].run))
        places.push_back(place);
    }
    return places;
  }

  std::vector<std::size_t> ranked(const std::vector<Candidate>& candidates) const {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i].run && candidates[i].run->memory.fits) places.push_back(i);
    std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) {
      const RunFigures& one = *candidates[a].run;
      const RunFigures& other = *candidates[b].run;
      const double more = goal_.score(one) - goal_.score(other);
      return more != 0 ? more > 0 : one.memory.allocated < other.memory.allocated;
    });
    return places;
  }

  const JobOptions& job_;
  const SearchGoal& goal_;
  PredictionRequests& requests_;
  const SearchHooks& hooks_;
  Pruning pruning_;
  SearchResult result_;
};

}  // namespace

Result<SearchResult> search(const JobOptions& job, const SearchSpace& space, const SearchGoal& goal,
                            PredictionRequests& requests, const SearchHooks& hooks) {
  return Search(job, goal, requests, hooks).run(space);
}

Smallest smallest(const std::vector<Candidate>& candidates) {
  std::vector<std::pair<Bytes, const Candidate*>> bounds;
  for (const Candidate& candidate : candidates)
    if (candidate.request) bounds.emplace_back(least_allocated(*candidate.request), &candidate);
  std::ranges::stable_sort(bounds, {}, [](const auto& bound) { return bound.first; });
  Smallest found;
  for (const auto& [least, candidate] : bounds) {
    if (found.candidate != nullptr && least >= found.allocated) break;  // none is smaller
    const auto ready = with_program(*candidate->request);
    if (!ready) continue;
    const Footprint memory = footprint_of(*ready);
    if (found.candidate == nullptr || memory.allocated < found.allocated)
      found = {.candidate = candidate, .allocated = memory.allocated};
  }
  return found;
}

}  // namespace mfsdp
