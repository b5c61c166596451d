#include "reports/record/parse_result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/parse_json.hpp"
#include "reports/record/result_json.hpp"

namespace mfsdp {
namespace {

/// The results of a sweep, or the one result that the document is.
Result<std::vector<RunResult>> results_of(const nlohmann::json& root, std::string_view text,
                                          const std::string& where) {
  std::vector<RunResult> runs;
  if (root.is_object() && root.contains("results") && root["results"].is_array()) {
    for (const nlohmann::json& item : root["results"]) {
      MFSDP_LET(run, result_from_json(item.dump(), where));
      runs.push_back(std::move(run));
    }
    return runs;
  }
  MFSDP_LET(run, result_from_json(text, where));
  runs.push_back(std::move(run));
  return runs;
}

bool is_result(const nlohmann::json& root) {
  return root.is_object() && root.value("schema", nlohmann::json()) == kResultSchema;
}

}  // namespace

Result<std::vector<RunResult>> parse_results(std::string_view text, const std::string& where) {
  if (const auto whole = parse_json(text, where)) return results_of(*whole, text, where);
  std::vector<RunResult> runs;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (!line.starts_with('{')) continue;
    const auto document = parse_json(line, where, number);
    if (!document || !is_result(*document)) continue;
    MFSDP_LET(run, result_from_json(line, fmt::format("{}:{}", where, number)));
    runs.push_back(std::move(run));
  }
  if (runs.empty())
    return fail(where, "holds no result: expected what --output json or jsonl prints");
  return runs;
}

}  // namespace mfsdp
