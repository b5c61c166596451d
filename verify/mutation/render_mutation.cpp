#include "verify/mutation/render_mutation.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/plan/plan_json.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t judged(const FateCounts& counts) {
  return counts.killed + counts.correct + counts.uncertified;
}

std::string rule_name(const std::string& rule) {
  const RuleInfo* info = find_rule(rule);
  return info == nullptr ? rule : fmt::format("{} {}", rule, info->name);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::vector<MutantVerdict> not_killed(const MutationReport& report) {
  std::vector<MutantVerdict> left;
  for (const MutantVerdict& verdict : report.verdicts)
    if (verdict.fate != Fate::killed) left.push_back(verdict);
  return left;
}

}  // namespace

std::string summary(const MutationReport& report) {
  std::string text = fmt::format("{} mutants, {} judged: {} killed, {} correct, {} uncertified",
                                 report.mutants, judged(report.total), report.total.killed,
                                 report.total.correct, report.total.uncertified);
  if (report.unchanged > 0)
    text += fmt::format("; {} more were drawn and change nothing", report.unchanged);
  return text;
}

std::string render_mutation_text(const Program& program, const MutationReport& report) {
  std::string text = summary(report) + "\n\n";
  text += fmt::format("{:<21} {:>8} {:>8} {:>12}\n", "kind", "killed", "correct", "uncertified");
  for (const auto& [kind, counts] : report.by_kind)
    text += fmt::format("{:<21} {:>8} {:>8} {:>12}\n", to_string(kind), counts.killed,
                        counts.correct, counts.uncertified);
  text += fmt::format("\n{:<28} {:>8}\n", "found by", "mutants");
  for (const auto& [rule, count] : report.by_rule)
    text += fmt::format("{:<28} {:>8}\n", rule_name(rule), count);
  const std::vector<MutantVerdict> left = not_killed(report);
  if (!left.empty()) text += "\nnot killed:\n";
  for (const MutantVerdict& verdict : left)
    text += fmt::format("  {}{}{}\n", describe(program, verdict.mutant),
                        verdict.fate == Fate::correct ? "" : "; uncertified: ", verdict.refusal);
  return text;
}

std::string render_mutation_markdown(const Program& program, const MutationReport& report) {
  std::string text = summary(report) + "\n\n";
  text += "| kind | killed | correct | uncertified |\n|---|---:|---:|---:|\n";
  for (const auto& [kind, counts] : report.by_kind)
    text += fmt::format("| {} | {} | {} | {} |\n", to_string(kind), counts.killed, counts.correct,
                        counts.uncertified);
  text += "\n| found by | mutants |\n|---|---:|\n";
  for (const auto& [rule, count] : report.by_rule)
    text += fmt::format("| {} | {} |\n", rule_name(rule), count);
  const std::vector<MutantVerdict> left = not_killed(report);
  if (left.empty()) return text;
  text += "\n| not killed | fate |\n|---|---|\n";
  for (const MutantVerdict& verdict : left)
    text += fmt::format("| {} | {} |\n", escaped(describe(program, verdict.mutant)),
                        verdict.refusal.empty() ? std::string(to_string(verdict.fate))
                                                : "uncertified: " + escaped(verdict.refusal));
  return text;
}

std::string render_mutation_json(const Program& program, const MutationReport& report) {
  const auto counts_json = [](Json into, const FateCounts& counts) {
    into["killed"] = counts.killed;
    into["correct"] = counts.correct;
    into["uncertified"] = counts.uncertified;
    return into;
  };
  Json json = counts_json({{"plan", plan_hash(program)},
                           {"mutants", report.mutants},
                           {"unchanged", report.unchanged},
                           {"judged", judged(report.total)}},
                          report.total);
  json["kinds"] = Json::array();
  for (const auto& [kind, counts] : report.by_kind)
    json["kinds"].push_back(counts_json({{"kind", to_string(kind)}}, counts));
  json["rules"] = Json::array();
  for (const auto& [rule, count] : report.by_rule)
    json["rules"].push_back({{"rule", rule}, {"mutants", count}});
  json["verdicts"] = Json::array();
  for (const MutantVerdict& verdict : report.verdicts)
    json["verdicts"].push_back({{"mutant", describe(program, verdict.mutant)},
                                {"fate", to_string(verdict.fate)},
                                {"rules", verdict.rules},
                                {"refusal", verdict.refusal}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mfsdp
