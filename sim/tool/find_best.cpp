#include "sim/tool/find_best.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/help.hpp"
#include "core/cli/wrap.hpp"
#include "reports/record/result_json.hpp"
#include "reports/render/output.hpp"
#include "sim/search/bounds.hpp"
#include "sim/search/fit_search.hpp"
#include "sim/search/search.hpp"
#include "sim/search/training_cost.hpp"
#include "sim/tool/find_why.hpp"
#include "sim/tool/memory_warning.hpp"
#include "sim/tool/search_session.hpp"
#include "sim/tool/space_flags.hpp"
#include "sim/tool/sweep_table.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kFrontRows = 12;

/// With --axes there are too many combinations to predict all that fit.
SearchGoal goal_of(const SimOptions& options, StepFloors& floors) {
  const Score speed = [&](const RunFigures& run) {
    return tokens_per_second(run) * goodput_of(run.cluster.gpus, options.failures);
  };
  const Score thrift = [&](const RunFigures& run) {
    return 1 / cost_of(run, options.prices, options.failures);
  };
  SearchGoal goal{.score = options.find == Find::cheapest ? thrift : speed};
  if (options.find == Find::pareto) goal.also = thrift;
  if (!options.axes.empty())
    goal.best_case = [&](const PredictionRequest& request) { return floors.best_case(request); };
  return goal;
}

constexpr std::size_t kRefusalRows = 8;
constexpr std::size_t kStatedRules = 3;  ///< where nothing fits

/// "  --tp: 1,152, as cannot be combined with --pp so far": a line for each rule.
std::string refusals_text(const std::vector<Refusal>& refusals) {
  std::string text = refusals.empty() ? "" : "Invalid, by rule:\n";
  for (std::size_t i = 0; i < std::min(refusals.size(), kRefusalRows); ++i)
    text += fmt::format("  {:>9}  {}\n", format_count(refusals[i].count),
                        printable(refusals[i].first.message()));
  if (refusals.size() > kRefusalRows) {
    std::int64_t others = 0;
    for (std::size_t i = kRefusalRows; i < refusals.size(); ++i) others += refusals[i].count;
    text += fmt::format("  {:>9}  for {} other rules (--output json has all)\n",
                        format_count(others), refusals.size() - kRefusalRows);
  }
  return text;
}

std::string counted(std::int64_t count, const char* one, const char* many) {
  return format_count(count) + (count == 1 ? one : many);
}

/// The line that names the global batch of all combinations.
std::string batch_text(const SharedBatch& batch) {
  std::string share;
  if (batch.gpus != 0)
    share = fmt::format(": {} for each of {} GPUs{}", format_count(batch.per_gpu),
                        format_count(batch.gpus),
                        batch.is_largest_that_fits ? ", the largest micro-batch that fits" : "");
  return fmt::format(
      "Global batch {} sequences in every combination{}; --global-batch sets another.\n",
      format_count(batch.sequences), share);
}

/// "The 3 best also with --prefetch 1,2,3 and --grad-slots 2,3,4.\n"
std::string refinement_text(const RefinementReport& refinement) {
  std::vector<std::string> flags;
  for (const SearchAxis& axis : refinement.axes) flags.push_back(axis.text());
  const std::string last = flags.back();
  flags.pop_back();
  const std::string which = refinement.refined == 1 ? "The best"
                            : refinement.kind == RefinementKind::transports
                                ? "The best of each strategy"
                                : fmt::format("The {} best", refinement.refined);
  return fmt::format("{} also with {}{}.\n", which,
                     flags.empty() ? "" : fmt::format("{} and ", fmt::join(flags, ", ")), last);
}

/// A finished search in every output format.
class BestReport {
 public:
  BestReport(const SearchResult& result, const SimOptions& options)
      : result_(result), options_(options), candidates_(result.candidates) {
    for (const SearchAxis& axis : result.space.axes)
      if (axis.values.size() > 1) axes_.push_back(axis);
  }

  [[nodiscard]] std::string text(const TextStyle& style, const std::string& stored) const {
    std::string text = tried_text() + "\n";
    if (is_empty()) return text + nothing_fits();
    text += fmt::format("{}: {}, {}\n", title(), winner_flags(), scored(*winner().run));
    if (has_second())
      text += fmt::format("  Second best: {}, {}\n  Why: {}.\n", described(second()),
                          scored(*second().run), why());
    std::vector<std::size_t> front = trade_offs();
    const std::size_t all = front.size();
    if (all > kFrontRows)
      front.erase(front.begin(), front.end() - static_cast<std::ptrdiff_t>(kFrontRows));
    text += fmt::format(
        "\nBest trade-offs of {}{}{}:\n{}\n",
        options_.find == Find::pareto ? "memory, speed and cost" : "memory and speed",
        has_whole_front() ? "" : " among the predicted",
        all > kFrontRows ? fmt::format(" (the fastest {} of {})", kFrontRows, all) : std::string(),
        render_table(candidate_table(axes_, candidates_, front), style));
    const RunResult shown(*winner().run);
    return text + render_runs({&shown, 1}, OutputFormat::text, style, stored);
  }

