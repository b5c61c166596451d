#include "verify/findings/finding.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace mfsdp {
namespace {

TEST(Rules, HaveIdsInOrderAndNamesOfTheirOwn) {
  EXPECT_TRUE(std::ranges::is_sorted(rules(), {}, &RuleInfo::id));
  std::set<std::string_view> names;
  for (const RuleInfo& rule : rules()) {
    EXPECT_THAT(std::string(rule.id), testing::MatchesRegex("MF[0-8][0-9][0-9]"));
    EXPECT_TRUE(names.insert(rule.id).second) << rule.id;
    EXPECT_TRUE(names.insert(rule.name).second) << rule.name;
    EXPECT_TRUE(rule.text.ends_with('.')) << rule.id;
    EXPECT_EQ(find_rule(rule.id), &rule);
  }
  EXPECT_EQ(find_rule("MF999"), nullptr);
}

TEST(Rules, NotesAreNoErrors) {
  EXPECT_TRUE(is_error("MF101"));
  EXPECT_FALSE(is_error("MF604"));
  EXPECT_TRUE(is_error("unheard of"));
}

TEST(RuleVerdict, WhatWasNotJudgedDoesNotPass) {
  RuleVerdict verdict;
  EXPECT_TRUE(verdict.good());
  verdict.findings.push_back(finding_without_ops("MF812", "a note"));
  EXPECT_TRUE(verdict.good());
  RuleVerdict undecided;
  undecided.not_judged.push_back({"MF813", "no waits"});
  verdict.add(undecided);
  EXPECT_FALSE(verdict.good());
  EXPECT_EQ(verdict.findings.size(), 1U);
  RuleVerdict wrong;
  wrong.findings.push_back(finding_without_ops("MF811", "an error"));
  EXPECT_FALSE(wrong.good());
}

}  // namespace
}  // namespace mfsdp
