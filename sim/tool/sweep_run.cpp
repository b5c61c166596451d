#include "sim/tool/sweep_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/cli/path_check.hpp"
#include "reports/render/output.hpp"
#include "sim/search/expert_capacity.hpp"
#include "sim/search/training_cost.hpp"
#include "sim/tool/search_session.hpp"
#include "sim/tool/sweep_table.hpp"

namespace mfsdp {
namespace {

std::vector<RunResult> runs_of(const std::vector<Candidate>& candidates) {
  std::vector<RunResult> runs;
  for (const Candidate& candidate : candidates)
    if (candidate.run) runs.emplace_back(*candidate.run);
  return runs;
}

/// After an interruption.
std::int64_t not_predicted(const std::vector<Candidate>& candidates) {
  return std::ranges::count_if(candidates, [](const Candidate& c) { return !c.run && !c.invalid; });
}

/// For formats that hold runs alone.
void report_interrupted(const std::vector<Candidate>& candidates, const Session& session) {
  session.err << fmt::format("{}: interrupted; {} of {} combinations are not predicted\n",
                             session.tool, not_predicted(candidates), candidates.size());
}

/// For formats that hold runs alone.
void report_invalid(const std::vector<Candidate>& candidates, const Session& session) {
  const auto is_invalid = [](const Candidate& c) { return c.invalid.has_value(); };
  const auto first = std::ranges::find_if(candidates, is_invalid);
  if (first == candidates.end()) return;
  session.err << fmt::format(
      "{}: note: {} of {} combinations are not possible, the first because "
      "{}\n",
      session.tool, std::ranges::count_if(candidates, is_invalid), candidates.size(),
      first->invalid->message());
}

}  // namespace

Result<ExitCode> run_sweep(const SweptArguments& swept, const SimOptions& options,
                           const Session& session) {
  MFSDP_TRY(check_several(options, "a comma list of " + swept.lists.front().flag));
  MFSDP_TRY(check_paths(options.common, session.scenarios));
  MFSDP_LET(space, read_space(swept));
  PredictionRequests requests(session.scenarios, notes_on(session.err, session.tool));
  SearchSession search(options.common, session);
  const SearchHooks hooks = search.hooks();
  MFSDP_LET(candidates, make_candidates(options, space, requests, hooks));
  MFSDP_LET(complete, predict_candidates(candidates, open_candidates(candidates),
                                         Predict::everything, hooks));
  MFSDP_TRY(search.flush());
  for (Candidate& candidate : candidates)
    if (candidate.run)
      estimate_training(*candidate.run, options.prices, options.tokens, options.failures);

  const OutputFormat format = options.common.output;
  if (format == OutputFormat::text || format == OutputFormat::md) {
    session.out << sweep_table(space.axes, candidates, format, session.style,
                               search.store().note());
  } else {
    report_invalid(candidates, session);
    if (!complete) report_interrupted(candidates, session);
    session.out << render_sweep(runs_of(candidates), not_predicted(candidates), format,
                                session.style, search.store().note());
  }
  MFSDP_TRY(search.store().outcome());
  if (!complete) return ExitCode::interrupted;
  const bool all_fit = std::ranges::all_of(candidates, [&](const Candidate& candidate) {
    return candidate.invalid || passes_fit(*candidate.run, options.allow_within_error);
  });
  return options.require_fit && !all_fit ? ExitCode::negative : ExitCode::good;
}

}  // namespace mfsdp
