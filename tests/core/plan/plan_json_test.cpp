#include "core/plan/plan_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

using test::tiny_program;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

/// The tiny program's JSON with one edit.
std::string edited(const std::function<void(nlohmann::json&)>& edit) {
  nlohmann::json document = nlohmann::json::parse(to_canonical_json(tiny_program()));
  edit(document);
  return document.dump();
}

std::string error_of(const std::string& text) {
  const auto program = program_from_json(text, "plan.json");
  return program ? "no error" : program.error().message();
}

TEST(PlanJson, IsCanonical) {
  const std::string text = to_canonical_json(tiny_program());
  // nlohmann sorts keys and writes no spaces: parsing and dumping must change nothing.
  EXPECT_EQ(nlohmann::json::parse(text).dump(), text);
}

TEST(PlanJson, ReadsBackAsItWasWritten) {
  Program program = tiny_program();
  program.meta.model_name = "a \"quoted\" name, tab\t and umlaut \xC3\xBC";
  const auto back = program_from_json(to_canonical_json(program), "plan.json");
  ASSERT_TRUE(back.has_value()) << back.error().message();
  program.meta.stored_hash = plan_hash(program);
  EXPECT_EQ(*back, program);
  EXPECT_EQ(to_canonical_json(*back), to_canonical_json(program));
}

/// Longer than the writer's pieces, and about as long.
TEST(PlanJson, NamesHaveAnyLength) {
  for (const std::size_t length : {4093, 4094, 4095, 4097, 32760, 100000}) {
    Program program = tiny_program();
    program.buffers[0].name = std::string(length, 'x');
    const std::string text = to_canonical_json(program);
    const auto read = program_from_json(text, "plan");
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(to_canonical_json(*read), text);
    EXPECT_EQ(read->buffers[0].name.size(), length);
  }
}

TEST(PlanJson, ReadsAnyLayout) {
  const std::string text = nlohmann::json::parse(to_canonical_json(tiny_program())).dump(2);
  const auto back = program_from_json(text, "plan.json");
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(plan_hash(*back), plan_hash(tiny_program()));
}

TEST(PlanHash, LeavesOutMetaAndNothingElse) {
  const std::string hash = plan_hash(tiny_program());
  EXPECT_EQ(hash.size(), 32U);
  Program renamed = tiny_program();
  renamed.meta = {.model_name = "other", .tool_version = "9", .stored_hash = "x"};
  EXPECT_EQ(plan_hash(renamed), hash);

  Program deeper = tiny_program();
  deeper.config.prefetch = 2;
  EXPECT_NE(plan_hash(deeper), hash);
  Program moved = tiny_program();
  moved.buffers[0].offset = Bytes(256);
  EXPECT_NE(plan_hash(moved), hash);
  Program reordered = tiny_program();
  std::swap(reordered.plans[0].segments[0].ops[0], reordered.plans[0].segments[0].ops[1]);
  EXPECT_NE(plan_hash(reordered), hash);
}

TEST(PlanJson, KeepsAStaleHashWithoutComplaint) {
  const auto program =
      program_from_json(edited([](auto& d) { d["meta"]["hash"] = "stale"; }), "plan.json");
  ASSERT_TRUE(program.has_value());
  EXPECT_EQ(program->meta.stored_hash, "stale");
}

/// The tiny program with its ops in a pass that its segment calls.
Program tiny_program_in_a_pass() {
  Program program = tiny_program();
  Plan& plan = program.plans[0];
  plan.passes = {{.id = PassId(3), .name = "all", .ops = std::move(plan.segments[0].ops)}};
  plan.segments[0].ops.clear();
  plan.segments[0].calls = {{.pass = PassId(3), .lag = 2, .lag_step = -1}};
  return program;
}

TEST(PlanJson, PassesAndCallsAreReadBack) {
  Program program = tiny_program_in_a_pass();
  const std::string text = to_canonical_json(program);
  EXPECT_THAT(text, HasSubstr(R"("calls":[{"lag":2,"lag_step":-1,"pass":3}])"));
  EXPECT_THAT(text, HasSubstr(R"("passes":[{"id":3,"name":"all","ops":[{)"));
  EXPECT_EQ(nlohmann::json::parse(text).dump(), text);
  const auto back = unchecked_program_from_json(text, "plan.json");
  ASSERT_TRUE(back) << back.error().message();
  program.meta.stored_hash = plan_hash(program);
  EXPECT_EQ(*back, program);
  EXPECT_NE(plan_hash(program), plan_hash(tiny_program()));
}

/// A segment has ops or calls.
TEST(PlanJson, OpsBesideCallsAreRefused) {
  nlohmann::json document = nlohmann::json::parse(to_canonical_json(tiny_program_in_a_pass()));
  document["plans"][0]["segments"][0]["ops"] = nlohmann::json::array();
  EXPECT_THAT(error_of(document.dump()), HasSubstr("plans[0].segments[0].ops: unknown key"));
}

