#include "verify/bugs/render_bugs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/cli/table.hpp"

namespace mfsdp::bugs {
namespace {

std::string list_of(const std::vector<std::string>& rules) {
  return rules.empty() ? "none" : fmt::format("{}", fmt::join(rules, " "));
}

std::ptrdiff_t count_good(std::span<const BugVerdict> verdicts) {
  return std::ranges::count(verdicts, true, &BugVerdict::good);
}

/// GitHub redirects from issues to pull requests of the same number.
std::string link_to(const std::string& thread) {
  const std::size_t hash = thread.find('#');
  return fmt::format("[{}](https://github.com/{}/issues/{})", thread, thread.substr(0, hash),
                     thread.substr(hash + 1));
}

}  // namespace

std::string render_bugs_text(std::span<const BugVerdict> verdicts, const TextStyle& style) {
  Table table{.columns = {{"row", Align::right}, {"thread"}, {"bug"}, {"rules"}, {"verdict"}}};
  std::string wrong;
  for (const BugVerdict& v : verdicts) {
    table.rows.push_back({fmt::format("{}", v.row), v.thread, v.title, list_of(v.broken),
                          v.good ? "found" : "WRONG"});
    if (v.broken != v.expected)
      wrong += fmt::format("row {}: expected {}, found {}\n", v.row, list_of(v.expected),
                           list_of(v.broken));
    if (!v.fixed.empty())
      wrong += fmt::format("row {}: its fixed plan has {}\n", v.row, list_of(v.fixed));
  }
  return render_table(table, style) + "\n" + wrong +
         fmt::format("{} of {} bugs fire exactly their rules; their fixed plans are clean\n",
                     count_good(verdicts), verdicts.size());
}

std::string render_bugs_markdown(std::span<const BugVerdict> verdicts) {
  Table table{
      .columns = {
          {"row"}, {.title = "thread", .is_markdown = true}, {"what went wrong"}, {"rules"}}};
  for (const BugVerdict& v : verdicts)
    table.rows.push_back({fmt::format("{}", v.row), link_to(v.thread), v.bug, list_of(v.expected)});
  return render_markdown_table(table);
}

std::string render_bugs_json(std::span<const BugVerdict> verdicts) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson rows = OrderedJson::array();
  for (const BugVerdict& v : verdicts) {
    OrderedJson findings = OrderedJson::array();
    for (const Finding& finding : v.findings)
      findings.push_back({{"rule", finding.rule}, {"message", finding.message}});
    rows.push_back({{"row", v.row},
                    {"file", v.file},
                    {"title", v.title},
                    {"thread", v.thread},
                    {"bug", v.bug},
                    {"expected", v.expected},
                    {"broken", v.broken},
                    {"fixed", v.fixed},
                    {"findings", std::move(findings)},
                    {"good", v.good}});
  }
  const OrderedJson json{{"schema", "mfsdp.bugs/1"},
                         {"rows", verdicts.size()},
                         {"good", count_good(verdicts)},
                         {"bugs", std::move(rows)}};
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace mfsdp::bugs
