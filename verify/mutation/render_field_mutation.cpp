#include "verify/mutation/render_field_mutation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "verify/findings/finding.hpp"

namespace mfsdp {
namespace {

using FateCount = std::map<FieldFate, std::int64_t>;

template <class Key>
std::int64_t count_of(const std::map<Key, std::int64_t>& counts, Key key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

std::vector<FieldFate> all_fates() {
  std::vector<FieldFate> fates;
  for (std::size_t i = 0; i < Names<FieldFate>::values.size(); ++i)
    fates.push_back(static_cast<FieldFate>(i));
  return fates;
}

/// Fields with defects, most first.
std::vector<std::pair<std::string, std::int64_t>> ranked(const FieldMutationReport& report) {
  std::map<std::string, std::int64_t> defects;
  for (const FieldVerdict& verdict : report.verdicts)
    if (verdict.is_defect()) ++defects[verdict.mutant.field];
  std::vector<std::pair<std::string, std::int64_t>> list(defects.begin(), defects.end());
  std::ranges::stable_sort(list, std::ranges::greater{},
                           &std::pair<std::string, std::int64_t>::second);
  return list;
}

std::string line_of_defect(const FieldVerdict& verdict) {
  const FieldMutant& mutant = verdict.mutant;
  return fmt::format("#{} {}: {}, {} -> {}: {}{}: {}", mutant.number, mutant.place,
                     to_string(mutant.edit), mutant.before.empty() ? "nothing" : mutant.before,
                     mutant.after.empty() ? "nothing" : mutant.after, to_string(verdict.fate),
                     verdict.forgery == Forgery::accepted ? ", but certified" : "", verdict.why);
}

/// The line about certificates that were forged for wrong plans.
std::string forgeries(const FieldMutationReport& report) {
  const auto count = [&](Forgery forgery) { return count_of(report.forged, forgery); };
  return fmt::format(
      "certificates forged for {} mutants: {} refused, {} accepted though the proofs refuse the "
      "plan, which computes the same, {} accepted",
      count(Forgery::refused) + count(Forgery::same) + count(Forgery::accepted),
      count(Forgery::refused), count(Forgery::same), count(Forgery::accepted));
}

std::string in_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell += '\\';
    cell += c;
  }
  return cell;
}

std::string name_of_rule(const std::string& rule) {
  const RuleInfo* info = find_rule(rule);
  return info == nullptr ? rule : fmt::format("{} {}", rule, info->name);
}

}  // namespace

std::string summary(const FieldMutationReport& report) {
  std::string text = fmt::format("{} fields, {} mutants, {} judged: ", report.fields,
                                 report.mutants, report.judged());
  for (const FieldFate fate : {FieldFate::refused, FieldFate::found, FieldFate::same})
    text += fmt::format("{} {}, ", count_of(report.total, fate), to_string(fate));
  return text + fmt::format("{} defects", report.defects());
}

std::string render_field_mutation_text(const FieldMutationReport& report) {
  std::string text = summary(report) + "\n\n";
  for (const FieldFate fate : all_fates())
    text += fmt::format("{:<11} {:>8}\n", to_string(fate), count_of(report.total, fate));
  text += "\n" + forgeries(report) + "\n";
  text += fmt::format("\n{:<28} {:>8}\n", "found by", "mutants");
  for (const auto& [rule, count] : report.by_rule)
    text += fmt::format("{:<28} {:>8}\n", name_of_rule(rule), count);
  for (const auto& [field, defects] : ranked(report)) {
    text += fmt::format("\n{} defects: {}\n", defects, field);
    for (const FieldVerdict& verdict : report.verdicts)
      if (verdict.mutant.field == field && verdict.is_defect())
        text += "  " + line_of_defect(verdict) + "\n";
  }
  return text;
}

std::string render_field_mutation_markdown(const FieldMutationReport& report) {
  std::string text = summary(report) + "\n\n| field |";
  std::string rule_line = "\n|---|";
  for (const FieldFate fate : all_fates()) {
    text += fmt::format(" {} |", to_string(fate));
    rule_line += "---:|";
  }
  text += rule_line + "\n";
  for (const auto& [field, counts] : report.by_field) {
    text += fmt::format("| `{}` |", field);
    for (const FieldFate fate : all_fates()) text += fmt::format(" {} |", count_of(counts, fate));
    text += "\n";
  }
  text += "\n" + forgeries(report) + "\n";
  text += "\n| found by | mutants |\n|---|---:|\n";
  for (const auto& [rule, count] : report.by_rule)
    text += fmt::format("| {} | {} |\n", name_of_rule(rule), count);
  if (report.defects() == 0) return text;
  text += "\n| defect |\n|---|\n";
  for (const auto& [field, defects] : ranked(report))
    for (const FieldVerdict& verdict : report.verdicts)
      if (verdict.mutant.field == field && verdict.is_defect())
        text += fmt::format("| {} |\n", in_cell(line_of_defect(verdict)));
  return text;
}

std::string render_field_mutation_json(const FieldMutationReport& report) {
  using Ordered = nlohmann::ordered_json;
  const auto with_counts = [](Ordered into, const FateCount& counts) {
    for (const FieldFate fate : all_fates())
      into[std::string(to_string(fate))] = count_of(counts, fate);
    return into;
  };
  Ordered json = with_counts({{"plan", report.plan_hash},
                              {"fields", report.fields},
                              {"mutants", report.mutants},
                              {"judged", report.judged()},
                              {"defects", report.defects()}},
                             report.total);
  json["forged"] = Ordered::object();
  for (const Forgery forgery : {Forgery::refused, Forgery::same, Forgery::accepted})
    json["forged"][std::string(to_string(forgery))] = count_of(report.forged, forgery);
  json["by_field"] = Ordered::array();
  for (const auto& [field, counts] : report.by_field)
    json["by_field"].push_back(with_counts({{"field", field}}, counts));
  json["rules"] = Ordered::array();
  for (const auto& [rule, count] : report.by_rule)
    json["rules"].push_back({{"rule", rule}, {"mutants", count}});
  json["verdicts"] = Ordered::array();
  for (const FieldVerdict& verdict : report.verdicts)
    json["verdicts"].push_back({{"number", verdict.mutant.number},
                                {"field", verdict.mutant.field},
                                {"place", verdict.mutant.place},
                                {"edit", to_string(verdict.mutant.edit)},
                                {"before", verdict.mutant.before},
                                {"after", verdict.mutant.after},
                                {"fate", to_string(verdict.fate)},
                                {"forgery", to_string(verdict.forgery)},
                                {"rules", verdict.rules},
                                {"why", verdict.why}});
  return json.dump(2, ' ', false, Ordered::error_handler_t::replace) + "\n";
}

}  // namespace mfsdp
