#include "sim/tool/find_best.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/help.hpp"
#include "core/cli/options_file.hpp"
#include "core/cli/wrap.hpp"
#include "reports/record/result_json.hpp"
#include "reports/render/output.hpp"
#include "sim/tool/asker.hpp"
#include "sim/tool/find_batch.hpp"
#include "sim/tool/find_finer.hpp"
#include "sim/tool/find_leaner.hpp"
#include "sim/tool/find_why.hpp"
#include "sim/tool/memory_warning.hpp"
#include "sim/tool/sweep_run.hpp"
#include "sim/tool/sweep_table.hpp"
#include "sim/tool/training.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostSweptMicroBatch = 256;
constexpr std::size_t kFrontRows = 12;
/// What `cheapest` names the price of where --tokens does not say.
constexpr std::int64_t kPricedTokens = 1'000'000'000'000;
/// A finer choice is taken only where it gains this much over the combination that it varies.
constexpr double kWorth = 1.002;

/// "1,2,4,...": powers of two up to `most`.
std::string powers_up_to(std::int64_t most) {
  std::string list = "1";
  for (std::int64_t value = 2; value <= most; value *= 2) list += fmt::format(",{}", value);
  return list;
}

/// Ranks to deal experts out to: powers of two that divide them, inside a node.
std::string expert_ranks(std::int64_t experts, std::int64_t per_node) {
  std::string list = "1";
  for (std::int64_t ranks = 2; ranks <= per_node && experts % ranks == 0; ranks *= 2)
    list += fmt::format(",{}", ranks);
  return list;
}

/// All policies; of the partial ones those that recompute a quarter, half and three quarters of the
/// blocks.
std::string recompute_choices(std::int64_t layers) {
  std::string list = "none,selective,full";
  std::int64_t before = 0;
  for (const std::int64_t quarters : {1, 2, 3}) {
    const std::int64_t blocks = layers * quarters / 4;
    if (blocks > before) list += fmt::format(",full:{}", blocks);
    before = blocks;
  }
  return list;
}

/// Numbers of groups of whole nodes, as a list: what divides the nodes of any --gpus. Where they do
/// not divide another, that combination is not possible.
Result<std::string> group_counts(const Sweep& sweep, const SimOptions& options, Asker& asker) {
  MFSDP_LET(per_node, asker.gpus_per_node(options));
  MFSDP_LET(limit, asker.limit_of_gpus(options));
  std::set<std::int64_t> worlds;
  for (const SweepAxis& axis : sweep.axes)
    if (axis.flag == "--gpus")
      for (const std::string& value : axis.values)
        worlds.insert(parse_integer(value, axis.flag, {.lowest = 1}).value_or(1));
  if (worlds.empty()) worlds.insert(limit.value_or(options.common.gpus));
  std::set<std::int64_t> counts{1};
  for (const std::int64_t gpus : worlds) {
    const std::int64_t nodes = std::max<std::int64_t>(gpus / per_node, 1);
    for (std::int64_t n = 1; n <= nodes; ++n)
      if (nodes % n == 0) counts.insert(n);
  }
  return fmt::format("{}", fmt::join(counts, ","));
}

/// Money (GPU-hours where there are no prices) for a number of tokens.
double cost_of(const RunFigures& run, const SimOptions& options) {
  const TrainingEstimate training = training_of(run, options, kPricedTokens);
  return training.cost.value_or(training.gpu_hours);
}

/// More is better: tokens per second of all GPUs, or tokens for the money.
double score(const RunFigures& run, const SimOptions& options) {
  if (options.find == Find::cheapest) return 1 / cost_of(run, options);
  return run.time.tokens_per_second_per_gpu * static_cast<double>(run.cluster.gpus);
}

/// The rows that fit, best first; of equals that with the least memory, and the earlier one.
std::vector<std::size_t> ranked(const std::vector<SweepRow>& rows, const SimOptions& options) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].run && rows[i].run->memory.fits) places.push_back(i);
  std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) {
    const RunFigures& one = *rows[a].run;
    const RunFigures& other = *rows[b].run;
    const double more = score(one, options) - score(other, options);
    return more != 0 ? more > 0 : one.memory.allocated < other.memory.allocated;
  });
  return places;
}