TEST(PlanJson, NamesThePlaceOfEveryError) {
  const auto op = [](nlohmann::json& d) -> nlohmann::json& {
    return d["plans"][0]["segments"][0]["ops"][0];
  };
  EXPECT_EQ(error_of(edited([&](auto& d) { op(d)["stream"] = "x"; })),
            "plan.json: plans[0].segments[0].ops[0].stream: expected an integer from 0 to "
            "4294967295, got \"x\"");
  EXPECT_EQ(error_of(edited([&](auto& d) { op(d)["stream"] = -1; })),
            "plan.json: plans[0].segments[0].ops[0].stream: expected an integer from 0 to "
            "4294967295, got -1");
  EXPECT_EQ(error_of(edited([&](auto& d) { op(d)["stream"] = 77; })),
            "plan.json: plans[0].segments[0].ops[0].stream: there is no stream with id 77");
  EXPECT_EQ(error_of(edited([&](auto& d) { op(d).erase("name"); })),
            "plan.json: plans[0].segments[0].ops[0].name: missing");
  EXPECT_EQ(error_of(edited([&](auto& d) { op(d)["colour"] = 1; })),
            "plan.json: plans[0].segments[0].ops[0].colour: unknown key");
  EXPECT_THAT(error_of(edited([&](auto& d) { op(d)["phase"] = "sideways"; })),
              HasSubstr("ops[0].phase: expected input, forward, recompute"));
  EXPECT_THAT(error_of(edited([&](auto& d) { op(d)["body"] = {{"jump", 1}}; })),
              HasSubstr("ops[0].body: expected one of the kinds acquire, collective"));
  EXPECT_THAT(error_of(edited([](auto& d) { d["buffers"][0]["size"] = 1.5; })),
              HasSubstr("buffers[0].size: expected an integer"));
  EXPECT_THAT(error_of(edited([](auto& d) { d["schema"] = "mfsdp.plan/99"; })),
              HasSubstr("schema: expected \"mfsdp.plan/2\", got \"mfsdp.plan/99\""));
  EXPECT_EQ(error_of(edited([](auto& d) { d["schema"] = "mfsdp.plan/1"; })),
            "plan.json: schema: expected \"mfsdp.plan/2\", got \"mfsdp.plan/1\", which older "
            "versions wrote: build the plan again from its flags");
  EXPECT_THAT(error_of(edited([](auto& d) { d["plans"] = 3; })),
              HasSubstr("plan.json: plans: expected an array, got 3"));
  EXPECT_EQ(error_of("[]"), "plan.json: expected an object, got []");
  EXPECT_THAT(error_of("{\n  \"buffers\": [1,]\n}"), HasSubstr("plan.json:2:"));
}

TEST(PlanJson, IsReadUncheckedWhereThePlanIsToBeWrong) {
  const std::string text = edited([](nlohmann::json& plan) { plan["buffers"][0]["pool"] = 99; });
  EXPECT_FALSE(program_from_json(text, "plan.json"));
  const auto program = unchecked_program_from_json(text, "plan.json");
  ASSERT_TRUE(program) << program.error().message();
  EXPECT_EQ(program->buffers[0].pool, PoolId(99));
  EXPECT_FALSE(unchecked_program_from_json("{}", "plan.json"));
}

TEST(PlanJson, ChecksTheConfiguration) {
  EXPECT_THAT(error_of(edited([](auto& d) { d["config"]["seq_len"] = 0; })),
              HasSubstr("plan.json: config.seq_len: expected tokens from 1"));
  EXPECT_THAT(error_of(edited([](auto& d) { d["config"]["main_dtype"] = "fp16"; })),
              AllOf(HasSubstr("plan.json: config.main_dtype: expected "),
                    HasSubstr("as param_dtype, got fp16")));
  EXPECT_THAT(
      error_of(edited([](auto& d) {
        for (auto& axis : d["config"]["mesh"]["dense"])
          if (axis["axis"] == "dp_shard") axis["size"] = 1 << 21;
      })),
      HasSubstr("plan.json: config.mesh: expected GPUs that share the shards from 1 to 1048576"));
}

TEST(PlanJson, SaysWhereANumberIsTooLarge) {
  EXPECT_EQ(error_of("{\n  \"config\": 1e999}"),
            "plan.json:2:17: expected a number up to 1.8e308, got 1e999");
  EXPECT_THAT(error_of("[" + std::string(400, '9') + "e9]"),
              EndsWith("got " + std::string(40, '9') + "..."));
}

}  // namespace
}  // namespace mfsdp
