// Changes of every field that a document has, whatever its fields are.
#include "verify/mutation/field_mutants.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "verify/mutation/inert_fields.hpp"

namespace mfsdp {
namespace {

using testing::UnorderedElementsAre;

nlohmann::json document() {
  return nlohmann::json::parse(R"({"ops": [
    {"body": {"kernel": {"kind": "gemm", "attributes": [{"name": "m", "value": 4}]}}, "id": 1},
    {"body": {"wait": {"event": 3, "bindings": []}}, "id": 2, "lag": 5}],
    "never_seen_before": {"deep": true, "text": "a"}})");
}

std::set<std::string> fields_of(const FieldMutants& mutants) {
  std::set<std::string> fields;
  for (const FieldMutant& mutant : mutants.list) fields.insert(mutant.field);
  return fields;
}

TEST(FieldMutants, NameFieldsByWhatObjectsSayOfThemselves) {
  const FieldMutants mutants = field_mutants(document(), 32, 0);
  EXPECT_THAT(
      fields_of(mutants),
      UnorderedElementsAre(
          "ops", "ops[]{kernel}", "ops[]{wait}", "ops[]{kernel}.body", "ops[]{wait}.body",
          "ops[]{kernel}.id", "ops[]{wait}.id", "ops[]{wait}.lag", "ops[]{kernel}.body.kernel",
          "ops[]{kernel}.body.kernel{gemm}.kind", "ops[]{kernel}.body.kernel{gemm}.attributes",
          "ops[]{kernel}.body.kernel{gemm}.attributes[]{\"m\"}",
          "ops[]{kernel}.body.kernel{gemm}.attributes[]{\"m\"}.name",
          "ops[]{kernel}.body.kernel{gemm}.attributes[]{\"m\"}.value", "ops[]{wait}.body.wait",
          "ops[]{wait}.body.wait.event", "ops[]{wait}.body.wait.bindings", "never_seen_before",
          "never_seen_before.deep", "never_seen_before.text"));
  EXPECT_EQ(mutants.fields, 20);
}

TEST(FieldMutants, AreDifferentChangesWithinTheirBound) {
  const nlohmann::json plan = document();
  for (const std::size_t most : {1U, 3U, 32U}) {
    std::map<std::string, std::size_t> counts;
    std::set<std::string> texts;
    for (const FieldMutant& mutant : field_mutants(plan, most, 7).list) {
      EXPECT_LE(++counts[mutant.field], most) << mutant.field;
      const std::string text = altered_text(plan, mutant);
      EXPECT_NE(nlohmann::json::parse(text), plan) << mutant.place << ' ' << mutant.patch;
      texts.insert(mutant.field + text);
    }
    EXPECT_EQ(texts.size(), field_mutants(plan, most, 7).list.size());
  }
}

TEST(FieldMutants, TakeNumbersToTheirBounds) {
  std::set<std::string> after;
  for (const FieldMutant& mutant : field_mutants(document(), 32, 0).list)
    if (mutant.field == "ops[]{wait}.lag") after.insert(mutant.after);
  EXPECT_THAT(after, UnorderedElementsAre("", "0", "1", "-1", "6", "4", "10", "2", "2147483648",
                                          "9223372036854775807"));
}

TEST(FieldMutants, AreAFunctionOfDocumentBoundAndSeed) {
  EXPECT_EQ(field_mutants(document(), 4, 1).list, field_mutants(document(), 4, 1).list);
  EXPECT_NE(field_mutants(document(), 4, 1).list, field_mutants(document(), 4, 2).list);
}

TEST(InertFields, AreFoundByPattern) {
  EXPECT_NE(find_inert("meta.hash"), nullptr);
  EXPECT_NE(find_inert("plans[].segments[].ops[]{wait}.name"), nullptr);
  EXPECT_EQ(find_inert("plans[].segments[].ops[]{wait}.names"), nullptr);
  EXPECT_EQ(find_inert("groups[].parameters[]{norm}.name"), nullptr);
  // Classes have lists of their own.
  EXPECT_EQ(find_inert("classes[]{stage_0}.buffers[].name"), find_inert("buffers[].name"));
  EXPECT_EQ(find_inert("classes[]{stage_0}.buffers[].names"), nullptr);
  for (const InertField& inert : inert_fields()) EXPECT_FALSE(inert.reason.empty()) << inert.field;
}

}  // namespace
}  // namespace mfsdp