/// Positions of the finer choices that are worth it: the best one of each combination, best first.
std::vector<std::size_t> gaining(const Finer& finer, const std::vector<SweepRow>& rows,
                                 const SimOptions& options) {
  std::vector<std::size_t> places;
  std::set<std::size_t> seen;
  for (const std::size_t place : ranked(finer.rows, options)) {
    const std::size_t base = finer.bases[place];
    if (seen.insert(base).second &&
        score(*finer.rows[place].run, options) > kWorth * score(*rows[base].run, options))
      places.push_back(place);
  }
  return places;
}

std::string title_of(const SimOptions& options) {
  return options.find == Find::fastest ? "Fastest" : "Cheapest";
}

std::string described(const Sweep& sweep, const SweepRow& row) {
  return sweep.axes.empty() ? "the one configuration" : sweep.text(row.values);
}

/// What the combination is measured by, and of --tokens what they take.
std::string scored(const RunFigures& run, const SimOptions& options) {
  if (options.find == Find::fastest) {
    const std::string speed = format_rate(score(run, options)) + " tokens/s";
    if (!options.tokens) return speed;
    return fmt::format(
        "{}, {} days for {} tokens", speed,
        format_real(training_of(run, options, *options.tokens).seconds / kSecondsPerDay, 1),
        format_count(*options.tokens));
  }
  const std::int64_t tokens = options.tokens.value_or(kPricedTokens);
  const TrainingEstimate training = training_of(run, options, tokens);
  return fmt::format("{} for {} tokens{}",
                     training.cost ? format_real(*training.cost, 0)
                                   : format_real(training.gpu_hours, 0) + " GPU-hours",
                     format_count(tokens), options.tokens ? "" : " (--tokens sets another number)");
}

/// Why the best is better than the second best.
std::string why(const RunFigures& best, const RunFigures& second, const SimOptions& options) {
  const auto compared = [&](const RunFigures& run) {
    return Compared{.run = run, .price = price_of(run, options.prices).value_or(1)};
  };
  return why_better(compared(best), compared(second), *options.find);
}

/// What the combinations came to; those that vary one of them further are not counted.
struct Counts {
  std::int64_t combinations = 0;
  std::int64_t impossible = 0;
  std::int64_t too_large = 0;
  std::int64_t predicted = 0;
};

Counts count(const std::vector<SweepRow>& rows) {
  Counts counts{.combinations = std::ssize(rows)};
  for (const SweepRow& row : rows) {
    if (row.impossible)
      ++counts.impossible;
    else if (row.run)
      ++counts.predicted;
    else if (row.too_large)
      ++counts.too_large;
  }
  return counts;
}

/// A combination and what it takes.
struct Smallest {
  const SweepRow* row = nullptr;
  Bytes allocated;
};

/// The combination that comes closest to fitting, where none fits. Plans are built in the order of
/// what they take at least, until no other can be smaller.
Smallest smallest(const std::vector<SweepRow>& rows) {
  std::vector<std::pair<Bytes, const SweepRow*>> bounds;
  for (const SweepRow& row : rows)
    if (row.question) bounds.emplace_back(least_allocated(*row.question), &row);
  std::ranges::stable_sort(bounds, {}, [](const auto& bound) { return bound.first; });
  Smallest found;
  for (const auto& [least, row] : bounds) {
    if (found.row != nullptr && least >= found.allocated) break;
    const auto ready = built(*row->question);
    if (!ready) continue;
    const Footprint memory = footprint_of(*ready);
    if (found.row == nullptr || memory.allocated < found.allocated)
      found = {.row = row, .allocated = memory.allocated};
  }
  return found;
}

