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

}  // namespace
}  // namespace mfsdp
