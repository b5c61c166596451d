#include "sim/tool/find_best.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/cli/format.hpp"
#include "core/cli/output.hpp"
#include "core/cli/text_style.hpp"
#include "core/plan/result_json.hpp"
#include "sim/tool/asker.hpp"
#include "sim/tool/sweep_run.hpp"
#include "sim/tool/sweep_table.hpp"
#include "sim/tool/training.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostMicroBatch = 256;
constexpr std::size_t kFrontRows = 12;

/// "1,2,4,...": powers of two up to `most`.
std::string powers_up_to(std::int64_t most) {
  std::string list = "1";
  for (std::int64_t value = 2; value <= most; value *= 2) list += fmt::format(",{}", value);
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

/// More is better: tokens per second of all GPUs, or tokens for the money.
double score(const RunResult& run, const SimOptions& options) {
  if (options.find == Find::cheapest) return 1 / cost_per_trillion(run, options.prices);
  return run.time.tokens_per_second_per_gpu * static_cast<double>(run.cluster.gpus);
}

/// The rows that fit, best first; of equals the earlier one.
std::vector<std::size_t> ranked(const std::vector<SweepRow>& rows, const SimOptions& options) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (rows[i].run && rows[i].run->memory.fits) places.push_back(i);
  std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) {
    return score(*rows[a].run, options) > score(*rows[b].run, options);
  });
  return places;
}

std::string described(const Sweep& sweep, const SweepRow& row) {
  return sweep.axes.empty() ? "the one configuration" : sweep.text(row.values);
}

std::string scored(const RunResult& run, const SimOptions& options) {
  if (options.find == Find::fastest) return format_rate(score(run, options)) + " tokens/s";
  const double cost = cost_per_trillion(run, options.prices);
  return price_of(run, options.prices) ? format_real(cost, 0) + " for 10^12 tokens"
                                       : format_real(cost, 0) + " GPU-hours for 10^12 tokens";
}

/// Time of one GPU for a thousand tokens, by what it is spent on.
struct Spent {
  double compute = 0;  ///< ns
  double exposed = 0;
  double idle = 0;
};

Spent spent(const RunResult& run) {
  const double thousands = static_cast<double>(run.config.tokens_per_step()) / 1000;
  return {.compute = static_cast<double>(run.time.compute.value) / thousands,
          .exposed = static_cast<double>(run.time.exposed_communication.value) / thousands,
          .idle = static_cast<double>(run.time.idle.value) / thousands};
}

/// What the loser spends more, the largest difference first.
std::string why(const RunResult& winner, const RunResult& loser) {
  const Spent a = spent(winner);
  const Spent b = spent(loser);
  std::vector<std::pair<double, const char*>> parts{
      {b.compute - a.compute, "compute"},
      {b.exposed - a.exposed, "exposed communication"},
      {b.idle - a.idle, "idle time"}};
  std::ranges::stable_sort(
      parts, [](const auto& x, const auto& y) { return std::abs(x.first) > std::abs(y.first); });
  std::string text;
  for (const auto& [more, name] : parts) {
    if (std::abs(more) < 1) continue;
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ",
                        format_duration(Nanos(static_cast<std::int64_t>(std::abs(more)))),
                        more > 0 ? "more" : "less", name);
  }
  return text.empty() ? "it takes the same time" : "per 1,000 tokens and GPU it takes " + text;
}

struct Counts {
  std::int64_t impossible = 0;
  std::int64_t too_large = 0;
  std::int64_t predicted = 0;
};

