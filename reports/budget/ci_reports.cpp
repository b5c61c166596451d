#include "reports/budget/ci_reports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/text.hpp"
#include "core/formats/xml.hpp"

namespace mfsdp {
namespace {

using CiJson = nlohmann::ordered_json;

/// Escapes the data of a workflow command as actions/toolkit does.
std::string escaped_data(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '%')
      out += "%25";
    else if (c == '\r')
      out += "%0D";
    else if (c == '\n')
      out += "%0A";
    else
      out += c;
  }
  return out;
}

std::string escaped_property(std::string_view text) {
  std::string out;
  for (const char c : escaped_data(text)) {
    if (c == ':')
      out += "%3A";
    else if (c == ',')
      out += "%2C";
    else
      out += c;
  }
  return out;
}

/// The sentence, then the figures to their last digit: "Allocated memory 43.38 GiB, limit 32.38:
/// 11.00 GiB (34.0 %) over (memory.allocated_bytes is 46579330560, allowed at most 34768170496)".
/// For a limit that did not fail: "plan.ops is 3500, allowed 3600: improved: ...".
std::string sentence(const BudgetRow& row) {
  const std::string figures =
      fmt::format("{} is {}, allowed {}", row.limit.measure.key,
                  row.value ? exact_text(*row.value) : "unknown", exact_bound_text(row));
  if (row.verdict == Verdict::fail && row.value && row.worst)
    return fmt::format("{} ({})", excess_sentence(row), figures);
  return fmt::format("{}: {}", figures, verdict_text(row));
}

/// A path as a URI reference: what is not plainly a character of paths is percent-encoded.
std::string uri_of(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/._-~").find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string_view github_level(Verdict verdict) {
  switch (verdict) {
    case Verdict::inconclusive: return "warning";
    case Verdict::improved: return "notice";
    case Verdict::pass:
    case Verdict::fail:
    case Verdict::not_comparable: break;
  }
  return "error";
}

bool is_failure(Verdict verdict, const BudgetPolicy& policy) {
  if (verdict == Verdict::fail) return true;
  if (verdict == Verdict::not_comparable) return !policy.allow_incomparable;
  return verdict == Verdict::inconclusive && policy.strict;
}

bool is_skipped(Verdict verdict, const BudgetPolicy& policy) {
  const bool open = verdict == Verdict::not_comparable || verdict == Verdict::inconclusive;
  return open && !is_failure(verdict, policy);
}

std::string dumped_json(const CiJson& json) {
  return json.dump(2, ' ', false, CiJson::error_handler_t::replace) + "\n";
}

std::string_view unit_word(MeasureUnit unit) {
  switch (unit) {
    case MeasureUnit::bytes: return "bytes";
    case MeasureUnit::nanoseconds: return "ns";
    case MeasureUnit::count: return "count";
    case MeasureUnit::fraction: return "fraction";
    case MeasureUnit::rate: return "per second";
    case MeasureUnit::plain: break;
  }
  return "value";
}

CiJson number_json(const Figure& figure) {
  return std::visit([](auto value) { return CiJson(value); }, figure);
}

/// "budget-fail" and similar: ids stay the same from version to version.
std::string rule_of(Verdict verdict) {
  std::string id = "budget-" + std::string(to_string(verdict));
  std::ranges::replace(id, '_', '-');
  return id;
}

CiJson sarif_rules() {
  struct Rule {
    Verdict verdict;
    std::string_view text;
    std::string_view level;
  };
  constexpr std::array<Rule, 4> rules{
      {{Verdict::fail, "A limit of the budget is exceeded.", "error"},
       {Verdict::not_comparable, "The budget is of another model, cluster or cost model.", "error"},
       {Verdict::inconclusive, "The samples are too few or too noisy for a verdict.", "warning"},
       {Verdict::improved, "Better than the budget expects: write it anew.", "note"}}};
  CiJson list = CiJson::array();
  for (const Rule& rule : rules)
    list.push_back({{"id", rule_of(rule.verdict)},
                    {"shortDescription", {{"text", rule.text}}},
                    {"defaultConfiguration", {{"level", rule.level}}}});
  return list;
}

