// docs/reference/budgets.md names every limit that a budget may hold.
#include "tests/support/documented.hpp"

#include <gtest/gtest.h>

#include "reports/measures/measure.hpp"

namespace mfsdp {
namespace {

TEST(Documented, KeysOfBudgets) {
  const std::set<std::string> named = test::documented("reference/budgets.md", "The file");
  EXPECT_GT(measures().size(), 30U);
  for (const Measure& measure : measures()) {
    EXPECT_TRUE(named.contains(measure.table())) << measure.key;
    EXPECT_TRUE(named.contains(measure.name())) << measure.key;
  }
  EXPECT_TRUE(named.contains("classes.ROLE"));
  for (const std::string_view name : Names<ClassMeasure>::values)
    EXPECT_TRUE(named.contains(std::string(name))) << name;
}

}  // namespace
}  // namespace mfsdp
