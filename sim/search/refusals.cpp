#include "sim/search/refusals.hpp"

#include <algorithm>
#include <functional>

namespace mfsdp {
namespace {

/// The text without its numbers, and without what is in quotes.
std::string rule_of(const Error& error) {
  std::string rule = error.where + ": ";
  bool in_quotes = false;
  for (const char c : error.what) {
    if (c == '\'') in_quotes = !in_quotes;
    const bool is_number = (c >= '0' && c <= '9') || (c == ',' && rule.ends_with('#'));
    if (in_quotes) continue;
    if (!is_number)
      rule += c;
    else if (!rule.ends_with('#'))
      rule += '#';
  }
  return rule;
}

}  // namespace

void Refusals::add(const Error& error) {
  ++count_;
  const auto [place, fresh] = known_.try_emplace(rule_of(error), rules_.size());
  if (fresh) rules_.push_back({.first = error});
  ++rules_[place->second].count;
}

std::vector<Refusal> Refusals::by_rule() const {
  std::vector<Refusal> sorted = rules_;
  std::ranges::stable_sort(sorted, std::greater{}, &Refusal::count);
  return sorted;
}

}  // namespace mfsdp
