#include "core/base/json_text.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace mfsdp {
namespace {

TEST(JsonText, LiteralsAreAlwaysJson) {
  EXPECT_EQ(json_literal("plain"), "\"plain\"");
  EXPECT_EQ(json_literal("a \"b\"\n\xC3\xBC"), "\"a \\\"b\\\"\\n\xC3\xBC\"");
  EXPECT_EQ(json_literal("\xFF"), "\"\xEF\xBF\xBD\"");  // U+FFFD
}

TEST(JsonText, ExcerptsFitAMessage) {
  EXPECT_EQ(json_excerpt({1, "\n\xC3\xBC"}), "[1,\"\\n\\u00fc\"]");
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json_excerpt(-infinity), "-Infinity");
  EXPECT_EQ(json_excerpt({{"a", {0.5, infinity}}}), R"({"a":[0.5,"Infinity"]})");
  EXPECT_EQ(json_excerpt(std::string(100, 'x')), "\"" + std::string(39, 'x') + "...");
}

}  // namespace
}  // namespace mfsdp
