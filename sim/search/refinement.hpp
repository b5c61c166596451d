// The end of a search: the best combinations again with other choices of what changes little but
// the order and memory of a step, and so need not be combined with all the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/search/candidates.hpp"

namespace mfsdp {

/// `transports` varies --placement and, on GPUs with NVLink, --gather and --reduce in the best
/// combination of each strategy. `schedule` varies --prefetch, --grad-slots and, where several
/// ranks have the same experts, --expert-strategy in the kRefined best combinations.
enum class RefinementKind { transports, schedule };

inline constexpr std::size_t kRefined = 3;

/// Runs that were tried in addition to the combinations.
struct Refinement {
  RefinementKind kind = RefinementKind::schedule;
  std::vector<SearchAxis> axes;  ///< those of them that are open, and that a combination has
  std::size_t refined = 0;       ///< number of combinations that were varied
  std::vector<Candidate> candidates;
  std::vector<std::size_t> bases;  ///< for each candidate, the position of what it varies
};

/// Candidates of a refinement, not predicted yet. `ranked`: positions of the combinations to vary,
/// best first; `batch`: the global batch that all share. Errors: as make_candidate().
[[nodiscard]] Result<Refinement> refine(RefinementKind kind, const JobOptions& job,
                                        const SearchSpace& space,
                                        const std::vector<Candidate>& candidates,
                                        const std::vector<std::size_t>& ranked,
                                        std::optional<std::int64_t> batch,
                                        PredictionRequests& requests, const SearchHooks& hooks);

/// Appends the refinement's candidates at `places` to `candidates`, and to the space those axes in
/// which one of them differs from what it varies.
void adopt(Refinement& refinement, const std::vector<std::size_t>& places, SearchSpace& space,
           std::vector<Candidate>& candidates);

/// The candidate's value on an axis, as the flag takes it: of its setting or, if it has none, of
/// its configuration. Empty if it has no such choice.
[[nodiscard]] std::string value_text(const Candidate& candidate, const SearchAxis& axis);

}  // namespace mfsdp