std::string nothing_fits(const Sweep& sweep, const std::vector<SweepRow>& rows) {
  const Smallest least = smallest(rows);
  if (least.row == nullptr) {
    const auto first =
        std::ranges::find_if(rows, [](const SweepRow& row) { return row.impossible.has_value(); });
    return first == rows.end()
               ? "Nothing fits.\n"
               : fmt::format("Nothing fits: {}.\n", printable(first->impossible->message()));
  }
  const Bytes capacity = least.row->question->costs->cluster().gpu.capacity;
  const Bytes reserve = least.row->question->reserve;
  return fmt::format(
      "Nothing fits: the least, {}, takes {} of {} GiB{}, {} GiB too much.\n",
      described(sweep, *least.row), format_gib(least.allocated), format_gib(capacity),
      reserve > Bytes(0) ? fmt::format(", {} GiB to be kept free", format_gib(reserve)) : "",
      format_gib(least.allocated + reserve - capacity));
}

/// What comes closest to fitting; null where no combination is possible.
Json least_object(const Sweep& sweep, const std::vector<SweepRow>& rows) {
  const Smallest least = smallest(rows);
  if (least.row == nullptr) return nullptr;
  const Question& question = *least.row->question;
  Json flags = Json::object();
  for (std::size_t a = 0; a < sweep.axes.size(); ++a)
    if (const std::string& value = least.row->values[a]; !value.empty())
      flags[sweep.axes[a].name()] = value;
  return {{"flags", std::move(flags)},
          {"allocated_bytes", least.allocated.value},
          {"capacity_bytes", question.costs->cluster().gpu.capacity.value},
          {"reserve_bytes", question.reserve.value}};
}

std::string counted(std::int64_t count, const char* one, const char* many) {
  return format_count(count) + (count == 1 ? one : many);
}

/// How many combinations came to what, the axes, and the batch that they share.
std::string tried_text(const Sweep& sweep, const Counts& counts,
                       const std::optional<HeldBatch>& held) {
  std::string text = fmt::format("Tried {}: {}, {} too large, {} invalid.\n",
                                 counted(counts.combinations, " setting", " settings"),
                                 counted(counts.predicted, " fits", " fit"),
                                 counted(counts.too_large, " is", " are"),
                                 counted(counts.impossible, " is", " are"));
  for (const SweepAxis& axis : sweep.axes)
    text += fmt::format("  {} {}\n", axis.flag, fmt::join(axis.values, ","));
  if (held) text += held->text;
  return text;
}

/// What predicts the row alone: its values, and the batch where all share one.
std::string flags_of(const Sweep& sweep, const SweepRow& row,
                     const std::optional<HeldBatch>& held) {
  return described(sweep, row) +
         (held ? fmt::format(" --global-batch {}", held->sequences) : std::string());
}

/// Those of `kinds` among the arguments of mfsdp-sim.
Result<std::vector<GivenFlag>> flags_among(const std::vector<std::string>& arguments,
                                           const std::vector<FlagGroup>& kinds) {
  SimOptions unused;
  const std::vector<std::string> names = flag_names(kinds);
  std::vector<FlagGroup> groups = sim_flags(unused);
  std::vector<GivenFlag> said;
  for (FlagGroup& group : groups)
    for (Flag& flag : group.flags)
      flag.apply = [&, name = flag.name](const std::string& value) -> Result<void> {
        if (contains(names, name)) said.push_back({.name = name, .value = value});
        return {};
      };
  MFSDP_TRY(parse_flags(groups, arguments));
  return said;
}

/// The winner for --options of all tools, and why it won.
Result<std::string> tuned(const Sweep& sweep, const std::vector<SweepRow>& rows,
                          const std::vector<std::size_t>& best, const Counts& counts,
                          const std::optional<HeldBatch>& held, const SimOptions& options) {
  SimOptions unused;
  const std::vector<std::string>& arguments = sweep.arguments[best.front()];
  MFSDP_LET(flags, flags_among(arguments, plan_flags(unused.common)));
  MFSDP_LET(priced, flags_among(arguments, price_flags(unused)));
  if (held && std::ranges::find(flags, "--global-batch", &GivenFlag::name) == flags.end())
    flags.push_back({.name = "--global-batch", .value = fmt::format("{}", held->sequences)});
  const RunFigures& winner = *rows[best.front()].run;
  std::vector<std::string> comments{
      fmt::format("mfsdp-sim {} --find {}: {} of {} combinations fit", version(),
                  to_string(*options.find), format_count(counts.predicted),
                  format_count(counts.combinations)),
      fmt::format("Predicted: {}; {}", scored(winner, options),
                  rows[best.front()].run->trust.text)};
  if (!priced.empty()) {
    std::string said;
    for (const auto& [name, value] : priced)
      said += " " + name + (value.empty() ? "" : " " + value);
    comments.push_back("Predicted with" + printable(said) +
                       ", which are of no plan: to be given again");
  }
  if (best.size() > 1) {
    const SweepRow& next = rows[best[1]];
    comments.push_back(
        fmt::format("Second best: {}, {}", described(sweep, next), scored(*next.run, options)));
    comments.push_back(fmt::format("Why: {}", why(winner, *next.run, options)));
  }
  return render_options_file(comments, flags);
}

