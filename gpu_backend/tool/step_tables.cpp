#include "gpu_backend/tool/step_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "gpu_backend/tool/measured_step.hpp"
#include "reports/record/facts.hpp"

namespace mfsdp {
namespace {

struct Pair {
  Nanos predicted;
  Nanos measured;
  std::int64_t launches = 0;  ///< measured
};

using Pairs = std::map<std::pair<std::string, std::string>, Pair>;  ///< by stream and kind

Pairs sums_of(const PredictedRun& predicted, const MeasuredRun& measured, bool by_kind) {
  Pairs sums;
  const auto key = [&](const OpTime& op) {
    return std::pair(op.stream, by_kind ? op.kind : std::string());
  };
  for (const OpTime& op : predicted.timeline) sums[key(op)].predicted += op.end - op.start;
  for (const OpTime& op : measured.timeline) {
    Pair& pair = sums[key(op)];
    pair.measured += op.end - op.start;
    ++pair.launches;
  }
  return sums;
}

std::string difference(const Pair& pair) {
  if (pair.predicted == Nanos(0)) return "n/a";
  return fmt::format("{:+.1f} %", 100 * (static_cast<double>(pair.measured.value) /
                                             static_cast<double>(pair.predicted.value) -
                                         1));
}

std::vector<std::string> row(std::string name, std::string launches, const Pair& pair) {
  return {std::move(name), std::move(launches), format_duration(pair.predicted),
          format_duration(pair.measured), difference(pair)};
}

Table table_of(std::string title) {
  return {.columns = {{std::move(title)},
                      {"launches", Align::right},
                      {"predicted", Align::right},
                      {"measured", Align::right},
                      {"difference", Align::right}},
          .rows = {}};
}

}  // namespace

std::string render_step_tables(const PredictedRun& predicted, const MeasuredRun& measured,
                               const TextStyle& style) {
  if (measured.timeline.empty()) return "";
  const Fact* rank = find_fact(measured.facts, kTimedTopic, kTimedRank);
  Table steps = table_of("step of rank " + (rank == nullptr ? "0" : fact_text(rank->value)));
  const auto add = [&](const char* name, Nanos TimeSummary::* time) {
    steps.rows.push_back(
        row(name, "", {.predicted = predicted.time.*time, .measured = measured.time.*time}));
  };
  add("step", &TimeSummary::step);
  add("compute", &TimeSummary::compute);
  add("exposed communication", &TimeSummary::exposed_communication);
  add("idle", &TimeSummary::idle);
  for (const auto& [key, pair] : sums_of(predicted, measured, false))
    steps.rows.push_back(row("stream " + key.first, fmt::format("{}", pair.launches), pair));

  const Pairs sums = sums_of(predicted, measured, true);
  std::vector<std::pair<Pairs::key_type, Pair>> kinds(sums.begin(), sums.end());
  std::ranges::stable_sort(kinds, std::greater<>(),
                           [](const auto& kind) { return kind.second.measured; });
  Table by_kind = table_of("by kind of op");
  for (const auto& [key, pair] : kinds)
    by_kind.rows.push_back(
        row(key.second + " (" + key.first + ")", fmt::format("{}", pair.launches), pair));
  return render_table(steps, style) + "\n" + render_table(by_kind, style);
}

}  // namespace mfsdp
