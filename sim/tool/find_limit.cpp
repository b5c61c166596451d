#include "sim/tool/find_limit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/progress.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "core/plan/config_fields.hpp"
#include "reports/record/result_json.hpp"
#include "reports/render/output.hpp"
#include "reports/session/run_store.hpp"
#include "sim/search/limit.hpp"
#include "sim/search/training_cost.hpp"
#include "sim/tool/memory_warning.hpp"
#include "sim/tool/space_flags.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShown = 12;

/// The searches of one combination of the lists.
struct Finding {
  std::vector<Setting> settings;  ///< of the combination
  std::vector<LimitRow> rows;     ///< with more and more memory settings
  std::size_t shown = 0;          ///< the row that is shown in full

  [[nodiscard]] const LimitRow& answer() const { return rows[shown]; }
};

FitLimit limit_of(Find what) {
  switch (what) {
    case Find::max_micro_batch: return FitLimit::micro_batch;
    case Find::max_seq_len: return FitLimit::seq_len;
    default: return FitLimit::gpus;
  }
}

const char* unit_of(FitLimit limit) {
  switch (limit) {
    case FitLimit::micro_batch: return "micro-batch";
    case FitLimit::seq_len: return "sequence length";
    default: return "GPUs";
  }
}

/// Whether one value needs less memory than the other: more GPUs, or less of the rest.
bool needs_less(std::int64_t one, std::int64_t other, FitLimit limit) {
  return limit == FitLimit::gpus ? one > other : one < other;
}

/// The wanted candidate beyond the value found (of all if there is none) that needs the least
/// memory; null if there is none.
template <class Wanted>
const Tried* next_beyond(const LimitRow& row, FitLimit limit, Wanted wanted) {
  const Tried* next = nullptr;
  for (const Tried& tried : row.found.tried) {
    const bool beyond = !row.found.value || needs_less(*row.found.value, tried.value, limit);
    const bool closer = next == nullptr || needs_less(tried.value, next->value, limit);
    if (beyond && closer && wanted(tried)) next = &tried;
  }
  return next;
}

std::string counted_gpus(std::int64_t gpus) {
  return fmt::format("{} {}", format_count(gpus), gpus == 1 ? "GPU" : "GPUs");
}

/// "16 GPUs", "sequence length 8,192".
std::string named(std::int64_t value, FitLimit limit) {
  return limit == FitLimit::gpus ? counted_gpus(value)
                                 : fmt::format("{} {}", unit_of(limit), format_count(value));
}

/// Why the value found is the limit.
std::string reason(const LimitRow& row, FitLimit limit) {
  const Tried* next =
      next_beyond(row, limit, [](const Tried& tried) { return tried.memory && !tried.fits; });
  if (next != nullptr)
    return fmt::format("{} would allocate {} of {} GiB{}", named(next->value, limit),
                       format_gib(next->memory->allocated), format_gib(row.capacity),
                       row.reserve > Bytes(0)
                           ? fmt::format(", {} GiB to be kept free", format_gib(row.reserve))
                           : "");
  next = next_beyond(row, limit, [](const Tried& tried) { return tried.invalid.has_value(); });
  if (next != nullptr)
    return fmt::format("{} is not possible ({})", named(next->value, limit),
                       printable(next->invalid->message()));
  return limit == FitLimit::gpus ? "there are no fewer" : "there is no larger one";
}

/// Candidates beyond the fewest that fit and do not fit themselves.
std::vector<std::int64_t> more_that_do_not_fit(const LimitRow& row, FitLimit limit) {
  std::vector<std::int64_t> values;
  if (limit != FitLimit::gpus || !row.found.value) return values;
  for (const Tried& tried : row.found.tried)
    if (tried.memory && !tried.fits && tried.value > *row.found.value)
      values.push_back(tried.value);
  return values;
}

/// The line on the numbers of GPUs that are candidates.
std::string counts_text(const LimitRow& row, FitLimit limit) {
  if (limit != FitLimit::gpus) return "";
  std::vector<std::int64_t> counts;
  for (std::int64_t count = 1; count < row.gpus_per_node; count *= 2) counts.push_back(count);
  return fmt::format("Numbers of GPUs: {}{}whole nodes of {} (--gpus-per-node)\n",
                     fmt::join(counts, ", "), counts.empty() ? "" : " and ", row.gpus_per_node);
}