  /// All that fit, best first.
  [[nodiscard]] std::string markdown() const {
    if (is_empty()) return tried_text() + "\n" + nothing_fits();
    Table table = candidate_table(axes_, candidates_, result_.ranked);
    table.columns.insert(table.columns.begin(), {"rank", Align::right});
    for (std::size_t i = 0; i < table.rows.size(); ++i)
      table.rows[i].insert(table.rows[i].begin(), fmt::format("{}", i + 1));
    return render_markdown_table(table) +
           fmt::format("\n**{}: {}, {}**\n\n{}", title(), winner_flags(), scored(*winner().run),
                       tried_text()) +
           "* no other row needs less memory and is as fast.\n";
  }

  /// All that fit, best first.
  [[nodiscard]] std::string csv() const {
    std::vector<RunResult> runs;
    for (const std::size_t place : result_.ranked) runs.emplace_back(*candidates_[place].run);
    return render_ranked_csv(runs);
  }

  [[nodiscard]] std::string json() const {
    const SearchCounts& counts = result_.counts;
    Json object = {
        {"schema", "mfsdp.find/1"},      {"find", std::string(to_string(*options_.find))},
        {"tried", counts.combinations},  {"impossible", counts.invalid},
        {"too_large", counts.too_large}, {"predicted", counts.predicted}};
    if (!options_.axes.empty()) {
      object["pruned"] = counts.pruned;
      object["refused"] = Json::array();
      for (const Refusal& refusal : result_.refusals)
        object["refused"].push_back({{"flag", refusal.first.where},
                                     {"first", refusal.first.what},
                                     {"count", refusal.count}});
    }
    object["held_global_batch"] = result_.batch ? Json(result_.batch->sequences) : Json(nullptr);
    object["winner"] = is_empty() ? Json(nullptr) : Json::parse(to_json_line(*winner().run));
    object["least"] = is_empty() ? least_object() : Json(nullptr);
    object["why"] = has_second() ? Json(why()) : Json();
    Json front = Json::array();
    for (const std::size_t place : trade_offs()) {
      const PredictedRun& run = *candidates_[place].run;
      Json point = {{"run_id", run.run_id},
                    {"allocated_bytes", run.memory.allocated.value},
                    {"tokens_per_second_per_gpu", run.time.tokens_per_second_per_gpu}};
      if (options_.find == Find::pareto)
        point["cost"] = cost_of(run, options_.prices, options_.failures);
      point.update(values_object(candidates_[place]));
      front.push_back(std::move(point));
    }
    object["pareto"] = std::move(front);
    return object.dump(options_.common.output == OutputFormat::jsonl ? -1 : 2) + "\n";
  }

  /// The winner as a file for --options of all tools, and why it won. `arguments`: the command
  /// line. Requires a winner.
  [[nodiscard]] Result<std::string> options_file(const std::vector<std::string>& arguments) const {
    SimOptions unused;
    MFSDP_LET(flags, candidate_flags(arguments, winner(), plan_flags(unused.common)));
    MFSDP_LET(priced, candidate_flags(arguments, winner(), price_flags(unused)));
    if (result_.batch &&
        std::ranges::find(flags, "--global-batch", &GivenFlag::name) == flags.end())
      flags.push_back(
          {.name = "--global-batch", .value = fmt::format("{}", result_.batch->sequences)});
    std::vector<std::string> comments{
        fmt::format("mfsdp-sim {} --find {}: {} of {} combinations fit", version(),
                    to_string(*options_.find), format_count(result_.counts.predicted),
                    format_count(result_.counts.combinations)),
        fmt::format("Predicted: {}; {}", scored(*winner().run), winner().run->trust.text)};
    if (!priced.empty()) {
      std::string given;
      for (const auto& [name, value] : priced)
        given += " " + name + (value.empty() ? "" : " " + value);
      comments.push_back("Predicted with" + printable(given) +
                         ", which are not part of the plan: give them again");
    }
    if (has_second()) {
      comments.push_back(
          fmt::format("Second best: {}, {}", described(second()), scored(*second().run)));
      comments.push_back(fmt::format("Why: {}", why()));
    }
    return render_options_file(comments, flags);
  }

