#include "sim/tool/one_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/path_check.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "core/recipe/module_tree.hpp"
#include "core/request/plan_file.hpp"
#include "reports/budget/budget.hpp"
#include "reports/render/explain.hpp"
#include "reports/render/output.hpp"
#include "reports/session/run_store.hpp"
#include "reports/trace/chrome_trace.hpp"
#include "reports/trace/step_picture.hpp"
#include "sim/engines/engine_snapshot.hpp"
#include "sim/search/expert_capacity.hpp"
#include "sim/search/prediction_requests.hpp"
#include "sim/search/training_cost.hpp"
#include "sim/search/would_fit.hpp"
#include "sim/simulator/critical_path.hpp"
#include "sim/tool/explain_engine.hpp"
#include "sim/tool/explain_network.hpp"
#include "sim/tool/snapshot_file.hpp"

namespace mfsdp {
namespace {

Result<void> write_files(const SimOptions& asked, const PredictionRequest& request,
                         const PredictedRun& run, const Program& program) {
  const CommonOptions& options = asked.common;
  MFSDP_TRY(request.job ? write_plan(options, *request.job) : write_plan(options, program));
  if (asked.memory_snapshot) {
    const MemorySnapshot snapshot =
        engine_snapshot(request.step->plan, request.step->settings, asked.alloc_conf.value_or(""),
                        request.step->memory.steps);
    MFSDP_TRY(write_file_atomically(*asked.memory_snapshot, to_pickle(snapshot)));
  }
  if (options.trace) MFSDP_TRY(write_trace(run, *options.trace, &program));
  if (options.memory_trace) MFSDP_TRY(write_memory_trace(run, *options.memory_trace));
  return {};
}

/// The largest shares of a path; what is left is one row.
std::string shares_table(const std::string& title, const std::vector<PathShare>& shares,
                         Nanos length, const TextStyle& style) {
  constexpr std::size_t rows = 8;
  Table table{.columns = {{title}, {"time", Align::right}, {"share", Align::right}}, .rows = {}};
  const auto add = [&](const std::string& name, Nanos time) {
    const double whole = static_cast<double>(std::max<std::int64_t>(length.value, 1));
    table.rows.push_back(
        {name, format_duration(time), format_percent(static_cast<double>(time.value) / whole)});
  };
  Nanos rest;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (i < rows)
      add(shares[i].name, shares[i].time);
    else
      rest += shares[i].time;
  }
  if (shares.size() > rows) add(fmt::format("{} others", shares.size() - rows), rest);
  return render_table(table, style);
}

std::string explain_critical_path(const CriticalPath& path, const TextStyle& style) {
  return fmt::format(
      "Critical path: {} ops that take {} one after another; {} has the largest "
      "share.{}{}\n\n{}\n{}",
      format_count(std::ssize(path.ops)), format_duration(path.length),
      path.bounding_unit.empty() ? "nothing" : path.bounding_unit,
      path.before_step > Nanos(0)
          ? fmt::format("\nIts first {} run before the step begins, while the step before ends.",
                        format_duration(path.before_step))
          : "",
      path.abridged
          ? "\nOnly two of the repeated microbatches are counted: the step is too long to keep all."
          : "",
      shares_table("kind", path.by_kind, path.length, style),
      shares_table("unit", path.by_unit, path.length, style));
}

/// The path consists of ops of the GPU; the host's work is between them.
std::string host_part(const TimeSummary& time) {
  if (!time.host || time.host->bound <= Nanos(0)) return "";
  return fmt::format("\nBetween these ops the GPU waits {} for the host to issue the next one.\n",
                     format_duration(time.host->bound));
}

Result<std::string> explanation(const SimOptions& options, const PredictionRequest& request,
                                const Prediction& prediction, const TextStyle& style,
                                PredictionRequests& requests, const Program& program) {
  if (!options.explain) return std::string();
  switch (*options.explain) {
    case Explain::memory:
      if (request.step) return "\n" + explain_engine_memory(request, prediction, style);
      return "\n" + explain_memory(prediction.run, style);
    case Explain::layout:
      return "\n" + module_tree_text(make_model(program.config)) + "\n" +
             explain_layout(program, style);
    case Explain::network: {
      MFSDP_LET(text, explain_network(options, requests, style));
      return "\n" + text;
    }
    case Explain::critical_path: break;
  }
  const Plan* plan = program.find_plan(PlanRole::train);
  return "\n" + explain_critical_path(critical_path(program, *plan, prediction.simulation), style) +
         host_part(prediction.run.time);
}

/// The message of a refusal without the flag, which was not given, and without the advice to leave
/// it out (cannot_predict() in sim/engines/engine.hpp).
std::string reason_of(const Error& error, std::string_view engine) {
  std::string_view text = error.what;
  const std::string flag = fmt::format("--engine {} ", engine);
  if (text.starts_with(flag)) text.remove_prefix(flag.size());
  return std::string(text.substr(0, text.find("; ")));
}

/// The same job under PyTorch FSDP2 compiled, or why it cannot be predicted. Its time does not grow
/// with the number of GPUs either: ranks that behave alike are simulated once.
OtherEngine under_fsdp2(const SimOptions& options, PredictionRequests& requests) {
  OtherEngine other;
  other.engine = stored_name(EngineKind::fsdp2_compile);
  const auto predicted = [&]() -> Result<Prediction> {
    SimOptions asked = options;
    asked.engine = EngineKind::fsdp2_compile;
    MFSDP_LET(request, requests.read(asked));
    return predict(request);
  }();
  if (!predicted) {
    other.reason = reason_of(predicted.error(), to_string(EngineKind::fsdp2_compile));
    return other;
  }
  const PredictedRun& run = predicted->run;
  other.fits = run.memory.fits;
  other.certain = run.memory.cached->certain;
  other.memory = run.memory.deciding();
  other.capacity = run.memory.capacity;
  other.step = run.time.step;
  other.recompute = run.config.recompute.kind;
  return other;
}

/// Whether to suggest predictions of other engines, where only our own was predicted. Other engines
/// cannot run a plan from a file, and CSV output has columns only.
bool asks_for_others(const SimOptions& options) {
  return traits_of(options.engine).runs_plans && !options.common.plan && !options.routing &&
         options.common.output != OutputFormat::csv;
}

std::optional<std::string> routing_file(const SimOptions& options) {
  if (!options.routing || !options.routing->is_file) return std::nullopt;
  return options.routing->text;
}

/// The run's output with the budget's report, for which a CSV, being one table, has no place.
std::string with_budget(std::string output, OutputFormat format, const BudgetReport& report,
                        const TextStyle& style) {
  switch (format) {
    case OutputFormat::text: return output + "\n" + wrap_text(render_budget_text(report), style);
    case OutputFormat::md: return output + "\n" + render_budget_markdown(report);
    case OutputFormat::json:
    case OutputFormat::jsonl: return add_budget(output, report);
    case OutputFormat::csv: break;
  }
  return output;
}

/// The budget's lines on session.err, and the run's output with its report.
std::string judged(std::string output, OutputFormat format, const BudgetReport& report,
                   const Session& session) {
  for (const std::string& line : failure_lines(report))
    session.err << session.tool << ": " << line << "\n";
  if (format == OutputFormat::csv)
    for (const std::string& note : report.notes)
      session.err << fmt::format("{}: note: {}: {}\n", session.tool, printable(report.file), note);
  return with_budget(std::move(output), format, report, session.style);
}

/// Why a run does not pass --require-fit.
std::string why_unfit(const PredictedRun& run) {
  if (!run.memory.fits) return "does not fit";
  if (run.memory.barely_fits())
    return "fits within the error of the prediction alone; --allow-within-error accepts that";
  return "the routing sends more rows than there is room for";
}

/// The error of a prediction, with the file of the plan if it came from one.
Error in_plan_file(Error error, const CommonOptions& common) {
  if (common.plan)
    error.where = error.where.empty() ? *common.plan : *common.plan + ": " + error.where;
  return error;
}

}  // namespace

