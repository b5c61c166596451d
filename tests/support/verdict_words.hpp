// A verdict as a short text.
#pragma once

#include <string>
#include <vector>

#include "verify/findings/finding.hpp"

namespace mfsdp::test {

/// "MF815 message", in the order of the findings.
inline std::vector<std::string> messages(const RuleVerdict& verdict) {
  std::vector<std::string> list;
  for (const Finding& row : verdict.findings) list.push_back(row.rule + " " + row.message);
  return list;
}

inline std::vector<std::string> rules_of(const RuleVerdict& verdict) {
  std::vector<std::string> rules;
  for (const Finding& row : verdict.findings) rules.push_back(row.rule);
  return rules;
}

/// Rules that were not judged.
inline std::vector<std::string> undecided(const RuleVerdict& verdict) {
  std::vector<std::string> rules;
  for (const NotJudged& row : verdict.not_judged) rules.push_back(row.rule);
  return rules;
}

}  // namespace mfsdp::test