  [[nodiscard]] bool is_empty() const { return result_.ranked.empty(); }
  [[nodiscard]] const Candidate& winner() const { return candidates_[result_.ranked.front()]; }

 private:
  /// With one goal those are pruned that cannot be the best, though they may need less memory.
  [[nodiscard]] bool has_whole_front() const {
    return options_.find == Find::pareto || options_.axes.empty();
  }
  [[nodiscard]] bool has_second() const { return result_.ranked.size() > 1; }
  [[nodiscard]] const Candidate& second() const { return candidates_[result_.ranked[1]]; }

  [[nodiscard]] std::string title() const {
    return options_.find == Find::cheapest ? "Cheapest" : "Fastest";
  }

  /// Positions of the best trade-offs, by memory.
  [[nodiscard]] std::vector<std::size_t> trade_offs() const {
    if (options_.find != Find::pareto) return front_of(candidates_);
    std::vector<TradeOff> points;
    for (const std::size_t place : result_.ranked) {
      const PredictedRun& run = *candidates_[place].run;
      points.push_back({.memory = run.memory.deciding(),
                        .speed = tokens_per_second(run),
                        .cost = cost_of(run, options_.prices, options_.failures)});
    }
    std::vector<std::size_t> places;
    for (const std::size_t point : pareto_front(points)) places.push_back(result_.ranked[point]);
    return places;
  }

  /// The candidate's values on the axes: "--gpus 8 --micro-batch 2".
  [[nodiscard]] std::string described(const Candidate& candidate) const {
    if (axes_.empty()) return "the one configuration";
    std::string text;
    for (const SearchAxis& axis : axes_)
      if (const std::string value = value_text(candidate, axis); !value.empty())
        text += fmt::format("{}{} {}", text.empty() ? "" : " ", axis.flag, value);
    return text;
  }

  /// The same as JSON.
  [[nodiscard]] Json values_object(const Candidate& candidate) const {
    Json object = Json::object();
    for (const SearchAxis& axis : axes_)
      if (std::string value = value_text(candidate, axis); !value.empty())
        object[axis.name()] = std::move(value);
    return object;
  }

  /// The flags that predict the winner by itself.
  [[nodiscard]] std::string winner_flags() const {
    return described(winner()) + (result_.batch
                                      ? fmt::format(" --global-batch {}", result_.batch->sequences)
                                      : std::string());
  }

  /// The run's speed or cost, with the days and the money of --tokens.
  [[nodiscard]] std::string scored(const RunFigures& run) const {
    if (options_.find != Find::cheapest) {
      std::string speed = format_rate(tokens_per_second(run)) + " tokens/s";
      if (!options_.tokens) return speed;
      return fmt::format(
          "{}, {} days for {} tokens", speed,
          format_real(
              training_of(run, options_.prices, *options_.tokens, options_.failures).seconds /
                  kSecondsPerDay,
              1),
          format_count(*options_.tokens));
    }
    const std::int64_t tokens = options_.tokens.value_or(kPricedTokens);
    const TrainingEstimate training = training_of(run, options_.prices, tokens, options_.failures);
    return fmt::format("{} for {} tokens{}",
                       training.cost ? format_real(*training.cost, 0)
                                     : format_real(training.gpu_hours, 0) + " GPU-hours",
                       format_count(tokens),
                       options_.tokens ? "" : " (--tokens sets another number)");
  }

  /// Why the best is better than the second best.
  [[nodiscard]] std::string why() const {
    const auto compared = [&](const Candidate& candidate) {
      return Compared{.run = *candidate.run,
                      .price = price_of(*candidate.run, options_.prices).value_or(1)};
    };
    return why_better(compared(winner()), compared(second()), *options_.find);
  }

  /// The numbers of outcomes, what was varied, and the batch that all combinations share.
  [[nodiscard]] std::string tried_text() const {
    const SearchCounts& counts = result_.counts;
    const bool pruned = !options_.axes.empty();
    std::string text = fmt::format(
        "Tried {}: {}, {} too large, {} invalid{}.\n",
        counted(counts.combinations, " setting", " settings"),
        pruned ? format_count(counts.predicted) + " predicted"
               : counted(counts.predicted, " fits", " fit"),
        counted(counts.too_large, " is", " are"), counted(counts.invalid, " is", " are"),
        pruned ? fmt::format(", {} cannot be better than these", format_count(counts.pruned)) : "");
    const auto is_refined = [&](const SearchAxis& axis) {
      return std::ranges::any_of(result_.refinements, [&](const RefinementReport& refinement) {
        return std::ranges::find(refinement.axes, axis.flag, &SearchAxis::flag) !=
               refinement.axes.end();
      });
    };
    for (const SearchAxis& axis : axes_)
      if (!is_refined(axis)) text += "  " + axis.text() + "\n";
    if (result_.batch) text += batch_text(*result_.batch);
    for (const RefinementReport& refinement : result_.refinements)
      text += refinement_text(refinement);
    if (pruned) text += refusals_text(result_.refusals);
    return text;
  }

