// The checker's list of the rules it covers. Tests of edited plans show that it refuses these.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "verify/checker/check_certificate.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp {
namespace {

/// "MF101 MF108" is two.
std::map<std::string, int, std::less<>> times_named() {
  std::map<std::string, int, std::less<>> times;
  for (const Coverage& row : coverage())
    for (std::size_t at = 0; at < row.rules.size(); at += 6)
      ++times[std::string(row.rules.substr(at, 5))];
  return times;
}

TEST(Coverage, EveryErrorOfAPlanIsInOneRow) {
  auto times = times_named();
  for (const RuleInfo& rule : rules()) {
    const bool of_a_plan = rule.id < "MF7" && rule.severity == Severity::error;
    EXPECT_EQ(times[std::string(rule.id)], of_a_plan ? 1 : 0) << rule.id;
    times.erase(std::string(rule.id));
  }
  EXPECT_TRUE(times.empty()) << times.begin()->first << " is no rule";
}

TEST(Coverage, NamesItsChecksAndListsWhatIsCoveredFirst) {
  std::set<std::string_view> names;
  bool covered = true;
  for (const Coverage& row : coverage()) {
    EXPECT_TRUE(names.insert(row.check).second) << row.check;
    EXPECT_FALSE(row.words.empty()) << row.check;
    EXPECT_TRUE(covered || !row.covered) << row.check;
    covered = row.covered;
  }
  EXPECT_FALSE(covered);
}

}  // namespace
}  // namespace mfsdp
