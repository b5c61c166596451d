#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "reports/budget/budget.hpp"

namespace mfsdp {
namespace {

/// Exact: limit and value are of [0, 2^63).
std::int64_t excess(const BudgetRow& row) { return row.value - row.limit.most; }

std::string verdict(const BudgetRow& row) {
  switch (row.outcome) {
    case BudgetOutcome::within: return "within";
    case BudgetOutcome::exceeded: return fmt::format("exceeded by {}", excess(row));
    case BudgetOutcome::not_comparable: return "not comparable";
  }
  return {};
}

/// "Budget ci.toml: 2 of 9 limits exceeded, 1 not comparable".
std::string headline(const BudgetReport& report, std::string_view quote) {
  const auto count = [&](BudgetOutcome outcome) {
    return std::ranges::count(report.rows, outcome, &BudgetRow::outcome);
  };
  std::string line =
      fmt::format("Budget {0}{1}{0}: {2} of {3} limits exceeded", quote, printable(report.file),
                  count(BudgetOutcome::exceeded), report.rows.size());
  if (const auto others = count(BudgetOutcome::not_comparable); others > 0)
    line += fmt::format(", {} not comparable", others);
  return line;
}

}  // namespace

std::vector<std::string> exceeded_lines(const BudgetReport& report) {
  std::vector<std::string> lines;
  for (const BudgetRow& row : report.rows)
    if (row.outcome == BudgetOutcome::exceeded)
      lines.push_back(fmt::format("{}:{}: {} is {}, {} over the limit of {}",
                                  printable(report.file), row.limit.line, row.limit.key, row.value,
                                  excess(row), row.limit.most));
  return lines;
}

std::string render_budget_text(const BudgetReport& report) {
  std::size_t key = 0;
  std::size_t number = std::string_view("at most").size();
  for (const BudgetRow& row : report.rows) {
    key = std::max(key, row.limit.key.size());
    number = std::max(number, fmt::formatted_size("{}", std::max(row.limit.most, row.value)));
  }
  std::string text = headline(report, "") + "\n";
  for (const std::string& note : report.notes) text += "  " + note + "\n";
  text += fmt::format("  line  {:<{}}  {:>{}}  {:>{}}\n", "limit", key, "at most", number, "is",
                      number);
  for (const BudgetRow& row : report.rows)
    text += fmt::format("  {:>4}  {:<{}}  {:>{}}  {:>{}}  {}\n", row.limit.line, row.limit.key, key,
                        row.limit.most, number, row.value, number, verdict(row));
  return text;
}

std::string render_budget_markdown(const BudgetReport& report) {
  std::string text = "### " + headline(report, "`") + "\n\n";
  for (const std::string& note : report.notes) text += "- " + note + "\n";
  if (!report.notes.empty()) text += "\n";
  text += "| line | limit | at most | is | outcome |\n| ---: | --- | ---: | ---: | --- |\n";
  for (const BudgetRow& row : report.rows) {
    const std::string_view emphasis = row.outcome == BudgetOutcome::exceeded ? "**" : "";
    text += fmt::format("| {} | {} | {} | {} | {}{}{} |\n", row.limit.line, row.limit.key,
                        row.limit.most, row.value, emphasis, verdict(row), emphasis);
  }
  return text;
}

std::string add_budget(const std::string& result_json, const BudgetReport& report) {
  using Json = nlohmann::ordered_json;
  Json limits = Json::array();
  for (const BudgetRow& row : report.rows)
    limits.push_back({{"key", row.limit.key},
                      {"line", row.limit.line},
                      {"limit", row.limit.most},
                      {"value", row.value},
                      {"outcome", std::string(to_string(row.outcome))}});
  Json result = Json::parse(result_json);
  result["budget"] = {{"file", report.file},
                      {"passes", report.passes()},
                      {"limits", std::move(limits)},
                      {"notes", report.notes}};
  const bool one_line = result_json.find('\n') + 1 >= result_json.size();
  return result.dump(one_line ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mfsdp
