#include "verify/findings/render_findings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "verify/findings/place_names.hpp"
#include "verify/findings/timeline.hpp"

namespace mfsdp {
namespace {

/// "2 errors, 1 note"
std::string counted(std::span<const Finding> findings) {
  const auto errors =
      std::ranges::count_if(findings, [](const Finding& row) { return is_error(row.rule); });
  const auto notes = std::ssize(findings) - errors;
  const auto plural = [](auto count) { return count == 1 ? "" : "s"; };
  return fmt::format("{} error{}, {} note{}", errors, plural(errors), notes, plural(notes));
}

std::string_view level_of(const Finding& finding) {
  return is_error(finding.rule) ? "error" : "note";
}

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

/// Names come from a plan's file: none may break a line.
Finding printable_finding(Finding finding) {
  for (std::string* field : {&finding.message, &finding.missing}) *field = printable(*field);
  for (std::vector<Place>* places : {&finding.places, &finding.interleaving})
    for (Place& place : *places)
      for (std::string* field : {&place.plan, &place.segment, &place.name, &place.stream})
        *field = printable(*field);
  return finding;
}

/// FNV-1a of 64 bits; a field ends in a byte that no text holds.
void hash_field(std::uint64_t& hash, std::string_view field) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  for (const char c : field) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  hash = (hash ^ 0xFF) * kPrime;
}

}  // namespace

std::string to_string(const Place& place) {
  return fmt::format("{}/{}, {}: {}", place.plan, repetition_name(place.segment, place.repetition),
                     step_name(place.step), to_text(place));
}

std::string fingerprint(const Finding& finding) {
  std::uint64_t hash = 0xcbf29ce484222325;
  hash_field(hash, finding.rule);
  for (const Place& place : finding.places)
    for (const std::string* field : {&place.plan, &place.segment, &place.name, &place.stream})
      hash_field(hash, *field);
  hash_field(hash, finding.buffer ? fmt::format("{}", finding.buffer->value) : "");
  hash_field(hash, finding.missing);
  // Without ops only the message distinguishes two findings of one rule.
  if (finding.places.empty()) hash_field(hash, finding.message);
  return fmt::format("{:016x}", hash);
}

std::string render_findings_text(std::span<const Finding> findings,
                                 std::optional<std::size_t> width) {
  if (findings.empty()) return "No findings.\n";
  std::string text;
  for (const Finding& finding : findings) text += to_text(printable_finding(finding), width) + "\n";
  return text + counted(findings) + "\n";
}

std::string render_not_judged_text(std::span<const NotJudged> rules) {
  std::string text;
  for (const NotJudged& row : rules)
    text += fmt::format("not judged: {}: {}\n", title_of_rule(row.rule), printable(row.reason));
  return text;
}

std::string render_findings_markdown(std::span<const Finding> findings, const FindingsOf& of) {
  std::string text = fmt::format("### {}: {}\n\n", cell(of.subject), counted(findings));
  for (const NotJudged& row : of.not_judged)
    text += fmt::format("- not judged: {}: {}\n", title_of_rule(row.rule), cell(row.reason));
  if (!of.not_judged.empty()) text += "\n";
  if (findings.empty()) return text + "No findings.\n";
  text += "| rule | level | finding | missing |\n|---|---|---|---|\n";
  for (const Finding& finding : findings)
    text += fmt::format("| {} | {} | {} | {} |\n", title_of_rule(finding.rule), level_of(finding),
                        cell(finding.message), cell(finding.missing));
  for (const Finding& finding : findings) {
    if (finding.interleaving.empty()) continue;
    text += fmt::format("\n{}: {}\n\n```\n{}```\n", title_of_rule(finding.rule),
                        cell(finding.message), draw_timeline(printable_finding(finding)));
  }
  return text;
}

}  // namespace mfsdp
