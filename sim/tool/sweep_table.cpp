#include "sim/tool/sweep_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/wrap.hpp"
#include "core/plan/config_fields.hpp"
#include "core/plan/engine.hpp"
#include "sim/search/expert_capacity.hpp"
#include "sim/search/fit_search.hpp"
#include "sim/search/refinement.hpp"
#include "sim/search/training_cost.hpp"

namespace mfsdp {
namespace {

bool has_training(const std::vector<Candidate>& candidates) {
  return std::ranges::any_of(candidates,
                             [](const Candidate& r) { return r.run && r.run->training; });
}

bool has_cost(const std::vector<Candidate>& candidates) {
  return std::ranges::any_of(candidates, [](const Candidate& r) {
    return r.run && r.run->training && r.run->training->cost;
  });
}

/// Whether some engine's allocator keeps more than it has allocated.
bool has_cached(const std::vector<Candidate>& candidates) {
  return std::ranges::any_of(candidates,
                             [](const Candidate& r) { return r.run && r.run->memory.cached; });
}

std::string verdict(const PredictedRun& run) {
  if (!run.memory.fits) return "no";
  if (!has_capacity(run)) return "no room";
  return run.memory.barely_fits() ? "within error" : "yes";
}

void add_run(std::vector<std::string>& cells, const PredictedRun& run, bool cached) {
  if (cached) {
    cells.push_back(format_gib(run.memory.allocated));
    cells.push_back(run.memory.cached ? format_gib(run.memory.cached->reserved) : "-");
  }
  cells.insert(cells.end(),
               {verdict(run), format_gib(run.memory.deciding()),
                run.memory.headroom.value < 0 ? "-" + format_gib(Bytes(0) - run.memory.headroom)
                                              : format_gib(run.memory.headroom),
                format_duration(run.time.step), format_duration(run.time.exposed_communication),
                format_rate(run.time.tokens_per_second_per_gpu), format_percent(run.time.mfu)});
}

void add_training(std::vector<std::string>& cells, const std::optional<TrainingEstimate>& training,
                  bool cost) {
  if (!training) return;
  cells.push_back(format_real(training->seconds / kSecondsPerDay, 1));
  cells.push_back(format_real(training->gpu_hours, 0));
  if (cost) cells.push_back(training->cost ? format_real(*training->cost, 0) : "n/a");
}

/// The numbers of outcomes, and why the first invalid candidate is invalid.
std::string counts_of(const std::vector<Candidate>& candidates) {
  std::int64_t fit = 0;
  std::int64_t too_large = 0;
  std::int64_t invalid = 0;
  const Candidate* first = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.invalid) {
      ++invalid;
      if (first == nullptr) first = &candidate;
    } else if (candidate.run) {
      ++(can_run(*candidate.run) ? fit : too_large);
    }
  }
  std::string text = fmt::format("{} of {} combinations fit", format_count(fit),
                                 format_count(std::ssize(candidates)));
  if (too_large > 0) text += fmt::format(", {} do not", format_count(too_large));
  if (invalid > 0)
    text += fmt::format(", {} are not possible (the first because {})", format_count(invalid),
                        printable(first->invalid->message()));
  const std::int64_t missing = std::ssize(candidates) - fit - too_large - invalid;
  if (missing > 0) text += fmt::format("; interrupted, {} not predicted", format_count(missing));
  return text + ".";
}