Counts count(const std::vector<SweepRow>& rows) {
  Counts counts;
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

/// The combination that came closest to fitting.
const SweepRow* smallest(const std::vector<SweepRow>& rows) {
  const SweepRow* least = nullptr;
  for (const SweepRow& row : rows)
    if (row.memory && (least == nullptr || row.memory->allocated < least->memory->allocated))
      least = &row;
  return least;
}

std::string nothing_fits(const Sweep& sweep, const std::vector<SweepRow>& rows) {
  const SweepRow* least = smallest(rows);
  if (least == nullptr) return "Nothing fits.\n";
  const Bytes capacity = least->question->costs->cluster().gpu.capacity;
  return fmt::format("Nothing fits: the least, {}, takes {} of {} GiB.\n", described(sweep, *least),
                     format_gib(least->memory->allocated), format_gib(capacity));
}

std::string as_text(const Sweep& sweep, const std::vector<SweepRow>& rows,
                    const std::vector<std::size_t>& best, const SimOptions& options,
                    const std::string& stored) {
  const Counts counts = count(rows);
  std::string text =
      fmt::format("Tried {} combinations: {} are not possible, {} do not fit, {} predicted.\n",
                  format_count(std::ssize(rows)), format_count(counts.impossible),
                  format_count(counts.too_large), format_count(counts.predicted));
  for (const SweepAxis& axis : sweep.axes)
    text += fmt::format("  {} {}\n", axis.flag, fmt::join(axis.values, ","));
  text += "\n";
  if (best.empty()) return text + nothing_fits(sweep, rows);
  const SweepRow& winner = rows[best.front()];
  text += fmt::format("{}: {}, {}\n", options.find == Find::fastest ? "Fastest" : "Cheapest",
                      described(sweep, winner), scored(*winner.run, options));
  if (best.size() > 1) {
    const SweepRow& next = rows[best[1]];
    text += fmt::format("  before {}, {}: {}\n", described(sweep, next), scored(*next.run, options),
                        why(*winner.run, *next.run));
  }
  std::vector<std::size_t> front = front_of(rows);
  const std::size_t all = front.size();
  if (front.size() > kFrontRows)
    front.erase(front.begin(), front.end() - static_cast<std::ptrdiff_t>(kFrontRows));
  text += fmt::format(
      "\nMemory against speed, nothing else is better in both{}:\n{}\n",
      all > kFrontRows ? fmt::format(" (the fastest {} of {})", kFrontRows, all) : std::string(),
      render_table(rows_table(sweep, rows, front)));
  return text +
         render_runs({&*winner.run, 1}, OutputFormat::text, style_of(describe_stdout()), stored);
}

std::string as_json(const Sweep& sweep, const std::vector<SweepRow>& rows,
                    const std::vector<std::size_t>& best, const SimOptions& options) {
  const Counts counts = count(rows);
  Json object = {{"schema", "mfsdp.find/1"},      {"find", std::string(to_string(*options.find))},
                 {"tried", rows.size()},          {"impossible", counts.impossible},
                 {"too_large", counts.too_large}, {"predicted", counts.predicted}};
  object["winner"] =
      best.empty() ? Json(nullptr) : Json::parse(to_json_line(*rows[best.front()].run));
  object["why"] = best.size() > 1 ? Json(why(*rows[best[0]].run, *rows[best[1]].run)) : Json();
  Json front = Json::array();
  for (const std::size_t place : front_of(rows)) {
    const RunResult& run = *rows[place].run;
    Json point = {{"run_id", run.run_id},
                  {"allocated_bytes", run.memory.allocated.value},
                  {"tokens_per_second_per_gpu", run.time.tokens_per_second_per_gpu}};
    for (std::size_t a = 0; a < sweep.axes.size(); ++a)
      point[sweep.axes[a].name()] = rows[place].values[a];
    front.push_back(std::move(point));
  }
  object["pareto"] = std::move(front);
  return object.dump(options.common.output == OutputFormat::jsonl ? -1 : 2) + "\n";
}

/// Rows by micro-batch, smallest first; one round where nothing orders them.
std::vector<std::vector<std::size_t>> rounds_of(const Sweep& sweep,
                                                const std::vector<SweepRow>& rows,
                                                const SimOptions& options, std::size_t axis) {
  // At a fixed global batch a larger micro-batch makes fewer microbatches: another plan.
  if (axis == sweep.axes.size() || options.common.global_batch) return {asked(rows)};
  std::map<std::int64_t, std::vector<std::size_t>> by_size;
  for (const std::size_t place : asked(rows))
    by_size[rows[place].question->config.micro_batch].push_back(place);
  std::vector<std::vector<std::size_t>> rounds;
  for (auto& [size, places] : by_size) rounds.push_back(std::move(places));
  return rounds;
}

/// As predict_rows, but a configuration is not even built where the same with a smaller micro-batch
/// cannot fit, however it is packed: it is as large at least.
Result<bool> predict_by_size(const Sweep& sweep, std::vector<SweepRow>& rows,
                             const SimOptions& options, const Session& session, RunStore& store) {
  const auto axis = static_cast<std::size_t>(
      std::ranges::find(sweep.axes, "--micro-batch", &SweepAxis::flag) - sweep.axes.begin());
  const auto others = [&](const SweepRow& row) {
    std::vector<std::string> values = row.values;
    if (axis < values.size()) values.erase(values.begin() + static_cast<std::ptrdiff_t>(axis));
    return values;
  };
  std::set<std::vector<std::string>> too_large;
  for (const std::vector<std::size_t>& round : rounds_of(sweep, rows, options, axis)) {
    std::vector<std::size_t> places;
    for (const std::size_t place : round) {
      if (too_large.contains(others(rows[place])))
        rows[place].too_large = true;
      else
        places.push_back(place);
    }
    MFSDP_LET(whole, predict_rows(rows, places, Predict::what_fits, options, session, store));
    if (!whole) return false;
    for (const std::size_t place : places) {
      const SweepRow& row = rows[place];
      if (row.memory && !fits(row.memory->least, *row.question)) too_large.insert(others(row));
    }
  }
  return true;
}

/// No winner is named: what was not tried may be better.
ExitCode interrupted(const std::vector<SweepRow>& rows, const SimOptions& options,
                     const Session& session) {
  const Counts counts = count(rows);
  session.err << fmt::format(
      "{}: interrupted after {} of {} combinations; {} predicted runs are "
      "{}\n",
      session.tool, counts.impossible + counts.too_large + counts.predicted, rows.size(),
      counts.predicted, options.common.no_save ? "not stored (--no-save)" : "stored");
  return ExitCode::interrupted;
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
  vary("--strategy", "optim_grads_params,optim_grads,optim,no_shard");
  vary("--recompute", recompute_choices(shape.layers));
  vary("--micro-batch", powers_up_to(kMostMicroBatch));
  MFSDP_LET(groups, group_counts(sweep, options, asker));
  vary("--outer-dp", groups);

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

}  // namespace

Result<ExitCode> find_best(const Sweep& sweep, const SimOptions& options, const Session& session) {
  Asker asker(session);
  MFSDP_LET(wide, widened(sweep, options, asker));
  MFSDP_LET(rows, sweep_rows(wide, session));
  RunStore store(options.common, session);
  MFSDP_LET(whole, predict_by_size(wide, rows, options, session, store));
  for (SweepRow& row : rows)
    if (row.run) estimate_training(*row.run, options);
  if (!whole) return interrupted(rows, options, session);
  const std::vector<std::size_t> best = ranked(rows, options);
  switch (options.common.output) {
    case OutputFormat::text: session.out << as_text(wide, rows, best, options, store.note()); break;
    case OutputFormat::json:
    case OutputFormat::jsonl: session.out << as_json(wide, rows, best, options); break;
    case OutputFormat::csv:
    case OutputFormat::md: {
      std::vector<RunResult> runs;  // best first
      for (const std::size_t place : best) runs.push_back(*rows[place].run);
      session.out << render_runs(runs, options.common.output, style_of(describe_stdout()),
                                 store.note());
    }
  }
  return best.empty() ? ExitCode::negative : ExitCode::good;
}

}  // namespace mfsdp