std::string as_text(const Sweep& sweep, const std::vector<SweepRow>& rows,
                    const std::vector<std::size_t>& best, const std::optional<HeldBatch>& held,
                    const std::string& tried, const SimOptions& options, const TextStyle& style,
                    const std::string& stored) {
  std::string text = tried + "\n";
  if (best.empty()) return text + nothing_fits(sweep, rows);
  const SweepRow& winner = rows[best.front()];
  text += fmt::format("{}: {}, {}\n", title_of(options), flags_of(sweep, winner, held),
                      scored(*winner.run, options));
  if (best.size() > 1) {
    const SweepRow& next = rows[best[1]];
    text += fmt::format("  Second best: {}, {}\n  Why: {}.\n", described(sweep, next),
                        scored(*next.run, options), why(*winner.run, *next.run, options));
  }
  std::vector<std::size_t> front = front_of(rows);
  const std::size_t all = front.size();
  if (front.size() > kFrontRows)
    front.erase(front.begin(), front.end() - static_cast<std::ptrdiff_t>(kFrontRows));
  text += fmt::format(
      "\nBest trade-offs of memory and speed{}:\n{}\n",
      all > kFrontRows ? fmt::format(" (the fastest {} of {})", kFrontRows, all) : std::string(),
      render_table(rows_table(sweep, rows, front), style));
  const RunResult shown(*winner.run);
  return text + render_runs({&shown, 1}, OutputFormat::text, style, stored);
}

/// All that fit, best first; the first is the winner.
std::string as_markdown(const Sweep& sweep, const std::vector<SweepRow>& rows,
                        const std::vector<std::size_t>& best, const std::optional<HeldBatch>& held,
                        const std::string& tried, const SimOptions& options) {
  if (best.empty()) return tried + "\n" + nothing_fits(sweep, rows);
  Table table = rows_table(sweep, rows, best);
  table.columns.insert(table.columns.begin(), {"rank", Align::right});
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    table.rows[i].insert(table.rows[i].begin(), fmt::format("{}", i + 1));
  const SweepRow& winner = rows[best.front()];
  return render_markdown_table(table) +
         fmt::format("\n**{}: {}, {}**\n\n{}", title_of(options), flags_of(sweep, winner, held),
                     scored(*winner.run, options), tried) +
         "* no other row needs less memory and is as fast.\n";
}

std::string as_json(const Sweep& sweep, const std::vector<SweepRow>& rows,
                    const std::vector<std::size_t>& best, const Counts& counts,
                    const std::optional<HeldBatch>& held, const SimOptions& options) {
  Json object = {{"schema", "mfsdp.find/1"},      {"find", std::string(to_string(*options.find))},
                 {"tried", counts.combinations},  {"impossible", counts.impossible},
                 {"too_large", counts.too_large}, {"predicted", counts.predicted}};
  object["held_global_batch"] = held ? Json(held->sequences) : Json(nullptr);
  object["winner"] =
      best.empty() ? Json(nullptr) : Json::parse(to_json_line(*rows[best.front()].run));
  object["least"] = best.empty() ? least_object(sweep, rows) : Json(nullptr);
  object["why"] =
      best.size() > 1 ? Json(why(*rows[best[0]].run, *rows[best[1]].run, options)) : Json();
  Json front = Json::array();
  for (const std::size_t place : front_of(rows)) {
    const PredictedRun& run = *rows[place].run;
    Json point = {{"run_id", run.run_id},
                  {"allocated_bytes", run.memory.allocated.value},
                  {"tokens_per_second_per_gpu", run.time.tokens_per_second_per_gpu}};
    for (std::size_t a = 0; a < sweep.axes.size(); ++a)
      if (const std::string& value = rows[place].values[a]; !value.empty())
        point[sweep.axes[a].name()] = value;
    front.push_back(std::move(point));
  }
  object["pareto"] = std::move(front);
  return object.dump(options.common.output == OutputFormat::jsonl ? -1 : 2) + "\n";
}

