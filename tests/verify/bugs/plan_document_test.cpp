#include "verify/bugs/plan_document.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp::bugs {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Program small_program() { return build_program(test::small_config(), {}).value(); }

struct Document {
  Program program = small_program();
  PlanDocument document{program};

  [[nodiscard]] Json ref(const std::string& kind, const std::string& name) const {
    const auto id = document.id_of(kind, name);
    return {{kind, static_cast<std::uint64_t>(id.value())}, {"name", name}};
  }
  [[nodiscard]] Json op(const std::string& name) const { return ref("op", name); }
  Result<void> apply(EditKind kind, Json subject, Json anchor = {}, Json changes = Json::array(),
                     bool after = true) {
    return document.apply({.kind = kind,
                           .where = "row.json: broken.edits[0]",
                           .subject = std::move(subject),
                           .anchor = std::move(anchor),
                           .after = after,
                           .changes = std::move(changes),
                           .id = 7000});
  }
  [[nodiscard]] Program result() const { return document.program("row.json").value(); }
  [[nodiscard]] std::string error_of(EditKind kind, const Json& subject, const Json& anchor = {},
                                     const Json& changes = Json::array()) {
    const auto done = apply(kind, subject, anchor, changes);
    return done ? "no error" : done.error().message();
  }
};

const std::string kWait = "only: wait fresh.layers.0 (all_gather)";
const std::string kAcquire = "only: acquire layers.0.weights.0 (all_gather)";

/// Position of an id in the first segment, or its size.
std::size_t place_of(const Program& program, std::uint64_t id) {
  const auto& ops = program.plans[0].segments[0].ops;
  const auto at = std::ranges::find(ops, OpId(id), &Op::id);
  return static_cast<std::size_t>(at - ops.begin());
}

TEST(PlanDocument, WithoutEditsIsTheProgram) {
  const Document d;
  EXPECT_EQ(plan_hash(d.result()), plan_hash(d.program));
}

TEST(PlanDocument, EveryNameStandsForOneId) {
  const Document d;
  std::set<std::int64_t> ids;
  for (const Op& op : d.program.plans[0].segments[0].ops) {
    const std::string stream{to_string(d.program.streams[op.stream.value].role)};
    const std::string kind{to_string(op.kind())};
    const auto id = d.document.id_of("op", "only: " + kind + " " + op.name + " (" + stream + ")");
    ASSERT_TRUE(id) << op.name;
    ids.insert(*id);
  }
  // Two waits of one name: the second one is told apart.
  EXPECT_TRUE(d.document.id_of("op", "only: collective layers.0.all_gather (all_gather) #2"));
  EXPECT_FALSE(d.document.id_of("op", "only: collective layers.0.all_gather (all_gather) #3"));
  EXPECT_EQ(d.document.id_of("group", "layers.1"), 2);
  EXPECT_EQ(d.document.id_of("stream", "h2d"), 4);
  EXPECT_FALSE(d.document.id_of("kernel", "x"));
}

TEST(PlanDocument, OpsAreDroppedMovedAndCopied) {
  Document d;
  const Json wait = d.op(kWait);
  const Json acquire = d.op(kAcquire);
  const std::size_t ops = d.program.plans[0].segments[0].ops.size();
  ASSERT_TRUE(d.apply(EditKind::move, wait, acquire));
  Program edited = d.result();
  EXPECT_EQ(place_of(edited, wait["op"]), place_of(edited, acquire["op"]) + 1);
  ASSERT_TRUE(d.apply(EditKind::copy, wait, acquire,
                      {{{"op", "replace"}, {"path", "/phase"}, {"value", "backward"}}}, false));
  edited = d.result();
  EXPECT_EQ(place_of(edited, 7000) + 1, place_of(edited, acquire["op"]));
  EXPECT_EQ(edited.plans[0].segments[0].ops[place_of(edited, 7000)].phase, Phase::backward);
  ASSERT_TRUE(d.apply(EditKind::drop, wait));
  edited = d.result();
  EXPECT_EQ(edited.plans[0].segments[0].ops.size(), ops);
  EXPECT_EQ(place_of(edited, wait["op"]), ops);
}

