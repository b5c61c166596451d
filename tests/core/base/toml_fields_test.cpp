#include "core/base/toml_fields.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <string>

namespace mfsdp {
namespace {

constexpr FieldRange kAny{0, 1e6};

TomlFields fields_of(std::string_view text) {
  auto fields = TomlFields::parse(text, "x.toml");
  EXPECT_TRUE(fields.has_value());
  return *fields;
}

std::string outcome_of(TomlFields& fields) {
  const auto outcome = fields.finish();
  return outcome ? "good" : outcome.error().message();
}

TEST(TomlFields, ReadsEachTypeByItsDottedKey) {
  TomlFields fields = fields_of("title = 'a'\n[memory]\nrate = 1.5\nbytes = 7\n[names]\nb = 'c'\n");
  EXPECT_EQ(fields.text("title"), "a");
  EXPECT_EQ(fields.number("memory.rate", kAny), 1.5);
  EXPECT_EQ(fields.integer("memory.bytes", kAny), 7);
  EXPECT_EQ(fields.text_or("other", "none"), "none");
  EXPECT_EQ(fields.optional_number("memory.other", kAny), std::nullopt);
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(fields.texts_below("names"), (Pairs{{"b", "c"}}));
  EXPECT_EQ(outcome_of(fields), "good");
}

TEST(TomlFields, KeepIntegersExact) {
  TomlFields fields = fields_of("most = 9223372036854775807\n");
  EXPECT_EQ(fields.integer("most", {0, 1e19}), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(outcome_of(fields), "good");
}

TEST(TomlFields, FindAValueOfAnyTypeWithItsLine) {
  TomlFields fields = fields_of("a = 'text'\n[b]\nc = 2\nd = true\ne = [1]\n");
  ASSERT_NE(fields.find("b.c"), nullptr);
  EXPECT_EQ(fields.find("b.c")->line, 3u);
  EXPECT_EQ(std::get<std::int64_t>(fields.find("b.c")->value), 2);
  EXPECT_EQ(std::get<std::string>(fields.find("a")->value), "text");
  EXPECT_TRUE(std::get<bool>(fields.find("b.d")->value));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(fields.find("b.e")->value));
  EXPECT_EQ(fields.find("c"), nullptr);
  EXPECT_EQ(outcome_of(fields), "good");
}

TEST(TomlFields, NameAllMistakesByLineThenWhatIsMissing) {
  TomlFields fields = fields_of("a = 1\nb = 'two'\nc = -1\nsise = 'x'\n");
  fields.example("d", "7");
  EXPECT_EQ(fields.integer("a", kAny), 1);
  EXPECT_TRUE(fields.sound());
  EXPECT_EQ(fields.integer("d", kAny), 0);
  EXPECT_FALSE(fields.sound());
  EXPECT_EQ(fields.text("size"), "");
  EXPECT_EQ(fields.integer("c", kAny), 0);
  EXPECT_EQ(fields.integer("b", kAny), 0);
  const auto outcome = fields.finish();
  ASSERT_FALSE(outcome);
  std::string all = outcome.error().message();
  for (const Error& other : outcome.error().also) all += "\n" + other.message();
  EXPECT_EQ(all,
            "x.toml:2: b must be an integer from 0 to 1000000\n"
            "x.toml:3: c is -1; expected a number from 0 to 1000000\n"
            "x.toml:4: unknown key \"sise\"; the closest is \"size\"\n"
            "x.toml: d is missing; expected an integer from 0 to 1000000, such as 7");
}

TEST(TomlFields, NameAllMissingFieldsInOneLine) {
  TomlFields fields = fields_of("");
  fields.example("a", "7");
  EXPECT_EQ(fields.integer("a", kAny), 0);
  EXPECT_EQ(fields.text("b"), "");
  const auto outcome = fields.finish();
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(outcome.error().also.empty());
  EXPECT_EQ(outcome.error().message(),
            "x.toml: 2 keys are missing: a (an integer from 0 to 1000000, such as 7), b (text in "
            "quotes)");
}

TEST(TomlFields, InheritWhatAFileDoesNotHave) {
  TomlFields fields = fields_of("a.x = 1\n");
  fields.inherit(fields_of("a = {x = 2, y = 3}\nb = 4\n[c]\nz = 5\n[source]\n'a.x' = 'old'\n"
                           "'a.y' = 'of y'\n'c.z' = 'no'\n"),
                 std::array<std::string_view, 2>{"b", "c"});
  EXPECT_EQ(fields.integer("a.x", kAny), 1);
  EXPECT_EQ(fields.integer("a.y", kAny), 3);
  EXPECT_FALSE(fields.has("b"));
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(fields.texts_below("source"), (Pairs{{"a.y", "of y"}}));
  EXPECT_EQ(outcome_of(fields), "good");
}

TEST(TomlFields, NameAnUnknownKeyBeforeTheMissingOne) {
  TomlFields fields = fields_of("memory.bites = 1\n");
  EXPECT_EQ(fields.integer("memory.bytes", kAny), 0);
  EXPECT_EQ(outcome_of(fields),
            "x.toml:1: unknown key \"memory.bites\"; the closest is \"memory.bytes\"");
}

TEST(TomlFields, RefuseWhatIsNoToml) {
  const auto error = TomlFields::parse("a = 1\na = 2\n", "x.toml").error().message();
  EXPECT_TRUE(error.starts_with("x.toml:2: not TOML: ")) << error;
  EXPECT_EQ(TomlFields::parse("a = '\xC2\xA1'\n", "x.toml").error().message(),
            "x.toml:1: holds a character beyond ASCII outside a comment");
}

TEST(TomlFields, RefuseKeysOfManyParts) {
  std::string key = "a";
  for (int i = 0; i < 30'000; ++i) key += ".a";
  for (const std::string& text :
       {"b = 1\n" + key + " = 1\n", "\n[" + key + "]\n", "\nb = { " + key + " = 1 }\n"})
    EXPECT_EQ(TomlFields::parse(text, "x.toml").error().message(),
              "x.toml:2: holds a key of more than 100 parts");
  const auto dots = TomlFields::parse("a = '" + std::string(200, '.') + "'\n", "x.toml");
  EXPECT_TRUE(dots) << dots.error().message();
}

TEST(TomlFields, AnEmptyTableIsNoValue) {
  auto fields = TomlFields::parse("a = {}\n[b]\n", "x.toml");
  ASSERT_TRUE(fields) << fields.error().message();
  EXPECT_TRUE(fields->has("a"));
  EXPECT_EQ(fields->text("a"), "");
  EXPECT_EQ(fields->finish().error().message(), "x.toml:1: a must be text in quotes, not empty");
}

}  // namespace
}  // namespace mfsdp
