#include "core/base/excerpt.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

TEST(Excerpt, IsNoLongerThanALine) {
  EXPECT_EQ(excerpt("a\n"), "a\\n");
  EXPECT_EQ(excerpt(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(excerpt(std::string(100'000, 'x')), std::string(80, 'x') + "...");
}

TEST(Excerpt, CutsNoCharacter) {
  const std::string head(79, 'x');
  EXPECT_EQ(excerpt(head + "\xc3\xbc!"), head + "...");                              // of two bytes
  EXPECT_EQ(excerpt(head.substr(2) + "\xf0\x9f\x98\x80!"), head.substr(2) + "...");  // of four
  EXPECT_EQ(excerpt(std::string(90, '\xff')), std::string(80, '?') + "...");
  EXPECT_EQ(excerpt(std::string(90, '\x80')), std::string(76, '?') + "...");  // of none
}

}  // namespace
}  // namespace mfsdp
