#include "sim/tool/find_limit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/cli/format.hpp"
#include "core/cli/output.hpp"
#include "core/cli/progress.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "core/plan/config_fields.hpp"
#include "core/request/plan_options.hpp"
#include "reports/record/result_json.hpp"
#include "reports/tool/run_store.hpp"
#include "sim/search/find.hpp"
#include "sim/tool/asker.hpp"
#include "sim/tool/find_leaner.hpp"
#include "sim/tool/memory_warning.hpp"
#include "sim/tool/training.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kTokenStep = 256;    // sequence lengths are multiples of it
constexpr std::int64_t kMostGpus = 16'384;  // 2,048 nodes of 8, where --gpus sets no limit
constexpr std::size_t kShown = 12;

/// One search and its end.
struct Finding {
  std::vector<std::string> values;  ///< of the axes
  Found found;
  std::string with;                 ///< flags that were added, as nothing fits without them
  Bytes capacity;                   ///< of the GPU
  Bytes reserve;                    ///< to be kept free
  std::optional<PredictedRun> run;  ///< of the value found
};

const char* unit_of(Find what) {
  switch (what) {
    case Find::max_micro_batch: return "micro-batch";
    case Find::max_seq_len: return "sequence length";
    default: return "GPUs";
  }
}

SimOptions with_value(SimOptions options, std::int64_t value) {
  CommonOptions& common = options.common;
  switch (*options.find) {
    case Find::max_micro_batch: common.config.micro_batch = value; break;
    case Find::max_seq_len: common.seq_len = value; break;
    default: common.gpus = value; break;
  }
  return options;
}

/// Micro-batches that divide the global batch: few, and each has its own number of microbatches.
std::vector<std::int64_t> dividing(std::int64_t global_batch, std::int64_t gpus) {
  std::vector<std::int64_t> candidates;
  const std::int64_t per_gpu = global_batch / gpus;
  for (std::int64_t m = 1; m <= per_gpu / m; ++m) {
    if (per_gpu % m != 0) continue;
    candidates.push_back(m);
    if (m != per_gpu / m) candidates.push_back(per_gpu / m);
  }
  std::ranges::sort(candidates);
  std::erase_if(candidates, [](std::int64_t m) { return m > config_limits::sequences; });
  return candidates;
}

/// Numbers of GPUs worth asking for: powers of two in one node, then whole nodes.
std::vector<std::int64_t> gpu_counts(std::int64_t per_node, std::int64_t most) {
  std::vector<std::int64_t> counts;
  for (std::int64_t n = 1; n < per_node && n <= most; n *= 2) counts.push_back(n);
  for (std::int64_t n = per_node; n <= most; n += per_node) counts.push_back(n);
  return counts;
}

/// More GPUs than the fewest that fit, of which the search has not looked at: padding to whole
/// shards can make more of them not fit.
std::vector<std::int64_t> counts_above(const Found& found,
                                       const std::vector<std::int64_t>& counts) {
  constexpr std::int64_t kTimes = 4;
  constexpr std::size_t kMost = 64;
  std::vector<std::int64_t> above;
  if (!found.value) return above;
  for (const std::int64_t count : counts) {
    const bool seen = std::ranges::find(found.tried, count, &Tried::value) != found.tried.end();
    if (count > *found.value && count <= kTimes * *found.value && !seen && above.size() < kMost)
      above.push_back(count);
  }
  return above;
}

Result<Found> search(const SimOptions& options, Asker& asker, const Watch& watch) {
  const AskFor ask = [&](std::int64_t value) { return asker.question(with_value(options, value)); };
  const CommonOptions& common = options.common;
  const unsigned threads = std::thread::hardware_concurrency();
  switch (*options.find) {
    case Find::max_micro_batch:
      if (common.global_batch || common.batch_tokens) {
        MFSDP_LET(model, asker.shape(options));
        MFSDP_LET(batch, global_batch_of(common, seq_len_of(common, model)));
        const auto candidates = dividing(*batch, common.gpus);
        if (candidates.empty()) return find_largest(1, 1, 1, ask, watch);  // says what is wrong
        return find_among(candidates, Pick::last, threads, ask, watch);
      }
      return find_largest(1, 1, config_limits::sequences, ask, watch);
    case Find::max_seq_len:
      return find_largest(kTokenStep, kTokenStep, config_limits::tokens, ask, watch);
    default: {
      MFSDP_LET(per_node, asker.gpus_per_node(options));
      MFSDP_LET(most, asker.limit_of_gpus(options));
      const auto counts = gpu_counts(per_node, most.value_or(kMostGpus));
      MFSDP_LET(found, find_among(counts, Pick::first, threads, ask, watch));
      look_at_all(counts_above(found, counts), threads, ask, watch, found);
      return std::move(found);
    }
  }
}

