#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "reports/budget/budget.hpp"
#include "reports/render/output.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

/// The bounds that the row is held against, as far as it has them.
std::vector<Figure> bounds_of(const BudgetRow& row) {
  std::vector<Figure> bounds;
  for (const auto& bound : {row.worst, row.best, row.limit.expected})
    if (bound) bounds.push_back(*bound);
  return bounds;
}

/// Whether the value and a bound that it differs from look the same in people's units.
bool needs_digits(const BudgetRow& row) {
  const MeasureUnit unit = row.limit.measure.unit;
  return row.value && std::ranges::any_of(bounds_of(row), [&](const Figure& bound) {
           return bound != *row.value && human_text(unit, bound) == human_text(unit, *row.value);
         });
}

/// With its unit: "43.38 GiB", or all its digits where those make the difference.
std::string value_text(const BudgetRow& row, const std::optional<Figure>& figure) {
  if (!figure) return "-";
  const MeasureUnit unit = row.limit.measure.unit;
  return needs_digits(row) ? digits_text(unit, *figure) : human_text(unit, *figure);
}

/// "2 %" or "1.00 MiB".
std::string amount_text(const Difference& difference, MeasureUnit unit) {
  if (difference.share) return fmt::format("{:.4g} %", *difference.share * 100);
  return human_text(unit, difference.amount);
}

/// "1 B over", "12.35 ms (1.2 %) under": how far the value is from that bound.
std::string beyond(const BudgetRow& row, const std::optional<Figure>& bound) {
  if (!bound || !row.value) return "";
  const bool over = is_less(*bound, *row.value);
  std::string amount = difference_text(row.limit.measure.unit, *bound, *row.value).substr(1);
  const std::string part = relative_text(*bound, *row.value);
  if (part.size() > 1) amount += fmt::format(" ({})", part.substr(1));
  return fmt::format("{} {}", amount, over ? "over" : "under");
}

std::string statistics_text(const BudgetRow& row) {
  if (!row.statistics || row.samples < kFewestSamples) return "";
  const std::string_view what = row.of_steps ? "blocks of steps" : "runs";
  if (!row.against_baseline) return fmt::format("{} {}", row.samples, what);
  const SampleVerdict& judged = *row.statistics;
  const double whole = real_of(*row.baseline);
  if (whole == 0 || row.baseline_samples < kFewestSamples)
    return fmt::format("{} and {} {}", row.baseline_samples, row.samples, what);
  const auto percent = [&](double value) { return fmt::format("{:+.1f}", 100 * value / whole); };
  return fmt::format("{} % ({} to {}), p {:.2g}, effect {:+.2f}, {} and {} {}",
                     percent(judged.shift.estimate), percent(judged.shift.low),
                     percent(judged.shift.high), std::min(judged.p_worse, judged.p_better),
                     judged.test.effect, row.baseline_samples, row.samples, what);
}

constexpr std::size_t kShownRuns = 5;

/// "run 3fa91b2c (name), simulated"; several: "runs 3fa91b2c, 77aa0001 and 8 more, measured".
std::string judged_text(std::string_view one, std::string_view several,
                        const std::vector<JudgedRun>& runs) {
  std::string text(runs.size() == 1 ? one : several);
  for (std::size_t i = 0; i < std::min(runs.size(), kShownRuns); ++i) {
    const JudgedRun& run = runs[i];
    text += i == 0 ? " " : ", ";
    text += run.run_id.empty() ? "a timed command" : printable(run.run_id.substr(0, 8));
    if (!run.name.empty()) text += fmt::format(" ({})", printable(run.name.substr(0, 40)));
  }
  if (runs.size() > kShownRuns) text += fmt::format(" and {} more", runs.size() - kShownRuns);
  return fmt::format("{}, {}", text, runs.front().source);
}

