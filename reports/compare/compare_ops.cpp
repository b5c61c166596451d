#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "reports/compare/cells.hpp"
#include "reports/compare/compare.hpp"
#include "reports/compare/op_totals.hpp"

namespace mfsdp {
namespace {

using Runs = std::span<const RunResult>;

constexpr std::string_view kNoTimeline = "not stored: no times of single ops";
constexpr std::size_t kMostNames = 6;

/// One row for each name that a run has; nanoseconds.
ComparedSection totals_section(std::string title, Runs runs, std::string OpTime::* member) {
  ComparedSection section{.title = std::move(title), .notes = {}, .rows = {}, .relative = true};
  std::vector<OpTotals> totals;
  std::vector<std::string> names;
  for (const RunResult& run : runs) {
    totals.push_back(op_totals(run, member));
    for (const auto& [name, total] : totals.back())
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  for (const std::string& name : names) {
    ComparedRow row{.name = name, .unit = MeasureUnit::nanoseconds, .cells = {}};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto found = totals[i].find(name);
      const bool known = !runs[i].timeline.empty();
      std::optional<Figure> figure;
      if (known) figure = found == totals[i].end() ? std::int64_t{0} : found->second.time.value;
      row.cells.push_back(figure_cell(MeasureUnit::nanoseconds, figure));
    }
    section.rows.push_back(std::move(row));
  }
  if (names.empty()) section.notes.emplace_back(kNoTimeline);
  return section;
}

/// "a, b, c and 5 more".
std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMostNames) text += fmt::format(" and {} more", names.size() - kMostNames);
  return text;
}

/// The names that only one of two lists has.
template <class Map>
std::vector<std::string> names_only_in(const Map& one, const Map& other) {
  std::vector<std::string> names;
  for (const auto& [name, value] : one)
    if (!other.contains(name)) names.push_back(name);
  return names;
}

void add_names(ComparedSection& section, const std::string& label, std::string_view what,
               const std::vector<std::string>& vanished, const std::vector<std::string>& appeared) {
  if (!vanished.empty())
    section.notes.push_back(
        fmt::format("{}: {} {} vanished: {}", label, vanished.size(), what, some_of(vanished)));
  if (!appeared.empty())
    section.notes.push_back(
        fmt::format("{}: {} {} appeared: {}", label, appeared.size(), what, some_of(appeared)));
}

/// An op's unit: its name to the last dot, as plans name them.
std::map<std::string, std::int64_t> units_in(const RunResult& run) {
  std::map<std::string, std::int64_t> units;
  for (const OpTime& op : run.timeline)
    if (const std::size_t dot = op.name.rfind('.'); dot != std::string::npos)
      ++units[op.name.substr(0, dot)];
  return units;
}

std::map<std::string, Bytes> pools_of(const RunResult& run) {
  std::map<std::string, Bytes> pools;
  for (const PoolSummary& pool : run.plan.pools) pools[pool.name] = pool.height;
  return pools;
}

void add_plan_changes(ComparedSection& section, const RunResult& first, const RunResult& run,
                      const std::string& label) {
  if (first.plan_hash == run.plan_hash && !run.plan_hash.empty()) {
    section.notes.push_back(label + ": the same plan");
    return;
  }
  const auto before = pools_of(first);
  const auto after = pools_of(run);
  add_names(section, label, "pools", names_only_in(before, after), names_only_in(after, before));
  if (first.timeline.empty() || run.timeline.empty()) {
    section.notes.push_back(fmt::format("{}: units and ops: {}", label, kNoTimeline));
    return;
  }
  const auto units_before = units_in(first);
  const auto units_after = units_in(run);
  add_names(section, label, "units", names_only_in(units_before, units_after),
            names_only_in(units_after, units_before));
  const OpTotals ops_before = op_totals(first, &OpTime::name);
  const OpTotals ops_after = op_totals(run, &OpTime::name);
  add_names(section, label, "ops", names_only_in(ops_before, ops_after),
            names_only_in(ops_after, ops_before));
  std::vector<std::string> more;
  for (const auto& [name, total] : ops_after)
    if (const auto old = ops_before.find(name);
        old != ops_before.end() && old->second.count != total.count)
      more.push_back(fmt::format("{} ({} times, before {})", name, total.count, old->second.count));
  if (!more.empty())
    section.notes.push_back(fmt::format("{}: {} ops run another number of times: {}", label,
                                        more.size(), some_of(more)));
}

}  // namespace

OpTotals op_totals(const RunResult& run, std::string OpTime::* member) {
  OpTotals totals;
  for (const OpTime& op : run.timeline) {
    OpTotal& total = totals[op.*member];
    total.time += op.end - op.start;
    ++total.count;
  }
  // Instances that a long timeline omits equal the segment's last instance.
  for (const OmittedInstances& omitted : run.omitted)
    for (const OpTime& op : run.timeline)
      if (op.segment == omitted.segment && op.instance == omitted.first - 1) {
        OpTotal& total = totals[op.*member];
        total.time += Nanos((op.end - op.start).value * omitted.count);
        total.count += omitted.count;
      }
  return totals;
}

std::vector<ComparedSection> compare_streams_and_kinds(Runs runs) {
  std::vector<ComparedSection> sections;
  sections.push_back(totals_section("Time by stream", runs, &OpTime::stream));
  sections.push_back(totals_section("Time by kind of op", runs, &OpTime::kind));
  for (ComparedSection& section : sections)
    if (!section.rows.empty())
      section.notes.emplace_back("sums over the ops of one step; streams run beside each other");
  return sections;
}

ComparedSection compare_plans(Runs runs) {
  ComparedSection section{.title = "Plan differences", .notes = {}, .rows = {}, .relative = true};
  std::vector<std::string> pools;
  for (const RunResult& run : runs)
    for (const auto& [name, height] : pools_of(run))
      if (std::ranges::find(pools, name) == pools.end()) pools.push_back(name);
  for (const std::string& name : pools) {
    ComparedRow row{.name = "pool " + name, .unit = MeasureUnit::bytes, .cells = {}};
    for (const RunResult& run : runs) {
      const auto heights = pools_of(run);
      const auto found = heights.find(name);
      row.cells.push_back(figure_cell(
          MeasureUnit::bytes,
          found == heights.end() ? std::nullopt : std::optional<Figure>(found->second.value)));
    }
    section.rows.push_back(std::move(row));
  }
  for (std::size_t i = 1; i < runs.size(); ++i)
    add_plan_changes(section, runs[0], runs[i], fmt::format("run {}", i + 1));
  return section;
}

}  // namespace mfsdp
