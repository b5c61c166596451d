#include "core/formats/json_values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp {
namespace {

using ::testing::HasSubstr;

TEST(JsonValues, HoldWhatAPickleWould) {
  const auto read = read_json_values(
      R"({"a": [1, -2, 1.5, true, null, "x"], "b": {"c": 18446744073709551615}})", "d.json");
  ASSERT_TRUE(read) << read.error().message();
  const PickleList& list = *read->root->find("a")->list();
  ASSERT_EQ(list.items.size(), 6U);
  EXPECT_EQ(*list.items[0]->integer(), 1);
  EXPECT_EQ(*list.items[1]->integer(), -2);
  EXPECT_EQ(std::get<double>(list.items[2]->value), 1.5);
  EXPECT_TRUE(std::get<bool>(list.items[3]->value));
  EXPECT_TRUE(std::holds_alternative<std::monostate>(list.items[4]->value));
  EXPECT_EQ(*list.items[5]->text(), "x");
  EXPECT_EQ(std::get<double>(read->root->find("b")->find("c")->value), 18446744073709551615.0);
}

TEST(JsonValues, ErrorsNameFileAndPlace) {
  const auto cut = read_json_values(R"({"a": )", "d.json");
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().message(), "d.json: byte 7: expected JSON");
  const auto deep = read_json_values(std::string(66, '[') + std::string(66, ']'), "d.json");
  ASSERT_FALSE(deep);
  EXPECT_THAT(deep.error().message(), HasSubstr("d.json: nested deeper than 64 levels"));
  EXPECT_TRUE(read_json_values(std::string(65, '[') + std::string(65, ']'), "d.json"));
  EXPECT_FALSE(read_json_values("1e999", "d.json"));
}

}  // namespace
}  // namespace mfsdp