/// Who was judged, and against whom: a line each.
std::vector<std::string> judged_lines(const BudgetReport& report) {
  std::vector<std::string> lines;
  if (!report.runs.empty()) lines.push_back(judged_text("run", "runs", report.runs));
  if (!report.baseline.empty())
    lines.push_back(judged_text("baseline", "baselines", report.baseline));
  return lines;
}

Json judged_json(const std::vector<JudgedRun>& runs) {
  Json list = Json::array();
  for (const JudgedRun& run : runs)
    list.push_back({{"run_id", run.run_id}, {"name", run.name}, {"source", run.source}});
  return list;
}

/// The ids, separated by blanks.
std::string judged_field(const std::vector<JudgedRun>& runs) {
  std::string ids;
  for (const JudgedRun& run : runs) ids += (ids.empty() ? "" : " ") + run.run_id;
  return csv_field(ids);
}

std::string verdict_word(Verdict verdict) {
  std::string word(to_string(verdict));
  std::ranges::replace(word, '_', ' ');
  return word;
}

/// "pass: 20 pass, 1 improved".
std::string summary_text(const BudgetReport& report) {
  std::string counts;
  for (const Verdict verdict : {Verdict::fail, Verdict::not_comparable, Verdict::inconclusive,
                                Verdict::improved, Verdict::pass})
    if (const std::size_t count = report.count(verdict); count > 0)
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, verdict_word(verdict));
  return fmt::format("{} ({} of {} limit{})", verdict_word(report.verdict()), counts,
                     report.rows.size(), report.rows.size() == 1 ? "" : "s");
}

Json json_figure(const std::optional<Figure>& figure) {
  if (!figure) return nullptr;
  return std::visit([](auto value) { return Json(value); }, *figure);
}

/// The word of mfsdp.result/1: what passes is within.
std::string_view outcome_word(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
    case Verdict::improved: return "within";
    case Verdict::fail: return "exceeded";
    case Verdict::inconclusive: return "inconclusive";
    case Verdict::not_comparable: break;
  }
  return "not_comparable";
}

Json statistics_json(const BudgetRow& row) {
  const SampleVerdict& judged = *row.statistics;
  Json json = {{"samples", row.samples},
               {"baseline_samples", row.baseline_samples},
               {"sample", row.of_steps ? "block of steps" : "run"}};
  if (!row.against_baseline) return json;
  json["shift"] = judged.shift.estimate;
  json["shift_low"] = judged.shift.low;
  json["shift_high"] = judged.shift.high;
  json["u"] = judged.test.u;
  json["p_larger"] = judged.test.p_larger;
  json["p_smaller"] = judged.test.p_smaller;
  json["p_worse_than_allowed"] = judged.p_worse;
  json["p_better_than_allowed"] = judged.p_better;
  json["exact"] = judged.test.exact;
  json["effect"] = judged.test.effect;
  return json;
}

Json row_json(const BudgetRow& row) {
  Json json = {{"key", row.limit.measure.key},         {"line", row.limit.line},
               {"limit", json_figure(row.worst)},      {"value", json_figure(row.value)},
               {"outcome", outcome_word(row.verdict)}, {"verdict", to_string(row.verdict)}};
  if (row.best) json["improved_beyond"] = json_figure(row.best);
  if (row.against_baseline) json["baseline"] = json_figure(row.baseline);
  if (!row.why.empty()) json["why"] = row.why;
  if (row.statistics) json["statistics"] = statistics_json(row);
  return json;
}

Json report_json(const BudgetReport& report) {
  Json limits = Json::array();
  for (const BudgetRow& row : report.rows) limits.push_back(row_json(row));
  return {{"file", report.file},
          {"verdict", to_string(report.verdict())},
          {"passes", passes(report)},
          {"limits", std::move(limits)},
          {"notes", report.notes}};
}