TEST(PlanDocument, WaitsAreBoundAnew) {
  Document d;
  const std::string record = "only: record gathered.layers.0.weights.0 (all_gather)";
  const Json wait = d.op("only: wait gathered.layers.0.weights.0 (compute)");
  ASSERT_TRUE(d.apply(EditKind::move, d.op(record), wait));
  const Program edited = d.result();
  const Op& op = edited.plans[0].segments[0].ops[place_of(edited, wait["op"])];
  EXPECT_EQ(std::get<Wait>(op.body).bindings[0].distance, 1);  // the record of the last step
}

TEST(PlanDocument, ThingsAreAddedInsertedAndPatched) {
  Document d;
  const Json pool = d.ref("pool", "workspace");
  ASSERT_TRUE(d.apply(EditKind::add, {{"event", {{"id", 900U}, {"name", "mine"}}}}));
  ASSERT_TRUE(d.apply(EditKind::insert,
                      {{"id", 901U},
                       {"name", "mine"},
                       {"stream", d.ref("stream", "compute")},
                       {"phase", "forward"},
                       {"body", {{"record", {{"event", {{"event", 900U}, {"name", "mine"}}}}}}}},
                      d.op(kWait)));
  ASSERT_TRUE(d.apply(EditKind::patch, pool, {},
                      {{{"op", "replace"}, {"path", "/height"}, {"value", 1U << 30U}}}));
  const Program edited = d.result();
  EXPECT_EQ(edited.events.back().name, "mine");
  const Op& op = edited.plans[0].segments[0].ops[place_of(edited, 901)];
  EXPECT_EQ(std::get<Record>(op.body).event, EventId(900));
  EXPECT_EQ(op.stream, d.program.streams[0].id);
  EXPECT_EQ(edited.pools[5].height, Bytes(1 << 30));
}

TEST(PlanDocument, ErrorsSayWhatIsThere) {
  Document d;
  const Json wait = d.op(kWait);
  Json wrong = wait;
  wrong["name"] = "only: wait x (compute)";
  EXPECT_EQ(d.error_of(EditKind::drop, wrong),
            "row.json: broken.edits[0]: op " + wait["op"].dump() + " is \"" + kWait +
                "\", expected \"only: wait x (compute)\", which is not in it either");
  EXPECT_THAT(d.error_of(EditKind::drop, {{"op", 99999U}, {"name", kWait}}),
              HasSubstr("op 99999 is not in the plan, expected \"" + kWait + "\", which is " +
                        wait["op"].dump()));
  EXPECT_THAT(d.error_of(EditKind::drop, d.ref("buffer", "tokens")), HasSubstr("expected an op"));
  EXPECT_THAT(d.error_of(EditKind::drop, {{"op", 3U}}), HasSubstr("expected an id and its name"));
  EXPECT_THAT(d.error_of(EditKind::add, {{"buffers", 3U}}), HasSubstr("one thing to add"));
  EXPECT_THAT(d.error_of(EditKind::add, {{"buffer", 3U}}), HasSubstr("expected a new buffer"));
  EXPECT_THAT(d.error_of(EditKind::insert, {{"id", 1U}}, wait), HasSubstr("expected a new op"));
  EXPECT_THAT(
      d.error_of(EditKind::patch, wait, {}, {{{"op", "replace"}, {"path", "/x"}, {"value", 1}}}),
      HasSubstr("broken.edits[0].with: the patch does not fit: "));
  EXPECT_THAT(
      d.error_of(EditKind::patch, wait, {}, {{{"op", "replace"}, {"path", "/id"}, {"value", 1}}}),
      HasSubstr("takes away the id"));
  ASSERT_TRUE(d.apply(EditKind::drop, wait));
  EXPECT_THAT(d.error_of(EditKind::drop, wait), HasSubstr("an edit before has dropped op"));
}

TEST(PlanDocument, ResultsThatAreNoPlanAreErrors) {
  Document d;
  ASSERT_TRUE(d.apply(EditKind::patch, d.op(kWait), {},
                      {{{"op", "replace"}, {"path", "/phase"}, {"value", "never"}}}));
  const auto result = d.document.program("row.json: broken plan");
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message(), HasSubstr("row.json: broken plan: plans[0].segments[0]"));
}

}  // namespace
}  // namespace mfsdp::bugs
