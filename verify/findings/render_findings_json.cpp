#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "verify/findings/render_findings.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Bytes that are not UTF-8 become the replacement character.
std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string level_of(std::string_view rule) { return is_error(rule) ? "error" : "note"; }

template <class Row>
Json list_of(std::span<const Row> rows, auto to_json) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  return list;
}

// ---- JSON ---------------------------------------------------------------------------------------

Json place_json(const Place& place) {
  return {{"plan", place.plan},    {"segment", place.segment},
          {"step", place.step},    {"repetition", place.repetition},
          {"op", place.op.value},  {"name", place.name},
          {"stream", place.stream}};
}

Json finding_json(const Finding& finding) {
  return {{"rule", finding.rule},
          {"level", level_of(finding.rule)},
          {"message", finding.message},
          {"places", list_of(std::span(finding.places), place_json)},
          {"buffer", finding.buffer ? Json(finding.buffer->value) : Json()},
          {"begin", finding.begin},
          {"end", finding.end},
          {"missing", finding.missing},
          {"interleaving", list_of(std::span(finding.interleaving), place_json)},
          {"fingerprint", fingerprint(finding)}};
}

Json not_judged_json(const NotJudged& row) { return {{"rule", row.rule}, {"reason", row.reason}}; }

// ---- SARIF --------------------------------------------------------------------------------------

/// A path as a URI reference: what RFC 3986 reserves is written as %XX, "/" stays.
std::string uri_of(std::string_view path) {
  constexpr std::string_view kPlain = "-._~/";
  std::string uri;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || kPlain.find(c) != std::string_view::npos) {
      uri += c;
    } else {
      uri += fmt::format("%{:02X}", byte);
    }
  }
  return uri;
}

Json rule_sarif(const RuleInfo& rule) {
  return {{"id", rule.id},
          {"name", rule.name},
          {"shortDescription", {{"text", rule.text}}},
          {"defaultConfiguration", {{"level", level_of(rule.id)}}}};
}

Json location_sarif(const Place& place, const FindingsOf& of) {
  return {{"physicalLocation", {{"artifactLocation", {{"uri", uri_of(of.subject)}}}}},
          {"logicalLocations",
           Json::array({{{"name", place.name},
                         {"fullyQualifiedName",
                          fmt::format("{}/{}/{}", place.plan, place.segment, place.name)},
                         {"kind", "operation"}}})},
          {"message", {{"text", to_string(place)}}}};
}

Json subject_sarif(const FindingsOf& of) {
  return {{"physicalLocation", {{"artifactLocation", {{"uri", uri_of(of.subject)}}}}}};
}

/// SARIF 2.1.0, 3.27.9: "open" is what a tool had too little to decide.
Json open_sarif(const NotJudged& row, const FindingsOf& of) {
  return {{"ruleId", row.rule},
          {"kind", "open"},
          {"level", "none"},
          {"message", {{"text", "not judged: " + row.reason}}},
          {"locations", Json::array({subject_sarif(of)})}};
}

Json result_sarif(const Finding& finding, const FindingsOf& of) {
  const auto location = [&](const Place& place) { return location_sarif(place, of); };
  Json locations = list_of(
      std::span(finding.places).first(std::min<std::size_t>(finding.places.size(), 1)), location);
  if (locations.empty()) locations.push_back(subject_sarif(of));
  Json result{{"ruleId", finding.rule},
              {"level", level_of(finding.rule)},
              {"message", {{"text", finding.message}}},
              {"locations", std::move(locations)},
              {"partialFingerprints", {{"mfsdpFinding/v1", fingerprint(finding)}}}};
  const RuleInfo* rule = find_rule(finding.rule);
  if (rule != nullptr) result["ruleIndex"] = rule - rules().data();
  if (finding.places.size() > 1)
    result["relatedLocations"] = list_of(std::span(finding.places).subspan(1), location);
  if (!finding.interleaving.empty()) {
    const Json steps = list_of(std::span(finding.interleaving), [&](const Place& place) {
      return Json{{"location", location(place)}};
    });
    result["codeFlows"] = Json::array({{{"threadFlows", Json::array({{{"locations", steps}}})}}});
  }
  return result;
}

}  // namespace

std::string render_findings_json(std::span<const Finding> findings, const FindingsOf& of) {
  const auto errors =
      std::ranges::count_if(findings, [](const Finding& row) { return is_error(row.rule); });
  Json figures = Json::object();
  for (const Figure& figure : of.figures) figures[figure.name] = figure.value;
  return dumped({{"schema", "mfsdp.findings/1"},
                 {"subject", of.subject},
                 {"tool", of.tool},
                 {"version", of.version},
                 {"figures", figures},
                 {"errors", errors},
                 {"notes", std::ssize(findings) - errors},
                 {"findings", list_of(findings, finding_json)},
                 {"not_judged", list_of(std::span(of.not_judged), not_judged_json)}});
}

std::string render_findings_sarif(std::span<const Finding> findings, const FindingsOf& of) {
  Json results =
      list_of(findings, [&](const Finding& finding) { return result_sarif(finding, of); });
  for (const NotJudged& row : of.not_judged) results.push_back(open_sarif(row, of));
  Json driver{{"name", of.tool}, {"rules", list_of(rules(), rule_sarif)}};
  if (!of.version.empty()) driver["version"] = of.version;  // may not be empty
  const Json run{{"tool", {{"driver", std::move(driver)}}}, {"results", results}};
  return dumped({{"$schema", kSchema}, {"version", "2.1.0"}, {"runs", Json::array({run})}});
}

}  // namespace mfsdp
