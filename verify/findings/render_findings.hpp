// Findings as text, Markdown, JSON and SARIF. Every text ends in a newline.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "verify/findings/finding.hpp"

namespace mfsdp {

/// A number beside the findings.
struct Figure {
  std::string name;  ///< "live_full_weights"
  std::int64_t value = 0;
};

/// The subject that was judged, and the tool that judged it.
struct FindingsOf {
  std::string subject;  ///< file, or what stands for it
  std::string tool = "mfsdp-verify";
  std::string version;
  std::vector<Figure> figures = {};
  std::vector<NotJudged> not_judged = {};
};

/// Findings under each other, each with its timeline, and their number; "No findings." without any.
[[nodiscard]] std::string render_findings_text(std::span<const Finding> findings,
                                               std::optional<std::size_t> width = std::nullopt);
/// A line for each rule; nothing without any.
[[nodiscard]] std::string render_not_judged_text(std::span<const NotJudged> rules);
/// A table of the findings, then their timelines.
[[nodiscard]] std::string render_findings_markdown(std::span<const Finding> findings,
                                                   const FindingsOf& of);
/// An object with subject, tool, version, figures, counts, the findings with all their fields, and
/// what was not judged.
/// Step and repetition of a place are indices from 0 there; all other texts count them from 1.
[[nodiscard]] std::string render_findings_json(std::span<const Finding> findings,
                                               const FindingsOf& of);
/// SARIF 2.1.0 (OASIS): one run, all rules of the table, a result for each finding, one of kind
/// "open" for each rule that was not judged. Ops are logical locations of the subject, an
/// interleaving is a code flow.
[[nodiscard]] std::string render_findings_sarif(std::span<const Finding> findings,
                                                const FindingsOf& of);

/// 16 hexadecimal digits that stay the same while rule, ops, buffer and missing edge do: by these a
/// reader of SARIF knows a finding again. Step, repetition and bytes do not count.
[[nodiscard]] std::string fingerprint(const Finding& finding);

/// "train/forward repetition 2, step 1: attention.fwd (compute)"
[[nodiscard]] std::string to_string(const Place& place);

}  // namespace mfsdp