/// Positions of the rows of which it is not known yet whether they fit.
std::vector<std::size_t> open_rows(const std::vector<SweepRow>& rows) {
  std::vector<std::size_t> places = asked(rows);
  std::erase_if(places, [&](std::size_t place) { return rows[place].too_large; });
  return places;
}

/// No winner is named: what was not tried may be better.
ExitCode interrupted(const Counts& counts, const SimOptions& options, const Session& session) {
  session.err << fmt::format(
      "{}: interrupted after {} of {} combinations; {} predicted runs are "
      "{}\n",
      session.tool, counts.impossible + counts.too_large + counts.predicted, counts.combinations,
      counts.predicted, options.common.no_save ? "not stored (--no-save)" : "stored");
  return ExitCode::interrupted;
}

bool runs_plans(const std::string& engine) {
  const auto kind = parse_in_any_case<EngineKind>(engine);
  return kind && traits_of(*kind).runs_plans;
}

/// The sweep with what the command line leaves open. Partial recomputation is that of the first
/// model.
Result<Sweep> widened(const Sweep& sweep, const SimOptions& options, Asker& asker) {
  MFSDP_LET(shape, asker.shape(options));
  std::vector<std::string> more;
  const auto vary = [&](const char* flag, const std::string& values) {
    const bool fixed = contains(options.given, flag);
    if (!fixed) more.insert(more.end(), {flag, values});
  };
  const bool is_ours =
      traits_of(options.engine).runs_plans ||
      std::ranges::any_of(sweep.axes, [](const SweepAxis& axis) {
        return axis.flag == "--engine" && std::ranges::any_of(axis.values, runs_plans);
      });
  const bool has_strategies = is_ours || !traits_of(options.engine).shards_states_alone;
  if (has_strategies) vary("--strategy", "optim_grads_params,optim_grads,optim,no_shard");
  vary("--recompute", is_ours ? recompute_choices(shape.layers) : "none,full");
  vary("--micro-batch", powers_up_to(kMostSweptMicroBatch));
  MFSDP_LET(groups, group_counts(sweep, options, asker));
  if (has_strategies) vary("--outer-dp", groups);
  if (is_ours && shape.experts != 0) {
    MFSDP_LET(per_node, asker.gpus_per_node(options));
    vary("--ep", expert_ranks(shape.experts, per_node));
  }

  Sweep wide{.axes = sweep.axes, .arguments = {}};
  for (const std::vector<std::string>& arguments : sweep.arguments) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), more.begin(), more.end());
    MFSDP_LET(inner, expand_lists(all));
    if (wide.arguments.empty())
      wide.axes.insert(wide.axes.end(), inner.axes.begin(), inner.axes.end());
    wide.arguments.insert(wide.arguments.end(), inner.arguments.begin(), inner.arguments.end());
  }
  return wide;
}

/// All combinations of a sweep and what became of them.
struct Searched {
  Sweep sweep;
  std::vector<SweepRow> rows;
  std::optional<HeldBatch> held;
  bool whole = true;  ///< false: interrupted
};

Result<Searched> searched(Sweep sweep, const SimOptions& options, const Session& session,
                          RunStore& store) {
  Searched all{.sweep = std::move(sweep), .rows = {}, .held = {}};
  MFSDP_LET(rows, sweep_rows(all.sweep, session));
  all.rows = std::move(rows);
  all.held = hold_global_batch(all.rows, options, session);
  MFSDP_LET(whole, predict_rows(all.rows, open_rows(all.rows), Predict::what_fits, options, session,
                                store));
  all.whole = whole;
  for (SweepRow& row : all.rows)
    if (row.run) estimate_training(*row.run, options);
  return all;
}