/// The candidate beyond the limit that came closest: why the value found is the limit.
const Tried* next_beyond(const Finding& finding, Find what) {
  const Tried* next = nullptr;
  for (const Tried& tried : finding.found.tried) {
    if (!tried.memory || tried.fits) continue;
    const bool closer = next == nullptr || (what == Find::min_gpus ? tried.value > next->value
                                                                   : tried.value < next->value);
    const bool beyond =
        !finding.found.value || (what == Find::min_gpus ? tried.value < *finding.found.value
                                                        : tried.value > *finding.found.value);
    if (closer && beyond) next = &tried;
  }
  return next;
}

std::string reason(const Finding& finding, Find what) {
  const Tried* next = next_beyond(finding, what);
  if (next == nullptr) return "no candidate beyond it is possible";
  const std::string value = format_count(next->value);
  return fmt::format(
      "{} would allocate {} of {} GiB{}",
      what == Find::min_gpus ? value + " GPUs" : fmt::format("{} {}", unit_of(what), value),
      format_gib(next->memory->allocated), format_gib(finding.capacity),
      finding.reserve > Bytes(0)
          ? fmt::format(", {} GiB to be kept free", format_gib(finding.reserve))
          : "");
}

/// Candidates beyond the fewest that fit and do not fit themselves.
std::vector<std::int64_t> more_that_do_not_fit(const Finding& finding, Find what) {
  std::vector<std::int64_t> values;
  if (what != Find::min_gpus || !finding.found.value) return values;
  for (const Tried& tried : finding.found.tried)
    if (tried.memory && !tried.fits && tried.value > *finding.found.value)
      values.push_back(tried.value);
  return values;
}

/// The line that says so.
std::string gaps_text(const Finding& finding, Find what) {
  const std::vector<std::int64_t> gaps = more_that_do_not_fit(finding, what);
  if (gaps.empty()) return "";
  return fmt::format(
      "Not every larger number fits: {} {} not, as their shards need more padding (--explain "
      "layout)\n",
      fmt::join(gaps, ", "), gaps.size() == 1 ? "does" : "do");
}

std::string tried_table(const Finding& finding, Find what, const TextStyle& style) {
  Table table{.columns = {{unit_of(what), Align::right}, {"GiB", Align::right}, {""}}, .rows = {}};
  std::vector<Tried> tried = finding.found.tried;
  std::ranges::sort(tried, {}, &Tried::value);
  for (const Tried& one : tried)
    table.rows.push_back({format_count(one.value),
                          one.memory ? format_gib(one.memory->allocated) : "",
                          one.impossible ? "not possible"
                          : one.fits     ? "fits"
                                         : "does not fit"});
  if (table.rows.size() > kShown) {
    // Those around the answer say most.
    const auto answer = static_cast<std::size_t>(std::ranges::count_if(
        tried, [&](const Tried& t) { return t.value < finding.found.value.value_or(0); }));
    const std::size_t begin =
        std::min(answer > kShown / 2 ? answer - kShown / 2 : 0, table.rows.size() - kShown);
    const auto first = table.rows.begin() + static_cast<std::ptrdiff_t>(begin);
    table.rows = {first, first + static_cast<std::ptrdiff_t>(kShown)};
  }
  return render_table(table, style);
}

std::string labelled(const Sweep& sweep, const Finding& finding) {
  return sweep.axes.empty() ? "" : sweep.text(finding.values) + ": ";
}

std::string as_text(const Sweep& sweep, const Finding& finding, const SimOptions& options,
                    const TextStyle& style, const std::string& stored) {
  const Find what = *options.find;
  const std::string label = labelled(sweep, finding);
  const std::string name(to_string(what));
  if (!finding.found.value)
    return fmt::format("{}{}: nothing fits{}; {}\n", label, name,
                       finding.with.empty() ? "" : ", nor with " + finding.with,
                       reason(finding, what));
  const RunResult shown(*finding.run);
  const std::int64_t tried = std::ssize(finding.found.tried);
  return fmt::format(
             "{}{} is {}{}: {}\n{}Tried {}{}:\n{}\n", label, name,
             format_count(*finding.found.value),
             finding.with.empty() ? "" : " with " + finding.with + ", as nothing fits without",
             reason(finding, what), gaps_text(finding, what), format_count(tried),
             tried > std::int64_t{kShown} ? fmt::format(", of which {} around the answer", kShown)
                                          : "",
             tried_table(finding, what, style)) +
         render_runs({&shown, 1}, OutputFormat::text, style, stored);
}

