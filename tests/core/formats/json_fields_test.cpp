#include "core/formats/json_fields.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace mfsdp {
namespace {

using Json = nlohmann::json;

const Json kDocument = Json::parse(R"({
  "name": "x", "none": null, "list": [1], "most": 18446744073709551615,
  "time": {"step_ns": 7, "rate": 0.5, "shift": -3}
})");

template <class T>
std::string error_of(const Result<T>& result) {
  return result ? "none" : result.error().message();
}

TEST(JsonFields, AreFoundByTheirKeys) {
  EXPECT_EQ(*find_field(kDocument, "time/step_ns"), 7);
  EXPECT_TRUE(find_field(kDocument, "none")->is_null());
  for (const char* path : {"other", "time/other", "name/x", "list/0", ""})
    EXPECT_EQ(find_field(kDocument, path), nullptr) << path;
  EXPECT_EQ(find_field(Json::array(), "name"), nullptr);
}

TEST(JsonFields, HaveTheirType) {
  EXPECT_EQ(text_field(kDocument, "name", "f").value(), "x");
  EXPECT_EQ(integer_field(kDocument, "time/step_ns", "f").value(), 7);
  EXPECT_EQ(integer_field(kDocument, "time/shift", "f", {.least = -3, .most = -3}).value(), -3);
  EXPECT_EQ(number_field(kDocument, "time/rate", "f").value(), 0.5);
  EXPECT_EQ(unsigned_field(kDocument, "most", "f").value(), 18446744073709551615U);
  EXPECT_EQ(list_field(kDocument, "list", "f").value()->size(), 1U);
  EXPECT_EQ(object_field(kDocument, "time", "f").value()->size(), 3U);
  EXPECT_TRUE(any_field(kDocument, "none", "f").value()->is_null());
}

TEST(JsonFields, ErrorsNameThePlaceAndWhatWasExpected) {
  EXPECT_EQ(error_of(text_field(kDocument, "time/name", "f.json")),
            "f.json.time.name: expected text, got nothing");
  EXPECT_EQ(error_of(text_field(kDocument, "none", "f")), "f.none: expected text, got null");
  EXPECT_EQ(error_of(integer_field(kDocument, "time/rate", "f", {.least = 1, .most = 9})),
            "f.time.rate: expected an integer from 1 to 9, got 0.5");
  EXPECT_EQ(error_of(integer_field(kDocument, "time/step_ns", "f", {.least = 8, .most = 9})),
            "f.time.step_ns: expected an integer from 8 to 9, got 7");
  EXPECT_EQ(error_of(integer_field(kDocument, "time/shift", "f", {.least = 0, .most = 9})),
            "f.time.shift: expected an integer from 0 to 9, got -3");
  EXPECT_EQ(error_of(integer_field(kDocument, "most", "f")),
            "f.most: expected an integer from 0 to 9223372036854775807, got 18446744073709551615");
  EXPECT_EQ(error_of(unsigned_field(kDocument, "time/shift", "f")),
            "f.time.shift: expected an integer from 0 to 2^64 - 1, got -3");
  EXPECT_EQ(error_of(number_field(kDocument, "name", "f")), "f.name: expected a number, got \"x\"");
  EXPECT_EQ(error_of(list_field(kDocument, "time", "f")),
            "f.time: expected a list, got {\"rate\":0.5,\"shift\":-3,\"step_ns\":7}");
  EXPECT_EQ(error_of(object_field(kDocument, "list", "f")), "f.list: expected an object, got [1]");
  EXPECT_EQ(error_of(any_field(kDocument, "other", "f")), "f.other: expected a value, got nothing");
}

}  // namespace
}  // namespace mfsdp
