#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/base/text.hpp"
#include "core/cli/table.hpp"
#include "verify/traces/trace_report.hpp"
#include "verify/traces/trace_words.hpp"

namespace mfsdp::traces {
namespace {

/// Format of headings, tables and lines of the report.
struct Style {
  std::function<std::string(const std::string&)> heading;
  std::function<std::string(const Table&)> table;
  std::string_view bullet;
};

std::string percent(Nanos part, Nanos whole) {
  if (whole.value == 0) return "-";
  return fmt::format("{:.1f} %",
                     100.0 * static_cast<double>(part.value) / static_cast<double>(whole.value));
}

std::string mebibytes(std::optional<Bytes> bytes) {
  if (!bytes) return "-";
  return fmt::format("{:.1f}", static_cast<double>(bytes->value) / (1 << 20));
}

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

std::vector<std::string> cells(const TimeSplit& time) {
  return {milliseconds(time.span), milliseconds(time.compute), milliseconds(time.exposed),
          milliseconds(time.copies), milliseconds(time.idle)};
}

Table split_table(std::string first) {
  using enum Align;
  return {.columns = {{std::move(first), left},
                      {"span ms", right},
                      {"compute", right},
                      {"exposed comm", right},
                      {"copies", right},
                      {"idle", right}}};
}

void add_row(Table& table, std::string first, const TimeSplit& time) {
  std::vector<std::string> row = cells(time);
  row.insert(row.begin(), std::move(first));
  table.rows.push_back(std::move(row));
}

std::string title_of(const TraceReport& report, const DeviceReport& device) {
  std::string text = printable(report.where);
  if (report.rank) text += fmt::format(", rank {}", *report.rank);
  if (report.world_size) text += fmt::format(" of {}", *report.world_size);
  return text + fmt::format(", device {}", device.device);
}

Table step_table(const DeviceReport& device) {
  Table table = split_table("step");
  for (const StepReport& step : device.steps)
    add_row(table, fmt::format("{}", step.step), step.time);
  add_row(table, "all", device.time);
  return table;
}

Table collective_table(const std::vector<CollectiveSummary>& rows) {
  using enum Align;
  Table table{.columns = {{"collective", left},
                          {"group", left},
                          {"ranks", right},
                          {"dtype", left},
                          {"calls", right},
                          {"MiB", right},
                          {"ms", right},
                          {"exposed ms", right},
                          {"worst call", right},
                          {"hidden", right}}};
  for (const CollectiveSummary& row : rows)
    table.rows.push_back({std::string(to_string(row.op)), or_dash(row.group),
                          row.group_size == 0 ? "-" : fmt::format("{}", row.group_size),
                          or_dash(row.dtype), fmt::format("{}", row.calls), mebibytes(row.bytes),
                          milliseconds(row.time), milliseconds(row.exposed),
                          milliseconds(row.most_exposed),
                          percent(row.time - row.exposed, row.time)});
  return table;
}

Table late_table(const DeviceReport& device) {
  using enum Align;
  Table table{.columns = {{"begins at ms", right},
                          {"stream", right},
                          {"group", left},
                          {"took", right},
                          {"stalled compute", right},
                          {"could hide", right},
                          {"stream free before launch", right},
                          {"after", right}}};
  for (const LateGather& late : device.late_gathers)
    table.rows.push_back({milliseconds(late.begin - device.begin), fmt::format("{}", late.stream),
                          or_dash(late.group), milliseconds(late.end - late.begin),
                          milliseconds(late.stall), milliseconds(late.could_hide),
                          late.launch_known ? milliseconds(late.free_before_launch) : "-",
                          late.launch_known ? milliseconds(late.free_after_launch) : "-"});
  return table;
}

Table queued_table(const DeviceReport& device) {
  using enum Align;
  Table table{.columns = {{"collective", left},
                          {"behind", left},
                          {"calls", right},
                          {"queued ms", right},
                          {"exposed ms", right}}};
  for (const QueuedBehind& row : device.queued)
    table.rows.push_back({std::string(to_string(row.second)), std::string(to_string(row.first)),
                          fmt::format("{}", row.calls), milliseconds(row.queued),
                          milliseconds(row.exposed)});
  return table;
}

Table kind_table(const DeviceReport& device) {
  using enum Align;
  Nanos sum;
  for (const KindTime& row : device.kinds) sum += row.time;
  Table table{.columns = {{"kind", left}, {"activities", right}, {"ms", right}, {"of all", right}}};
  for (const KindTime& row : device.kinds)
    table.rows.push_back(
        {row.kind, fmt::format("{}", row.kernels), milliseconds(row.time), percent(row.time, sum)});
  return table;
}

/// "Reduce-scatters", or "Reductions" if there are several kinds.
std::string_view name_of(const ReductionsInFlight& reductions) {
  if (reductions.op == CollectiveOp::reduce_scatter) return "Reduce-scatters";
  if (reductions.op == CollectiveOp::all_reduce) return "All-reduces";
  return reductions.op == CollectiveOp::reduce ? "Reduces" : "Reductions";
}

/// "Reduce-scatters in flight: 1 running, up to 3 queued".
std::string reductions_line(const ReductionsInFlight& reductions, const Style& style) {
  return fmt::format("{}{} in flight: {}{} running, {}\n", style.bullet, name_of(reductions),
                     reductions.most_running > 1 ? "up to " : "", reductions.most_running,
                     reductions.most_queued > 0
                         ? fmt::format("up to {} queued", reductions.most_queued)
                         : std::string("none queued"));
}

std::string device_part(const TraceReport& report, const DeviceReport& device, const Style& style) {
  std::string text = style.heading(title_of(report, device));
  text += style.table(step_table(device));
  if (!device.collectives.empty()) {
    text += style.heading("Collectives");
    text += style.table(collective_table(device.collectives));
  }
  if (device.late_gather_count > 0) {
    text += style.heading(fmt::format(
        "Gathers that began too late to hide: {}, {} ms could have hidden (the worst {})",
        device.late_gather_count, milliseconds(device.could_hide), device.late_gathers.size()));
    text += style.table(late_table(device));
  }
  if (!device.queued.empty()) {
    text += style.heading("Collectives that waited for the one before them");
    text += style.table(queued_table(device));
  }
  if (device.reductions.most_pending > 0) text += reductions_line(device.reductions, style);
  text += style.heading("Time by kind of kernel");
  return text + style.table(kind_table(device));
}

/// A table of all ranks. Ranks that wait for others have more exposed communication.
std::string rank_part(std::span<const TraceReport> reports, const Style& style) {
  std::size_t devices = 0;
  Table table = split_table("rank");
  for (const TraceReport& report : reports)
    for (const DeviceReport& device : report.devices) {
      ++devices;
      add_row(table, title_of(report, device), device.time);
    }
  return devices < 2 ? "" : style.heading("Ranks") + style.table(table);
}

std::string rules_part(std::span<const TraceReport> reports, const Style& style) {
  std::string text;
  for (const TraceReport& report : reports) {
    const auto& [findings, not_judged] = report.verdict;
    text += style.heading(fmt::format("Rules, {}", printable(report.where)));
    for (const Finding& row : findings)
      text +=
          fmt::format("{}{}: {}\n", style.bullet, title_of_rule(row.rule), printable(row.message));
    for (const NotJudged& row : not_judged)
      text += fmt::format("{}not judged: {}: {}\n", style.bullet, title_of_rule(row.rule),
                          printable(row.reason));
    if (findings.empty() && not_judged.empty()) text += "No findings.\n";
  }
  return text;
}

std::string limits_part(std::span<const TraceReport> reports, const Style& style) {
  const auto list = [&](const std::string& what, const std::vector<std::string>& limits) {
    std::string text = style.heading(fmt::format("Limits of {}", what));
    for (const std::string& limit : limits) text += fmt::format("{}{}\n", style.bullet, limit);
    return text;
  };
  const bool alike = std::ranges::all_of(
      reports, [&](const TraceReport& report) { return report.limits == reports.front().limits; });
  if (reports.size() > 1 && alike) return list("these traces", reports.front().limits);
  std::string text;
  for (const TraceReport& report : reports) text += list(printable(report.where), report.limits);
  return text;
}

std::string render(std::span<const TraceReport> reports, const Style& style) {
  std::string text;
  for (const TraceReport& report : reports)
    for (const DeviceReport& device : report.devices) text += device_part(report, device, style);
  text += rank_part(reports, style);
  text += rules_part(reports, style);
  text += limits_part(reports, style);
  // Headings begin with an empty line, which the first one does not need.
  return text.starts_with('\n') ? text.substr(1) : text;
}

}  // namespace

std::string render_trace_text(std::span<const TraceReport> reports, const TextStyle& style) {
  return render(reports, {.heading = [](const std::string& title) { return "\n" + title + "\n"; },
                          .table = [&](const Table& table) { return render_table(table, style); },
                          .bullet = "- "});
}

std::string render_trace_markdown(std::span<const TraceReport> reports) {
  return render(reports,
                {.heading = [](const std::string& title) { return "\n### " + title + "\n\n"; },
                 .table = render_markdown_table,
                 .bullet = "- "});
}

}  // namespace mfsdp::traces