Json as_json(const Sweep& sweep, const Finding& finding, const SimOptions& options) {
  Json object = {{"schema", "mfsdp.limit/1"}, {"find", std::string(to_string(*options.find))}};
  for (std::size_t a = 0; a < sweep.axes.size(); ++a)
    object["axes"][sweep.axes[a].name()] = finding.values[a];
  object["value"] = finding.found.value ? Json(*finding.found.value) : Json(nullptr);
  object["with"] = finding.with;
  Json tried = Json::array();
  for (const Tried& one : finding.found.tried) {
    Json entry = {{"value", one.value}, {"fits", one.fits}};
    if (one.memory) entry["allocated_bytes"] = one.memory->allocated.value;
    if (one.impossible) entry["impossible"] = one.impossible->message();
    tried.push_back(std::move(entry));
  }
  object["tried"] = std::move(tried);
  object["more_that_do_not_fit"] = more_that_do_not_fit(finding, *options.find);
  object["winner"] = finding.run ? Json::parse(to_json_line(*finding.run)) : Json(nullptr);
  return object;
}

void print(const Sweep& sweep, const std::vector<Finding>& findings, const SimOptions& options,
           const Session& session, const std::string& stored) {
  const OutputFormat format = options.common.output;
  if (format == OutputFormat::text) {
    bool first = true;
    for (const Finding& finding : findings) {
      session.out << (first ? "" : "\n")
                  << wrap_text(as_text(sweep, finding, options, session.style, stored),
                               session.style);
      first = false;
    }
  } else if (format == OutputFormat::json || format == OutputFormat::jsonl) {
    Json all = Json::array();
    for (const Finding& finding : findings) all.push_back(as_json(sweep, finding, options));
    if (format == OutputFormat::jsonl)
      for (const Json& one : all) session.out << one.dump() << "\n";
    else
      session.out << (sweep.axes.empty()
                          ? all.front()
                          : Json{{"schema", "mfsdp.limits/1"}, {"results", std::move(all)}})
                         .dump(2)
                  << "\n";
  } else {
    std::vector<RunResult> runs;
    for (const Finding& finding : findings)
      if (finding.run) runs.emplace_back(*finding.run);
    session.out << render_runs(runs, format, session.style, stored);
  }
}

/// One search, and where nothing fits once more with what takes the least memory.
Result<Finding> found_by(SimOptions options, Asker& asker, const Session& session,
                         const Watch& watch) {
  Finding finding;
  MFSDP_LET(found, search(options, asker, watch));
  finding.found = std::move(found);
  const Leanest lean = leanest(options);
  if (!finding.found.value && !lean.flags.empty() && !session.interrupted) {
    // Not every model can have them: tied embeddings need two gradients at one time.
    if (auto again = search(lean.options, asker, watch)) {
      options = lean.options;
      finding.with = lean.flags;
      finding.found = *std::move(again);
    }
  }
  const auto possible = std::ranges::find_if(finding.found.tried,
                                             [](const Tried& tried) { return !tried.impossible; });
  if (possible == finding.found.tried.end()) return finding;
  const std::int64_t shown = finding.found.value.value_or(possible->value);
  MFSDP_LET(question, asker.question(with_value(options, shown)));
  finding.capacity = question.costs->cluster().gpu.capacity;
  finding.reserve = question.reserve;
  if (!finding.found.value) return finding;
  MFSDP_LET(prediction, answer(question));
  finding.run = std::move(prediction.run);
  return finding;
}

}  // namespace

Result<ExitCode> find_limit(const Sweep& sweep, const SimOptions& options, const Session& session) {
  Asker asker(session);
  RunStore store(options.common, session);
  std::vector<Finding> findings;
  {
    Progress progress(session.err, "plans", 0);
    std::int64_t looked = 0;
    const Watch watch = [&](const Tried&) {
      progress.at(++looked);
      return !session.interrupted.load();
    };
    for (std::size_t i = 0; i < sweep.arguments.size() && !session.interrupted; ++i) {
      MFSDP_LET(one, parse_sim_options(sweep.arguments[i]));
      MFSDP_LET(finding, found_by(one, asker, session, watch));
      finding.values = sweep.values(i);
      if (finding.run) {
        sign(*finding.run, options.common, session);
        const RunResult kept(*finding.run);
        MFSDP_TRY(store.save({&kept, 1}));
        estimate_training(*finding.run, options);
      }
      findings.push_back(std::move(finding));
    }
  }
  if (session.interrupted) {
    session.err << session.tool << ": interrupted: the search did not come to its end\n";
    return ExitCode::interrupted;
  }
  print(sweep, findings, options, session, store.note());
  for (const Finding& finding : findings)
    if (finding.run) warn_of_full_memory(*finding.run, session);
  MFSDP_TRY(store.outcome());
  const bool all =
      std::ranges::all_of(findings, [](const Finding& f) { return f.run.has_value(); });
  return all ? ExitCode::good : ExitCode::negative;
}

}  // namespace mfsdp
