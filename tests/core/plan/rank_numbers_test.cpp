#include "core/plan/rank_numbers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/plan/plan_json.hpp"
#include "core/plan/structure_faults.hpp"
#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Attribute begin_of(std::int64_t value, std::vector<IndexStep> per) {
  Attribute attribute("vocab_begin", value);
  attribute.per = std::move(per);
  return attribute;
}

TEST(RankNumbers, AddStepsByTheIndexOnEachAxis) {
  const Mesh mesh = data_parallel_mesh(2, 3);
  Kernel kernel;
  kernel.attributes = {
      {"rows", 7},
      begin_of(100, {{.axis = Axis::dp_outer, .step = 50}, {.axis = Axis::dp_shard, .step = -10}})};
  EXPECT_TRUE(differs_by_rank(kernel));
  const Kernel on_rank = kernel_on(kernel, mesh, 5);  // outer 1, shard 2
  EXPECT_EQ(on_rank.attribute("vocab_begin"), 130);   // 100 + 50 - 20
  EXPECT_EQ(on_rank.attribute("rows"), 7);
  EXPECT_FALSE(differs_by_rank(on_rank));
  EXPECT_EQ(kernel.attribute("vocab_begin"), 100);  // of index 0
  EXPECT_EQ(kernel_on(kernel, mesh, 0).attribute("vocab_begin"), 100);
  kernel.attributes[1].per[0].step = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW((void)value_on(kernel.attributes[1], mesh, 3), OverflowError);
}

/// Faults of a plan on two ranks with one kernel.
std::vector<std::string> faults_with(KernelKind kind, Attribute attribute) {
  test::PlanBuilder plan;
  const BufferId state = plan.buffer("state", true);
  plan.kernel(plan.compute, "work", {state}, {});
  Program program = plan.finish();
  auto& kernel = std::get<Kernel>(program.plans[0].segments[0].ops[0].body);
  kernel.kind = kind;
  kernel.attributes = {std::move(attribute)};
  std::vector<std::string> texts;
  for (const StructureFault& fault : structure_faults(program, 10))
    texts.push_back(fault.where.substr(fault.where.find("attributes")) + ": " + fault.what);
  return texts;
}

TEST(RankNumbers, OnlyNumbersThatSayWhereAPartBeginsMayDiffer) {
  constexpr KernelKind kLookup = KernelKind::embedding_forward;
  const auto steps = [](std::int64_t value, std::vector<IndexStep> per) {
    return begin_of(value, std::move(per));
  };
  EXPECT_THAT(faults_with(kLookup, steps(0, {{Axis::dp_shard, 8}})), IsEmpty());
  EXPECT_THAT(faults_with(kLookup, steps(8, {{Axis::dp_shard, -8}})), IsEmpty());
  EXPECT_THAT(faults_with(kLookup, steps(7, {{Axis::dp_shard, -8}})),
              ElementsAre("attributes[0].per: expected an integer of at least 0 on every rank"));
  EXPECT_THAT(faults_with(kLookup, steps(0, {{Axis::dp_outer, 8}})),
              ElementsAre("attributes[0].per: expected a step other than 0 on an axis with several "
                          "ranks, got 8 on dp_outer"));
  EXPECT_THAT(faults_with(kLookup, steps(0, {{Axis::dp_shard, 8}, {Axis::dp_shard, 8}})),
              ElementsAre("attributes[0].per: dp_shard is listed twice"));
  Attribute rows = steps(0, {{Axis::dp_shard, 8}});
  rows.name = "rows";
  EXPECT_THAT(faults_with(kLookup, rows),
              ElementsAre("attributes[0].per: expected 'rows' of a embedding_forward to be one "
                          "number, the same on all ranks"));
}

TEST(RankNumbers, AreWrittenAndReadBack) {
  test::PlanBuilder plan;
  const BufferId state = plan.buffer("state", true);
  plan.kernel(plan.compute, "work", {state}, {});
  Program program = plan.finish();
  const std::string before = to_canonical_json(program);
  auto& kernel = std::get<Kernel>(program.plans[0].segments[0].ops[0].body);
  EXPECT_THAT(before, testing::Not(HasSubstr("\"per\"")));
  kernel.attributes = {begin_of(3, {{Axis::dp_shard, -1}})};
  const std::string text = to_canonical_json(program);
  EXPECT_THAT(text, HasSubstr(R"({"name":"vocab_begin","per":[{"axis":"dp_shard","step":-1}],)"
                              R"("value":3})"));
  EXPECT_NE(nlohmann::json::parse(text).at("meta").at("hash"),
            nlohmann::json::parse(before).at("meta").at("hash"));
  EXPECT_EQ(std::get<Kernel>(
                unchecked_program_from_json(text, "text").value().plans[0].segments[0].ops[0].body),
            kernel);
}

}  // namespace
}  // namespace mfsdp
