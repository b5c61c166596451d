#include "core/plan/config_fields.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/plan/describe.hpp"

namespace mfsdp {
namespace {

/// Where each member lies, by its key in a plan's JSON.
using Places = std::map<std::string, const void*, std::less<>>;

struct PlaceCollector {
  Places places;

  template <class Value>
  void operator()(std::string_view key, Value& value) {
    places.emplace(key, &value);
  }
  template <class Value>
  void sparse(std::string_view key, Value& value) {
    places.emplace(key, &value);
  }
};

TEST(ConfigFields, AreThoseOfThePlansJson) {
  PlanConfig config;
  PlaceCollector described;
  describe::fields(described, config);
  Places listed{{"model", &config.model}};  // it has a description of its own
  for_each_field(config, [&](const ConfigField& field, auto& value) {
    EXPECT_TRUE(listed.emplace(field.name, &value).second) << field.name << " stands twice";
  });
  EXPECT_EQ(listed, described.places);
}

TEST(ConfigFields, SayAllThatHelpAndErrorsNeed) {
  std::set<std::string_view> flags;
  for (const ConfigField& field : kConfigFields) {
    EXPECT_TRUE(flags.insert(field.flag).second) << field.flag << " stands twice";
    EXPECT_TRUE(field.flag.starts_with("--")) << field.name;
    EXPECT_FALSE(field.help.empty()) << field.name;
    const bool is_switch = std::holds_alternative<bool PlanConfig::*>(field.member);
    EXPECT_EQ(field.flag_value.empty(), is_switch) << field.name;
    const bool counts = std::holds_alternative<std::int64_t PlanConfig::*>(field.member) ||
                        std::holds_alternative<Mesh PlanConfig::*>(field.member);
    EXPECT_EQ(!field.range.of.empty() && field.range.least < field.range.most, counts)
        << field.name;
  }
}

/// Defaults give a valid configuration.
TEST(ConfigFields, DefaultsAreInTheirRanges) {
  const PlanConfig defaults;
  for (const ConfigField& field : kConfigFields)
    if (const auto* member = std::get_if<std::int64_t PlanConfig::*>(&field.member)) {
      EXPECT_GE(defaults.*(*member), field.range.least) << field.name;
      EXPECT_LE(defaults.*(*member), field.range.most) << field.name;
    }
}

TEST(ConfigFields, TextsAreThoseOfFlags) {
  EXPECT_EQ(flag_text(std::int64_t{8192}), "8192");
  EXPECT_EQ(flag_text(true), "true");
  EXPECT_EQ(flag_text(DType::bf16), "bf16");
  EXPECT_EQ(flag_text(Rational{1, 2}), "0.5");
  EXPECT_EQ(flag_text(Rational{3, 1}), "3");
  EXPECT_EQ(flag_text(Rational{1, 3}), "1/3");
  EXPECT_EQ(flag_text(std::vector<std::string>{"embed", "norm"}), "embed,norm");
  EXPECT_EQ(flag_text(data_parallel_mesh(2, 4)), "2");
  EXPECT_EQ(flag_text(RecomputePolicy{.kind = Recompute::full, .full_blocks = 3}), "full:3");
}

TEST(ConfigFields, RecomputationReadsBack) {
  for (const RecomputePolicy& policy :
       {RecomputePolicy{.kind = Recompute::none}, RecomputePolicy{.kind = Recompute::selective},
        RecomputePolicy{.kind = Recompute::full},
        RecomputePolicy{.kind = Recompute::full, .full_blocks = 3}})
    EXPECT_EQ(parse_recompute(flag_text(policy)), policy) << flag_text(policy);
  for (const char* wrong : {"", "all", "none:1", "full:", "full:0", "full:-1", "full:2x"})
    EXPECT_EQ(parse_recompute(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace mfsdp
