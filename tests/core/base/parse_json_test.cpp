#include "core/base/parse_json.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

namespace mfsdp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string python_error(const std::string& text) {
  const auto json = parse_python_json(text, "f");
  return json ? "none" : json.error().message();
}

TEST(ParsePythonJson, ReadsNumbersThatJsonDoesNotHave) {
  const auto json = parse_python_json(
      R"({"limit": [0.0, Infinity], "low": -Infinity, "none": NaN, "n": [NaN,-Infinity,1]})", "f");
  ASSERT_TRUE(json) << json.error().message();
  EXPECT_EQ((*json)["limit"], nlohmann::json({0.0, kInfinity}));
  EXPECT_EQ((*json)["low"], -kInfinity);
  EXPECT_TRUE(std::isnan((*json)["none"].get<double>()));
  EXPECT_EQ((*json)["n"][2], 1);
  EXPECT_EQ(parse_python_json("Infinity", "f").value(), kInfinity);
  EXPECT_EQ(parse_python_json("\xEF\xBB\xBF[ -Infinity ]", "f").value()[0], -kInfinity);
}

TEST(ParsePythonJson, LeavesTextsAlone) {
  const auto json = parse_python_json(
      R"({"NaN": "Infinity", "a \" NaN": "\\", "b": ["-Infinity", "nfinit", NaN]})", "f");
  ASSERT_TRUE(json) << json.error().message();
  EXPECT_EQ((*json)["NaN"], "Infinity");
  EXPECT_EQ((*json)["a \" NaN"], "\\");
  EXPECT_EQ((*json)["b"][0], "-Infinity");
  EXPECT_EQ((*json)["b"][1], "nfinit");
  EXPECT_TRUE(std::isnan((*json)["b"][2].get<double>()));
}

TEST(ParsePythonJson, OtherWordsAndPlacesAreErrors) {
  for (const std::string text : {"[Infinit]", "[NaNs]", "[xNaN]", "[--Infinity]", "[nan]",
                                 "[1 NaN]", "{\"a\": NaN NaN}", "[\"NaN", "[\"\\"})
    EXPECT_TRUE(python_error(text).starts_with("f:1:")) << text << ": " << python_error(text);
  EXPECT_EQ(python_error("{NaN: 1}"), "f:1:4: expected a key in quotes, got a number");
  EXPECT_EQ(python_error("{\n \"a\": Infinity, \"b\": 1, \"b\": 2}"),
            "f:2:27: key \"b\" appears twice in one object");
}

TEST(ParseJson, TakesNoNumbersThatJsonDoesNotHave) {
  for (const std::string text : {"[NaN]", "Infinity", "{\"a\": -Infinity}"})
    EXPECT_FALSE(parse_json(text, "f")) << text;
  EXPECT_TRUE(parse_json("[\"NaN\"]", "f"));
}

}  // namespace
}  // namespace mfsdp