/// Once more with less memory where nothing fits, and something is possible. `options` gets the
/// flags that are varied then, so that nothing varies them again.
Result<Searched> searched_leaner(Searched all, SimOptions& options, const Session& session,
                                 RunStore& store) {
  if (!all.whole || count(all.rows).too_large == 0 || !ranked(all.rows, options).empty())
    return all;
  const std::vector<SweepAxis> axes = leaner_axes(options);
  if (axes.empty()) return all;
  for (const SweepAxis& axis : axes) options.given.push_back(axis.flag);
  return searched(leaner(all.sweep, axes), options, session, store);
}

/// Takes the finer choices that are worth it among the combinations. What was tried is added to
/// `tried`; false when interrupted.
Result<bool> vary_best(Searched& all, const SimOptions& options, const Session& session,
                       RunStore& store, std::string& tried) {
  const auto batch = all.held ? std::optional(all.held->sequences) : std::nullopt;
  std::set<std::size_t> outdone;  // combinations of which a finer choice is taken
  for (const FinerKind kind : {FinerKind::transports, FinerKind::order}) {
    std::vector<std::size_t> open = ranked(all.rows, options);
    std::erase_if(open, [&](std::size_t place) { return outdone.contains(place); });
    MFSDP_LET(finer, finer_rows(kind, all.sweep, all.rows, open, batch, options, session));
    tried += finer_text(finer);
    MFSDP_TRY(predict_rows(finer.rows, open_rows(finer.rows), Predict::what_fits, options, session,
                           store));
    if (session.interrupted) return false;
    for (SweepRow& row : finer.rows)
      if (row.run) estimate_training(*row.run, options);
    const std::vector<std::size_t> gains = gaining(finer, all.rows, options);
    for (const std::size_t place : gains) outdone.insert(finer.bases[place]);
    take(all.sweep, all.rows, finer, gains);
  }
  return true;
}

}  // namespace

Result<ExitCode> find_best(const Sweep& sweep, const SimOptions& asked, const Session& session) {
  Asker asker(session);
  SimOptions options = asked;
  MFSDP_LET(wide, widened(sweep, options, asker));
  RunStore store(options.common, session);
  MFSDP_LET(first, searched(std::move(wide), options, session, store));
  MFSDP_LET(all, searched_leaner(std::move(first), options, session, store));
  const Counts counts = count(all.rows);
  if (!all.whole) return interrupted(counts, options, session);
  std::string tried = tried_text(all.sweep, counts, all.held);
  MFSDP_LET(whole, vary_best(all, options, session, store, tried));
  if (!whole) return interrupted(counts, options, session);
  const std::vector<std::size_t> best = ranked(all.rows, options);
  const auto& [found, rows, held, unused] = all;
  switch (options.common.output) {
    case OutputFormat::text:
      session.out << wrap_text(
          as_text(found, rows, best, held, tried, options, session.style, store.note()),
          session.style);
      break;
    case OutputFormat::json:
    case OutputFormat::jsonl:
      session.out << as_json(found, rows, best, counts, held, options);
      break;
    case OutputFormat::md:
      session.out << as_markdown(found, rows, best, held, tried, options);
      break;
    case OutputFormat::csv: {
      std::vector<RunResult> runs;  // best first
      for (const std::size_t place : best) runs.emplace_back(*rows[place].run);
      session.out << render_ranked_csv(runs);
    }
  }
  if (!best.empty() && options.tune_out) {
    MFSDP_LET(file, tuned(found, rows, best, counts, held, options));
    MFSDP_TRY(write_file_atomically(*options.tune_out, file));
  }
  if (!best.empty()) warn_of_full_memory(*rows[best.front()].run, session);
  MFSDP_TRY(store.outcome());
  return best.empty() ? ExitCode::negative : ExitCode::good;
}

}  // namespace mfsdp