Result<ExitCode> run_one(const SimOptions& options, const Session& session) {
  const CommonOptions& common = options.common;
  MFSDP_TRY(
      check_paths(common, session.scenarios,
                  {.read = {{"--budget", options.budget}, {"--routing", routing_file(options)}},
                   .written = {{"--budget-out", options.budget_out},
                               {"--memory-snapshot", options.memory_snapshot}}}));
  std::optional<Budget> budget;
  if (options.budget) {
    MFSDP_LET(loaded, load_budget(*options.budget));
    budget = std::move(loaded);
  }
  PredictionRequests requests(session.scenarios, notes_on(session.err, session.tool));
  MFSDP_LET(asked, requests.read(options));
  MFSDP_LET(request, with_program(std::move(asked)));
  auto predicted = predict(request);
  if (!predicted) return tl::unexpected<Error>(in_plan_file(std::move(predicted).error(), common));
  Prediction& prediction = *predicted;
  PredictedRun& run = prediction.run;
  sign(run, common, session);
  estimate_training(run, options.prices, options.tokens, options.failures);
  if (!run.memory.fits) run.would_fit = would_fit(options, run, requests);
  const Program& program = programs_of(request)[prediction.simulation.reported_class];
  MFSDP_LET(longer, explanation(options, request, prediction, session.style, requests, program));
  MFSDP_TRY(write_files(options, request, run, program));
  if (asks_for_others(options)) run.other_engines.push_back(under_fsdp2(options, requests));
  const std::string lack = why_unfit(run);
  const bool fits_as_asked = passes_fit(run, options.allow_within_error);
  const RunResult result(std::move(run));
  if (options.budget_out)
    MFSDP_TRY(write_file_atomically(*options.budget_out, budget_text(result)));
  std::optional<BudgetReport> report;
  if (budget)
    report =
        check_budget(*budget, {&result, 1}, {}, {.allow_incomparable = options.allow_incomparable});
  RunStore store(common, session);
  MFSDP_TRY(store.save({&result, 1}));
  std::string text = render_runs({&result, 1}, common.output, session.style, store.note());
  bool good = !options.require_fit || fits_as_asked;
  if (!good) report_note(session.err, "--require-fit: " + lack, session.tool);
  if (report) {
    text = judged(std::move(text), common.output, *report, session);
    good = good && passes(*report);
  }
  session.out << text << wrap_text(longer, session.style);
  MFSDP_TRY(store.outcome());
  return good ? ExitCode::good : ExitCode::negative;
}

}  // namespace mfsdp