/// "activation +20.51 GiB, logits +11.50 GiB": the largest differences of what is allocated.
std::string differences(const MemorySummary& memory, const MemorySummary& from) {
  constexpr std::size_t kMost = 3;
  std::vector<std::pair<Bytes, std::size_t>> all;
  for (std::size_t i = 0; i < memory.categories.size(); ++i)  // a context is not allocated
    if (static_cast<Category>(i) != Category::runtime)
      all.emplace_back(memory.categories[i] - from.categories[i], i);
  std::ranges::stable_sort(all, std::greater{},
                           [](const auto& one) { return std::abs(one.first.value); });
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < kMost && all[i].first.value != 0; ++i) {
    const auto& [bytes, category] = all[i];
    parts.push_back(fmt::format("{} {}{} GiB", to_string(static_cast<Category>(category)),
                                bytes.value > 0 ? "+" : "-",
                                format_gib(bytes.value > 0 ? bytes : Bytes(0) - bytes)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// Where engines are compared: what each allocates more or less of than the first one.
std::string engine_differences(const std::vector<SearchAxis>& axes,
                               const std::vector<Candidate>& candidates) {
  if (axes.size() != 1 || axes.front().flag != "--engine") return "";
  const auto first = std::ranges::find_if(
      candidates, [](const Candidate& candidate) { return candidate.run.has_value(); });
  std::string text;
  for (const Candidate& candidate : candidates) {
    if (!candidate.run || &candidate == &*first) continue;
    const RecomputePolicy& recompute = candidate.run->config.recompute;
    const bool same_blocks = recompute == first->run->config.recompute;
    const std::string memory = differences(candidate.run->memory, first->run->memory);
    text += fmt::format("{} beside {}: {}{}.\n", shown_engine(candidate.run->engine),
                        shown_engine(first->run->engine),
                        memory.empty() ? "as much memory at the peak" : memory,
                        same_blocks ? std::string()
                                    : fmt::format("; --recompute {}, not {}", flag_text(recompute),
                                                  flag_text(first->run->config.recompute)));
  }
  return text;
}

/// Assumptions of the runs, each once.
std::vector<std::string> statements_of(const std::vector<Candidate>& candidates) {
  std::vector<std::string> all;
  for (const Candidate& candidate : candidates) {
    if (!candidate.run) continue;
    for (std::string& statement : statements_of(candidate.run->facts))
      if (std::ranges::find(all, statement) == all.end()) all.push_back(std::move(statement));
  }
  return all;
}

/// How far to trust the runs, each statement once.
std::vector<std::string> trust_lines(const std::vector<Candidate>& candidates) {
  std::vector<std::string> lines;
  for (const Candidate& candidate : candidates)
    if (candidate.run && std::ranges::find(lines, candidate.run->trust.text) == lines.end())
      lines.push_back(candidate.run->trust.text);
  return lines;
}

}  // namespace

std::vector<std::size_t> front_of(const std::vector<Candidate>& candidates) {
  std::map<std::string, std::vector<std::size_t>> by_model;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].run && can_run(*candidates[i].run))
      by_model[candidates[i].run->model_name].push_back(i);
  std::vector<std::size_t> all;
  for (const auto& [model, places] : by_model) {
    std::vector<TradeOff> points;
    for (const std::size_t place : places)
      points.push_back({.memory = candidates[place].run->memory.deciding(),
                        .speed = candidates[place].run->time.tokens_per_second_per_gpu});
    for (const std::size_t point : pareto_front(points)) all.push_back(places[point]);
  }
  return all;
}

Table candidate_table(const std::vector<SearchAxis>& axes, const std::vector<Candidate>& candidates,
                      std::span<const std::size_t> places) {
  Table table;
  for (const SearchAxis& axis : axes) table.columns.push_back({axis.name()});
  const bool cached = has_cached(candidates);
  if (cached)
    for (const char* title : {"allocated", "reserved"})
      table.columns.push_back({title, Align::right});
  for (const char* title : {"fits", "GiB", "free GiB", "step", "exposed", "tokens/s/GPU", "MFU"})
    table.columns.push_back(
        {title, std::string_view(title) == "fits" ? Align::left : Align::right});
  const bool cost = has_cost(candidates);
  if (has_training(candidates)) {
    table.columns.push_back({"days", Align::right});
    table.columns.push_back({"GPU-hours", Align::right});
    if (cost) table.columns.push_back({"cost", Align::right});
  }
  table.columns.push_back({""});
  const std::vector<std::size_t> front = front_of(candidates);
  for (const std::size_t place : places) {
    const Candidate& candidate = candidates[place];
    std::vector<std::string> cells;
    for (const SearchAxis& axis : axes) cells.push_back(value_text(candidate, axis));
    if (candidate.run) {
      add_run(cells, *candidate.run, cached);
      add_training(cells, candidate.run->training, cost);
      cells.resize(table.columns.size() - 1);
      cells.emplace_back(std::ranges::find(front, place) != front.end() ? "*" : "");
    } else if (candidate.invalid) {
      cells.emplace_back("not possible");
    } else if (!candidate.too_large) {
      cells.emplace_back("not predicted");
    }
    cells.resize(table.columns.size());
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string sweep_table(const std::vector<SearchAxis>& axes,
                        const std::vector<Candidate>& candidates, OutputFormat format,
                        const TextStyle& style, const std::string& stored) {
  std::vector<std::size_t> places(candidates.size());
  std::iota(places.begin(), places.end(), 0);
  const Table table = candidate_table(axes, candidates, places);
  const bool markdown = format == OutputFormat::md;
  const std::string rendered = markdown ? render_markdown_table(table) : render_table(table, style);
  std::string text = "\n" + counts_of(candidates) +
                     "\n* no other row of the model that fits needs less memory and is as fast.\n";
  text += engine_differences(axes, candidates);
  const auto first = std::ranges::find_if(
      candidates, [](const Candidate& candidate) { return candidate.run.has_value(); });
  if (first != candidates.end()) {
    for (const std::string& line : trust_lines(candidates)) text += line + "\n";
    for (const std::string& statement : statements_of(candidates)) text += statement + "\n";
    text += fmt::format("simulated {}: cost model {}; {}\n", first->run->version,
                        first->run->cost_model_version, stored);
  }
  return rendered + (markdown ? text : wrap_text(text, style));
}

}  // namespace mfsdp