CiJson sarif_result(const BudgetRow& row, const std::string& file) {
  const std::string_view level = github_level(row.verdict);
  return {{"ruleId", rule_of(row.verdict)},
          {"level", level == "notice" ? "note" : level},
          {"message", {{"text", sentence(row)}}},
          {"locations",
           CiJson::array({{{"physicalLocation",
                            {{"artifactLocation", {{"uri", uri_of(file)}}},
                             {"region", {{"startLine", std::max(row.limit.line, 1U)}}}}}}})},
          {"partialFingerprints",
           {{"limit/v1", row.limit.measure.key + (row.against_baseline ? "/worse_by" : "")}}}};
}

}  // namespace

std::vector<std::string> github_annotations(const BudgetReport& report) {
  std::vector<std::string> lines;
  for (const BudgetRow& row : report.rows) {
    if (row.verdict == Verdict::pass) continue;
    lines.push_back(
        fmt::format("::{} file={},line={},title={}::{}", github_level(row.verdict),
                    escaped_property(printable(report.file)), row.limit.line,
                    escaped_property(fmt::format("mfsdp budget: {}", row.limit.measure.title)),
                    escaped_data(printable(sentence(row)))));
  }
  return lines;
}

// Names, order and attributes follow junit-10.xsd, which Jenkins's xUnit plug-in and pytest
// validate against. In it a case has no file and no line, so the text contains them.
std::string junit_xml(const BudgetReport& report) {
  std::size_t failures = 0;
  std::size_t skipped = 0;
  std::string cases;
  for (const BudgetRow& row : report.rows) {
    cases += fmt::format("    <testcase classname=\"{}\" name=\"{}\"",
                         xml_text(row.limit.measure.table()), xml_text(row.limit.measure.key));
    const std::string text = xml_text(sentence(row));
    const std::string place = fmt::format("{}:{}", xml_text(report.file), row.limit.line);
    if (is_failure(row.verdict, report.policy)) {
      ++failures;
      cases += fmt::format(
          ">\n      <failure type=\"{}\" message=\"{}\">{}</failure>\n    </testcase>\n",
          to_string(row.verdict), text, place);
    } else if (is_skipped(row.verdict, report.policy)) {
      ++skipped;
      cases += fmt::format(">\n      <skipped message=\"{}\">{}</skipped>\n    </testcase>\n", text,
                           place);
    } else {
      cases += fmt::format(">\n      <system-out>{}</system-out>\n    </testcase>\n", text);
    }
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "  <testsuite name=\"mfsdp budget {0}\" tests=\"{1}\" failures=\"{2}\" errors=\"0\" "
      "skipped=\"{3}\" file=\"{0}\">\n{4}  </testsuite>\n</testsuites>\n",
      xml_text(report.file), report.rows.size(), failures, skipped, cases);
}

std::string sarif_json(const BudgetReport& report, const std::string& version) {
  CiJson results = CiJson::array();
  for (const BudgetRow& row : report.rows)
    if (row.verdict != Verdict::pass) results.push_back(sarif_result(row, report.file));
  return dumped_json(
      {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
       {"version", "2.1.0"},
       {"runs",
        CiJson::array(
            {{{"tool",
               {{"driver",
                 {{"name", "mfsdp-report"}, {"version", version}, {"rules", sarif_rules()}}}}},
              {"results", std::move(results)}}})}});
}

std::string bmf_json(const BudgetReport& report, const std::string& benchmark) {
  CiJson measured = CiJson::object();
  for (const BudgetRow& row : report.rows) {
    if (!row.value) continue;
    CiJson metric = {{"value", number_json(*row.value)}};
    if (row.range) {
      metric["lower_value"] = row.range->low;
      metric["upper_value"] = row.range->high;
    }
    measured[row.limit.measure.key] = std::move(metric);
  }
  constexpr std::size_t longest_name = 1024;  // of a benchmark, as Bencher takes it
  return dumped_json({{benchmark.substr(0, longest_name), std::move(measured)}});
}

std::string action_benchmark_json(const BudgetReport& report, const std::string& benchmark) {
  CiJson list = CiJson::array();
  for (const BudgetRow& row : report.rows) {
    if (!row.value || row.limit.measure.better == Better::higher) continue;
    CiJson entry = {{"name", benchmark + "/" + row.limit.measure.key},
                    {"unit", unit_word(row.limit.measure.unit)},
                    {"value", number_json(*row.value)}};
    if (row.range)
      entry["range"] = fmt::format("{:.6g} to {:.6g}", row.range->low, row.range->high);
    entry["extra"] = verdict_text(row);
    list.push_back(std::move(entry));
  }
  return dumped_json(list);
}

}  // namespace mfsdp
