#include "core/base/json_text.hpp"

#include <gtest/gtest.h>

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
  EXPECT_EQ(json_excerpt(std::string(100, 'x')), "\"" + std::string(39, 'x') + "...");
}

}  // namespace
}  // namespace mfsdp