  [[nodiscard]] std::string nothing_fits() const {
    const Smallest least = smallest(candidates_);
    if (least.candidate == nullptr) {
      if (result_.refusals.empty()) return "Nothing fits.\n";
      std::vector<std::string> rules;
      for (const Refusal& refusal : result_.refusals)
        if (rules.size() < kStatedRules) rules.push_back(printable(refusal.first.message()));
      return fmt::format("Nothing fits: {}.\n", fmt::join(rules, "; "));
    }
    const Bytes capacity = least.candidate->request->costs->cluster().gpu.capacity;
    const Bytes reserve = least.candidate->request->reserve;
    return fmt::format(
        "Nothing fits: the least, {}, takes {} of {} GiB{}, {} GiB too much.\n",
        described(*least.candidate), format_gib(least.allocated), format_gib(capacity),
        reserve > Bytes(0) ? fmt::format(", {} GiB to be kept free", format_gib(reserve)) : "",
        format_gib(least.allocated + reserve - capacity));
  }

  /// The combination that comes closest to fitting; null if none is valid.
  [[nodiscard]] Json least_object() const {
    const Smallest least = smallest(candidates_);
    if (least.candidate == nullptr) return nullptr;
    const PredictionRequest& request = *least.candidate->request;
    return {{"flags", values_object(*least.candidate)},
            {"allocated_bytes", least.allocated.value},
            {"capacity_bytes", request.costs->cluster().gpu.capacity.value},
            {"reserve_bytes", request.reserve.value}};
  }

  const SearchResult& result_;
  const SimOptions& options_;
  const std::vector<Candidate>& candidates_;
  std::vector<SearchAxis> axes_;  ///< of several values
};

/// Names no winner: a candidate that was not tried may be better.
ExitCode report_cancelled(const SearchCounts& counts, const SimOptions& options,
                          const Session& session) {
  session.err << fmt::format(
      "{}: interrupted after {} of {} combinations; {} predicted runs are "
      "{}\n",
      session.tool, counts.invalid + counts.too_large + counts.pruned + counts.predicted,
      counts.combinations, counts.predicted,
      options.common.no_save ? "not stored (--no-save)" : "stored");
  return ExitCode::interrupted;
}

std::string rendered(const BestReport& report, OutputFormat format, const TextStyle& style,
                     const std::string& stored) {
  switch (format) {
    case OutputFormat::text: return wrap_text(report.text(style, stored), style);
    case OutputFormat::md: return report.markdown();
    case OutputFormat::csv: return report.csv();
    case OutputFormat::json:
    case OutputFormat::jsonl: break;
  }
  return report.json();
}

}  // namespace

Result<ExitCode> find_best(const SweptArguments& swept, const SimOptions& options,
                           const Session& session) {
  MFSDP_LET(lists, read_space(swept));
  PredictionRequests requests(session.scenarios, notes_on(session.err, session.tool));
  MFSDP_LET(space, with_open_axes(std::move(lists), options, requests, options.axes));
  SearchSession follower(options.common, session);
  StepFloors floors;
  MFSDP_LET(result, search(options, space, goal_of(options, floors), requests, follower.hooks()));
  MFSDP_TRY(follower.flush());
  if (!result.complete) return report_cancelled(result.counts, options, session);
  for (Candidate& candidate : result.candidates)
    if (candidate.run)
      estimate_training(*candidate.run, options.prices, options.tokens, options.failures);
  const BestReport report(result, options);
  session.out << rendered(report, options.common.output, session.style, follower.store().note());
  if (!report.is_empty() && options.tune_out) {
    MFSDP_LET(file, report.options_file(swept.arguments));
    MFSDP_TRY(write_file_atomically(*options.tune_out, file));
  }
  if (!report.is_empty()) warn_of_full_memory(*report.winner().run, session);
  MFSDP_TRY(follower.store().outcome());
  return report.is_empty() ? ExitCode::negative : ExitCode::good;
}

}  // namespace mfsdp