std::string dumped(const Json& json, bool one_line) {
  return json.dump(one_line ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Between two backquotes, which the text itself cannot contain.
std::string code_text(const std::string& text) {
  std::string out = printable(text);
  std::ranges::replace(out, '`', '\'');
  return out;
}

/// How many other rows are not comparable for the reason of `row`.
struct SameReason {
  std::size_t before = 0;  ///< of them, in the report's order
  std::size_t others = 0;
};
SameReason same_reason(const BudgetReport& report, const BudgetRow& row) {
  SameReason same;
  for (const BudgetRow& other : report.rows) {
    if (&other == &row || other.verdict != row.verdict) continue;
    if (other.why != row.why || other.differs != row.differs) continue;
    ++same.others;
    if (&other < &row) ++same.before;
  }
  return same;
}

/// The reason once: "FILE:LINE: KEY is not comparable: WHY (WHAT DIFFERS); nor are 18 more". Empty
/// if an earlier line has stated it.
std::string incomparable_line(const BudgetReport& report, const BudgetRow& row,
                              const std::string& where) {
  const SameReason same = same_reason(report, row);
  if (same.before > 0) return {};
  std::string line = fmt::format("{} is not comparable: {}", where, row.why);
  if (!row.differs.empty()) line += fmt::format(" ({})", row.differs);
  if (same.others > 0)
    line += fmt::format("; nor {} {} more", same.others == 1 ? "is" : "are", same.others);
  return line;
}

}  // namespace

namespace {

/// The bound with its figures as `shown` writes them.
std::string bound_with(const BudgetRow& row, auto shown) {
  const Limit& limit = row.limit;
  const MeasureUnit unit = limit.measure.unit;
  if (row.against_baseline) {
    const bool lower = limit.measure.better == Better::lower;
    return fmt::format("baseline {} {}", lower ? "+" : "-", amount_text(*limit.worse_by, unit));
  }
  if (limit.expected) {
    const std::string value = shown(*limit.expected);
    return limit.tolerance ? fmt::format("{} +- {}", value, amount_text(*limit.tolerance, unit))
                           : value;
  }
  if (limit.most && limit.least) return shown(*limit.least) + " to " + shown(*limit.most);
  return limit.most ? "at most " + shown(*limit.most) : "at least " + shown(*limit.least);
}

}  // namespace

std::string bound_text(const BudgetRow& row) {
  return bound_with(row, [&](const Figure& figure) { return value_text(row, figure); });
}

std::string exact_bound_text(const BudgetRow& row) {
  return bound_with(row, [](const Figure& figure) { return exact_text(figure); });
}

std::string verdict_text(const BudgetRow& row) {
  const std::string numbers = statistics_text(row);
  std::string text = verdict_word(row.verdict);
  if (row.verdict == Verdict::fail) text += ": " + beyond(row, row.worst);
  if (row.verdict == Verdict::improved) text += ": " + beyond(row, row.best);
  if (!row.why.empty()) text += ": " + row.why;
  return numbers.empty() ? text : text + "; " + numbers;
}

std::string excess_sentence(const BudgetRow& row) {
  const std::string subject = subject_of(row.limit.measure);
  const bool ends_with_number = subject.back() >= '0' && subject.back() <= '9';
  const std::string value = value_text(row, row.value);
  std::string limit = value_text(row, row.worst);
  // One unit is enough: "43.38 GiB, limit 32.38".
  const std::size_t blank = value.find(' ');
  if (blank != std::string::npos && limit.ends_with(value.substr(blank)))
    limit.resize(limit.size() - (value.size() - blank));
  return fmt::format("{}{} {}, limit {}: {}", subject, ends_with_number ? " is" : "", value, limit,
                     beyond(row, row.worst));
}

std::vector<std::string> failure_lines(const BudgetReport& report) {
  std::vector<std::string> lines;
  for (const BudgetRow& row : report.rows) {
    const std::string place = fmt::format("{}:{}: ", printable(report.file), row.limit.line);
    const std::string where = place + row.limit.measure.key;
    if (row.verdict == Verdict::fail) lines.push_back(place + excess_sentence(row));
    if (row.verdict != Verdict::not_comparable) continue;
    if (std::string line = incomparable_line(report, row, where); !line.empty())
      lines.push_back(std::move(line));
  }
  return lines;
}

std::string render_budget_text(const BudgetReport& report) {
  std::size_t key = std::string_view("limit").size();
  std::size_t bound = std::string_view("allowed").size();
  std::size_t value = std::string_view("is").size();
  for (const BudgetRow& row : report.rows) {
    key = std::max(key, row.limit.measure.key.size());
    bound = std::max(bound, display_width(bound_text(row)));
    value = std::max(value, display_width(value_text(row, row.value)));
  }
  std::string text = fmt::format("Budget {}: {}\n", printable(report.file), summary_text(report));
  for (const std::string& line : judged_lines(report)) text += "  " + line + "\n";
  for (const std::string& note : report.notes) text += "  " + note + "\n";
  text +=
      fmt::format("  line  {:<{}}  {:>{}}  {:>{}}\n", "limit", key, "allowed", bound, "is", value);
  for (const BudgetRow& row : report.rows)
    text += fmt::format("  {:>4}  {:<{}}  {:>{}}  {:>{}}  {}\n", row.limit.line,
                        row.limit.measure.key, key, bound_text(row), bound,
                        value_text(row, row.value), value, verdict_text(row));
  return text;
}

std::string render_budget_markdown(const BudgetReport& report) {
  std::string text =
      fmt::format("### Budget `{}`: {}\n\n", code_text(report.file), summary_text(report));
  std::vector<std::string> remarks = judged_lines(report);
  remarks.insert(remarks.end(), report.notes.begin(), report.notes.end());
  for (const std::string& remark : remarks) text += "- " + markdown_text(remark) + "\n";
  if (!remarks.empty()) text += "\n";
  text += "| line | limit | allowed | is | verdict |\n| ---: | --- | ---: | ---: | --- |\n";
  for (const BudgetRow& row : report.rows) {
    const bool bad = row.verdict == Verdict::fail || row.verdict == Verdict::not_comparable;
    const std::string_view emphasis = bad ? "**" : "";
    text += fmt::format("| {} | {} | {} | {} | {}{}{} |\n", row.limit.line, row.limit.measure.key,
                        markdown_text(bound_text(row)), value_text(row, row.value), emphasis,
                        markdown_text(verdict_text(row)), emphasis);
  }
  return text;
}

std::string render_budget_json(const BudgetReport& report, bool one_line) {
  Json json = {{"schema", "mfsdp.check/1"}};
  if (!report.runs.empty()) json["runs"] = judged_json(report.runs);
  if (!report.baseline.empty()) json["baseline_runs"] = judged_json(report.baseline);
  json.update(report_json(report));
  return dumped(json, one_line);
}

std::string render_budget_csv(const BudgetReport& report) {
  const auto cell = [](const std::optional<Figure>& figure) {
    return figure ? exact_text(*figure) : std::string();
  };
  std::string text =
      "file,line,key,verdict,value,worst,best,baseline,samples,baseline_samples,why,runs,source,"
      "baseline_runs,baseline_source\n";
  const auto source = [](const std::vector<JudgedRun>& runs) {
    return runs.empty() ? std::string() : runs.front().source;
  };
  const std::string judged =
      fmt::format("{},{},{},{}", judged_field(report.runs), source(report.runs),
                  judged_field(report.baseline), source(report.baseline));
  for (const BudgetRow& row : report.rows)
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", csv_field(report.file),
                        row.limit.line, csv_field(row.limit.measure.key), to_string(row.verdict),
                        cell(row.value), cell(row.worst), cell(row.best), cell(row.baseline),
                        row.samples, row.baseline_samples, csv_field(row.why), judged);
  return text;
}

std::string add_budget(const std::string& result_json, const BudgetReport& report) {
  Json result = Json::parse(result_json);
  result["budget"] = report_json(report);
  return dumped(result, result_json.find('\n') + 1 >= result_json.size());
}

}  // namespace mfsdp
