#include "verify/bugs/edit_program.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/plan/instances.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/pipeline.hpp"
#include "verify/bugs/plan_names.hpp"

namespace mfsdp::bugs {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Program small_program() { return build_program(test::small_config(), {}).value(); }

struct Edits {
  Program program = small_program();
  PlanNames names{program};
  std::vector<Edit> edits;

  [[nodiscard]] Thing thing(const std::string& kind, const std::string& name) const {
    return {.kind = kind, .id = names.id_of(kind, name).value(), .name = name};
  }
  [[nodiscard]] Thing op(const std::string& name) const { return thing("op", name); }
  /// In the form of a row.
  [[nodiscard]] Json json(const std::string& kind, const std::string& name) const {
    return {{kind, static_cast<std::uint64_t>(names.id_of(kind, name).value())}, {"name", name}};
  }
  void add(EditKind kind, Thing subject, Thing anchor = {}, const Json& value = Json::array(),
           bool after = true) {
    edits.push_back({.kind = kind,
                     .where = "row.json: broken.edits[0]",
                     .subject = std::move(subject),
                     .anchor = std::move(anchor),
                     .after = after,
                     .id = 7000,
                     .value = value.dump()});
  }
  [[nodiscard]] Program result() const { return edit_program(program, edits, "row.json").value(); }
  /// The error of one edit alone.
  [[nodiscard]] std::string error_of(EditKind kind, const Thing& subject, const Thing& anchor = {},
                                     const Json& value = Json::array()) {
    edits.clear();
    add(kind, subject, anchor, value);
    const auto edited = edit_program(program, edits, "row.json");
    return edited ? "no error" : edited.error().message();
  }
};

Json replace(const std::string& path, const Json& value) {
  return {{{"op", "replace"}, {"path", path}, {"value", value}}};
}

const std::string kWait = "only: wait fresh.layers.0 (all_gather)";
const std::string kAcquire = "only: acquire layers.0.weights.0 (all_gather)";

/// Position of an op in the first segment, or its size.
std::size_t place_of(const Program& program, std::int64_t id) {
  const auto& ops = program.plans[0].segments[0].ops;
  const auto at = std::ranges::find(ops, OpId(static_cast<std::size_t>(id)), &Op::id);
  return static_cast<std::size_t>(at - ops.begin());
}

TEST(EditProgram, WithoutEditsIsTheProgram) {
  const Edits e;
  EXPECT_EQ(plan_hash(e.result()), plan_hash(e.program));
}

TEST(EditProgram, OpsAreDroppedMovedAndCopied) {
  Edits e;
  const Thing wait = e.op(kWait);
  const Thing acquire = e.op(kAcquire);
  const std::size_t ops = e.program.plans[0].segments[0].ops.size();
  e.add(EditKind::move, wait, acquire);
  Program edited = e.result();
  EXPECT_EQ(place_of(edited, wait.id), place_of(edited, acquire.id) + 1);
  e.add(EditKind::copy, wait, acquire, replace("/phase", "backward"), false);
  edited = e.result();
  EXPECT_EQ(place_of(edited, 7000) + 1, place_of(edited, acquire.id));
  EXPECT_EQ(edited.plans[0].segments[0].ops[place_of(edited, 7000)].phase, Phase::backward);
  e.add(EditKind::drop, wait);
  edited = e.result();
  EXPECT_EQ(edited.plans[0].segments[0].ops.size(), ops);
  EXPECT_EQ(place_of(edited, wait.id), ops);
}

TEST(EditProgram, WaitsAreBoundAnew) {
  Edits e;
  const Thing wait = e.op("only: wait gathered.layers.0.weights.0 (compute)");
  e.add(EditKind::move, e.op("only: record gathered.layers.0.weights.0 (all_gather)"), wait);
  const Program edited = e.result();
  const Op& op = edited.plans[0].segments[0].ops[place_of(edited, wait.id)];
  EXPECT_EQ(std::get<Wait>(op.body).bindings[0].distance, 1);  // the record of the last step
}

TEST(EditProgram, ThingsAreAddedInsertedAndPatched) {
  Edits e;
  const Json mine{{"event", 900U}, {"name", "mine"}};
  e.add(EditKind::add, {}, {}, {{"event", {{"id", 900U}, {"name", "mine"}}}});
  e.add(EditKind::insert, {}, e.op(kWait),
        {{"id", 901U},
         {"name", "mine"},
         {"stream", e.json("stream", "compute")},
         {"phase", "forward"},
         {"body", {{"record", {{"event", mine}}}}}});
  e.add(EditKind::patch, e.thing("pool", "workspace"), {}, replace("/height", 1U << 30U));
  const Program edited = e.result();
  EXPECT_EQ(edited.events.back().name, "mine");
  const Op& op = edited.plans[0].segments[0].ops[place_of(edited, 901)];
  EXPECT_EQ(std::get<Record>(op.body).event, EventId(900));
  EXPECT_EQ(op.stream, e.program.streams[0].id);
  EXPECT_EQ(edited.pools[5].height, Bytes(1 << 30));
}

TEST(EditProgram, IdAndNameMustAgree) {
  Edits e;
  const Thing wait = e.op(kWait);
  Thing wrong = wait;
  wrong.name = "only: wait x (compute)";
  EXPECT_EQ(e.error_of(EditKind::drop, wrong),
            fmt::format("row.json: broken.edits[0]: op {} is \"{}\", expected \"only: wait x "
                        "(compute)\", which is not in it either",
                        wait.id, kWait));
  wrong = {.kind = "op", .id = 99999, .name = kWait};
  const std::string error =
      fmt::format("op 99999 is not in the plan, expected \"{}\", which is {}", kWait, wait.id);
  EXPECT_THAT(e.error_of(EditKind::drop, wrong), HasSubstr(error));
  EXPECT_THAT(e.error_of(EditKind::move, wait, wrong), HasSubstr(error));
  EXPECT_THAT(
      e.error_of(EditKind::patch, wait, {}, replace("/unit", {{"op", 99999U}, {"name", kWait}})),
      HasSubstr(error));
}

TEST(EditProgram, EditsThatDoNotFitAreErrors) {
  Edits e;
  const Thing wait = e.op(kWait);
  EXPECT_THAT(e.error_of(EditKind::drop, e.thing("buffer", "tokens")),
              HasSubstr("expected an op, got a buffer"));
  EXPECT_THAT(e.error_of(EditKind::add, {}, {}, {{"buffers", 3U}}), HasSubstr("one thing to add"));
  EXPECT_THAT(e.error_of(EditKind::add, {}, {}, {{"buffer", 3U}}),
              HasSubstr("expected a new buffer"));
  EXPECT_THAT(e.error_of(EditKind::insert, {}, wait, {{"id", 1U}}), HasSubstr("expected a new op"));
  EXPECT_THAT(e.error_of(EditKind::patch, wait, {}, replace("/x", 1)),
              HasSubstr("broken.edits[0].with: the patch does not apply: "));
  EXPECT_THAT(e.error_of(EditKind::patch, wait, {}, replace("/id", 1)),
              HasSubstr("removes the id"));
  EXPECT_THAT(e.error_of(EditKind::patch, wait, {}, replace("", 1)), HasSubstr("removes the id"));
  EXPECT_THAT(e.error_of(EditKind::patch, wait, {}, replace("/phase", "never")),
              HasSubstr("row.json: plans[0].segments[0].ops["));
  e.edits.clear();
  e.add(EditKind::drop, wait);
  e.add(EditKind::drop, wait);
  EXPECT_THAT(edit_program(e.program, e.edits, "row.json").error().message(),
              HasSubstr("an earlier edit has dropped op"));
}

// ---- jobs ---------------------------------------------------------------------------------------

/// Waits are bound anew, so that bindings of all shipped pipelines are those that their plans state.
TEST(EditJob, WithoutEditsIsTheJob) {
  for (const char* file :
       {"1f1b_2x4.json", "1f1b_4x8.json", "interleaved_2x2x4.json", "zero_bubble_2x4.json"}) {
    const Job job = test::pipeline(file);
    EXPECT_EQ(plan_hash(edit_job(job, {}, "row.json").value()), plan_hash(job)) << file;
  }
}

TEST(EditJob, EditsAreOfOneClassOrAll) {
  const Job job = test::pipeline();
  const std::string name = "backward: kernel layers.0.down.wgrad (compute)";
  const PlanNames names(job.programs[0]);
  Edit edit;
  edit.where = "row.json: broken.edits[0]";
  edit.subject = {.kind = "op", .id = names.id_of("op", name).value(), .name = name};
  const auto error_of = [&] {
    const auto edited = edit_job(job, {&edit, 1}, "row.json");
    return edited ? "no error" : edited.error().message();
  };
  EXPECT_THAT(error_of(), HasSubstr("row.json: broken.edits[0]: op "));  // the other has none
  edit.role = "stage_2";
  EXPECT_EQ(error_of(), "row.json: broken.edits[0]: there is no class of ranks \"stage_2\"");
  edit.role = "stage_0";
  const Job edited = edit_job(job, {&edit, 1}, "row.json").value();
  EXPECT_EQ(count_ops(edited.programs[0].plans[0]), count_ops(job.programs[0].plans[0]) - 1);
  EXPECT_EQ(plan_hash(edited.programs[1]), plan_hash(job.programs[1]));
}

}  // namespace
}  // namespace mfsdp::bugs