/// The line on the numbers of GPUs that do not fit although a smaller one does.
std::string gaps_text(const LimitRow& row, FitLimit limit) {
  const std::vector<std::int64_t> gaps = more_that_do_not_fit(row, limit);
  if (gaps.empty()) return "";
  return fmt::format(
      "Not every larger number fits: {} {} not, as their shards need more padding (--explain "
      "layout)\n",
      fmt::join(gaps, ", "), gaps.size() == 1 ? "does" : "do");
}

std::string tried_table(const LimitRow& row, FitLimit limit, const TextStyle& style) {
  Table table{.columns = {{unit_of(limit), Align::right}, {"GiB", Align::right}, {""}}, .rows = {}};
  std::vector<Tried> tried = row.found.tried;
  std::ranges::sort(tried, {}, &Tried::value);
  for (const Tried& one : tried)
    table.rows.push_back({format_count(one.value),
                          one.memory ? format_gib(one.memory->allocated) : "",
                          one.invalid ? "not possible"
                          : one.fits  ? "fits"
                                      : "does not fit"});
  if (table.rows.size() > kShown) {
    // Candidates around the answer are the most informative.
    const auto answer = static_cast<std::size_t>(std::ranges::count_if(
        tried, [&](const Tried& t) { return t.value < row.found.value.value_or(0); }));
    const std::size_t begin =
        std::min(answer > kShown / 2 ? answer - kShown / 2 : 0, table.rows.size() - kShown);
    const auto first = table.rows.begin() + static_cast<std::ptrdiff_t>(begin);
    table.rows = {first, first + static_cast<std::ptrdiff_t>(kShown)};
  }
  return render_table(table, style);
}

std::string labelled(const Finding& finding) {
  return finding.settings.empty() ? "" : flags_text(finding.settings) + ": ";
}

/// The whole answer in a line.
std::string headline(const Finding& finding, Find what) {
  const LimitRow& row = finding.answer();
  const std::string flags = flags_text(row.settings);
  const std::string why = reason(row, limit_of(what));
  if (!row.found.value)
    return fmt::format("{}: nothing fits{}: {}\n", to_string(what),
                       flags.empty() ? "" : ", nor with " + flags, why);
  return fmt::format("{} is {}{}: {}\n", to_string(what), format_count(*row.found.value),
                     flags.empty() ? "" : " with " + flags + " (as asked nothing fits)", why);
}

/// "as asked (--recompute selective)", or the flags that were added.
std::string row_title(const LimitRow& row) {
  return row.settings.empty() ? fmt::format("as asked (--recompute {})", flag_text(row.recompute))
                              : flags_text(row.settings);
}

/// The limit with each of the memory settings; empty if none was tried.
std::string settings_table(const Finding& finding, FitLimit limit, const TextStyle& style) {
  if (finding.rows.size() == 1) return "";
  Table table{.columns = {{"setting"},
                          {unit_of(limit), Align::right},
                          {"GiB", Align::right},
                          {"step", Align::right},
                          {"tokens/s/GPU", Align::right}},
              .rows = {}};
  for (const LimitRow& row : finding.rows) {
    std::vector<std::string> cells{row_title(row)};
    if (row.run)
      cells.insert(cells.end(),
                   {format_count(*row.found.value), format_gib(row.run->memory.deciding()),
                    format_duration(row.run->time.step),
                    format_rate(row.run->time.tokens_per_second_per_gpu)});
    else
      cells.emplace_back("nothing fits");
    cells.resize(table.columns.size());
    table.rows.push_back(std::move(cells));
  }
  return render_table(table, style) + "\n";
}

std::string as_text(const Finding& finding, const SimOptions& options, const TextStyle& style,
                    const std::string& stored) {
  const FitLimit limit = limit_of(*options.find);
  const LimitRow& row = finding.answer();
  std::string head = labelled(finding) + headline(finding, *options.find) + counts_text(row, limit);
  if (!row.run) return head;
  const RunResult shown(*row.run);
  const std::int64_t tried = std::ssize(row.found.tried);
  return fmt::format("{}{}{}Tried {}{}:\n{}\n", head, settings_table(finding, limit, style),
                     gaps_text(row, limit), format_count(tried),
                     tried > std::int64_t{kShown}
                         ? fmt::format(", of which {} around the answer", kShown)
                         : "",
                     tried_table(row, limit, style)) +
         render_runs({&shown, 1}, OutputFormat::text, style, stored);
}

/// The limit with each of the memory settings.
Json settings_array(const std::vector<LimitRow>& rows) {
  Json array = Json::array();
  for (const LimitRow& row : rows) {
    Json object = {{"flags", flags_text(row.settings)},
                   {"value", row.found.value ? Json(*row.found.value) : Json(nullptr)}};
    if (row.run) {
      object["memory_bytes"] = row.run->memory.deciding().value;
      object["step_ns"] = row.run->time.step.value;
      object["tokens_per_second_per_gpu"] = row.run->time.tokens_per_second_per_gpu;
    }
    array.push_back(std::move(object));
  }
  return array;
}

Json as_json(const Finding& finding, const SimOptions& options) {
  Json object = {{"schema", "mfsdp.limit/1"}, {"find", std::string(to_string(*options.find))}};
  for (const Setting& setting : finding.settings)
    object["axes"][setting.flag.substr(2)] = setting.text;
  const LimitRow& row = finding.answer();
  object["value"] = row.found.value ? Json(*row.found.value) : Json(nullptr);
  object["with"] = flags_text(row.settings);
  object["settings"] = settings_array(finding.rows);
  Json tried = Json::array();
  for (const Tried& one : row.found.tried) {
    Json entry = {{"value", one.value}, {"fits", one.fits}};
    if (one.memory) entry["allocated_bytes"] = one.memory->allocated.value;
    if (one.invalid) entry["impossible"] = one.invalid->message();
    tried.push_back(std::move(entry));
  }
  object["tried"] = std::move(tried);
  if (limit_of(*options.find) == FitLimit::gpus) object["gpus_per_node"] = row.gpus_per_node;
  object["more_that_do_not_fit"] = more_that_do_not_fit(row, limit_of(*options.find));
  object["winner"] = row.run ? Json::parse(to_json_line(*row.run)) : Json(nullptr);
  return object;
}

void print(const std::vector<Finding>& findings, const SimOptions& options, const Session& session,
           const std::string& stored) {
  const OutputFormat format = options.common.output;
  if (format == OutputFormat::text) {
    bool first = true;
    for (const Finding& finding : findings) {
      session.out << (first ? "" : "\n")
                  << wrap_text(as_text(finding, options, session.style, stored), session.style);
      first = false;
    }
  } else if (format == OutputFormat::json || format == OutputFormat::jsonl) {
    Json all = Json::array();
    for (const Finding& finding : findings) all.push_back(as_json(finding, options));
    if (format == OutputFormat::jsonl)
      for (const Json& one : all) session.out << one.dump() << "\n";
    else
      session.out << (findings.front().settings.empty()
                          ? all.front()
                          : Json{{"schema", "mfsdp.limits/1"}, {"results", std::move(all)}})
                         .dump(2)
                  << "\n";
  } else {
    std::vector<RunResult> runs;
    for (const Finding& finding : findings)
      if (finding.answer().run) runs.emplace_back(*finding.answer().run);
    session.out << render_runs(runs, format, session.style, stored);
  }
}

}  // namespace

Result<ExitCode> find_limits(const SweptArguments& swept, const SimOptions& options,
                             const Session& session) {
  MFSDP_LET(space, read_space(swept));
  PredictionRequests requests(session.scenarios, notes_on(session.err, session.tool));
  RunStore store(options.common, session);
  std::vector<Finding> findings;
  {
    Progress progress(session.err, "plans", 0);
    std::int64_t tried = 0;
    const Watch watch = [&](const Tried&) {
      progress.at(++tried);
      return !session.interrupted.load();
    };
    for (std::size_t i = 0; i < space.size() && !session.interrupted; ++i) {
      Finding finding{.settings = space.combination(i), .rows = {}};
      MFSDP_LET(rows, find_limit(with_settings(options, finding.settings), limit_of(*options.find),
                                 requests, watch));
      if (session.interrupted) break;
      finding.rows = std::move(rows);
      finding.shown = answer_row(finding.rows);
      if (auto& run = finding.rows[finding.shown].run) {
        sign(*run, options.common, session);
        const RunResult kept(*run);
        MFSDP_TRY(store.save({&kept, 1}));
        estimate_training(*run, options.prices, options.tokens, options.failures);
      }
      findings.push_back(std::move(finding));
    }
  }
  if (session.interrupted) {
    session.err << session.tool << ": interrupted: the search did not finish\n";
    return ExitCode::interrupted;
  }
  print(findings, options, session, store.note());
  for (const Finding& finding : findings)
    if (finding.answer().run) warn_of_full_memory(*finding.answer().run, session);
  MFSDP_TRY(store.outcome());
  const bool all =
      std::ranges::all_of(findings, [](const Finding& f) { return f.answer().run.has_value(); });
  return all ? ExitCode::good : ExitCode::negative;
}

}  // namespace mfsdp
