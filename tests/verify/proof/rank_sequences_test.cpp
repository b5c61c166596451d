#include "verify/proof/ranks/rank_sequences.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "tests/support/plan_builder.hpp"
#include "verify/proof/classes.hpp"

namespace mfsdp {
namespace {

using test::PlanBuilder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A collective of a plan that is nothing else: on which communicator, on which stream, and
/// whether it waits for the one before it.
struct Step {
  std::uint32_t communicator = 0;  ///< 0 gathers over dp_shard, 1 reduces over dp_outer, 2 over all
  std::uint32_t stream = 0;
  bool waits = true;
};

/// A program of such steps on a mesh.
Program program_of(const std::vector<Step>& steps, Mesh mesh) {
  PlanBuilder plan(mesh.size(Axis::dp_shard));
  plan.program.config.mesh = mesh;
  plan.program.communicators[1].axes = {Axis::dp_outer};
  plan.program.communicators[1].size = mesh.size(Axis::dp_outer);
  plan.program.communicators.push_back({.id = CommunicatorId(2),
                                        .axes = {Axis::dp_outer, Axis::dp_shard},
                                        .purpose = "tests",
                                        .size = mesh.world_size()});
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto [communicator, stream, waits] = steps[i];
    const StreamId on(stream);
    if (i > 0 && waits) plan.wait(on, "ended " + std::to_string(i - 1));
    const BufferId buffer = plan.buffer("b" + std::to_string(i), true);
    plan.collective(on, "c" + std::to_string(communicator), CommunicatorId(communicator), buffer);
    plan.record(on, "ended " + std::to_string(i));
  }
  return plan.finish();
}

std::vector<Finding> findings_of(const std::vector<Program>& classes,
                                 const std::vector<std::uint32_t>& class_of) {
  return compare_ranks(classes, class_of).value();
}

std::set<std::string> rules_in(const std::vector<Finding>& findings) {
  std::set<std::string> rules;
  for (const Finding& finding : findings) rules.insert(finding.rule);
  return rules;
}

const std::vector<Step> kGatherThenReduce{{.communicator = 0, .stream = 1},
                                          {.communicator = 1, .stream = 2}};
const std::vector<Step> kReduceThenGather{{.communicator = 1, .stream = 2},
                                          {.communicator = 0, .stream = 1}};
const Mesh kSquare = data_parallel_mesh(2, 2);

/// Ranks 0 and 1 gather together, and 2 and 3; ranks 0 and 2 reduce together, and 1 and 3.
TEST(RankSequences, ADeadlockGoesAroundFourRanks) {
  const std::vector<Program> classes{program_of(kGatherThenReduce, kSquare),
                                     program_of(kReduceThenGather, kSquare)};
  const auto findings = findings_of(classes, {0, 1, 1, 0});
  ASSERT_THAT(rules_in(findings), ElementsAre("MF202"));
  EXPECT_EQ(findings[0].places.size(), 4U);
  for (const char* rank : {"rank 0", "rank 1", "rank 2", "rank 3"})
    EXPECT_THAT(findings[0].message, HasSubstr(rank));
}

/// The same two classes, but those who gather together are of one: reductions find their partners.
TEST(RankSequences, OppositeOrdersNeedNotMeet) {
  const std::vector<Program> classes{program_of(kGatherThenReduce, kSquare),
                                     program_of(kReduceThenGather, kSquare)};
  EXPECT_THAT(findings_of(classes, {0, 0, 1, 1}), IsEmpty());
  EXPECT_THAT(findings_of(classes, {0, 0, 0, 0}), IsEmpty());
  // Classes alone do not determine which ranks share a communicator.
  EXPECT_THAT(rules_in(compare_classes(classes).value()), ElementsAre("MF202"));
}

TEST(RankSequences, OppositeLaunchesNeedRoomForBoth) {
  std::vector<Step> gather = kGatherThenReduce;
  std::vector<Step> reduce = kReduceThenGather;
  gather[1].waits = reduce[1].waits = false;
  const std::vector<Program> classes{program_of(gather, kSquare), program_of(reduce, kSquare)};
  EXPECT_THAT(rules_in(findings_of(classes, {0, 1, 1, 0})), ElementsAre("MF203"));
  EXPECT_THAT(findings_of(classes, {0, 0, 1, 1}), IsEmpty());
}

TEST(RankSequences, OneRankIssuesAnotherCollective) {
  Program other = program_of(kGatherThenReduce, kSquare);
  for (Op& op : other.plans[0].segments[0].ops)
    if (auto* collective = std::get_if<Collective>(&op.body);
        collective != nullptr && collective->communicator == CommunicatorId(1))
      collective->count = 128;
  const auto findings = findings_of({program_of(kGatherThenReduce, kSquare), other}, {0, 0, 0, 1});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].rule, "MF201");
  EXPECT_THAT(findings[0].message,
              HasSubstr("collective 0 of communicator 1 differs: rank 1 issues c1 (rank 1 "
                        "reduce_scatter) (all_reduce of 256 uint8"));
  EXPECT_THAT(findings[0].message, HasSubstr("rank 3 issues c1"));
}

TEST(RankSequences, OneRankHasNoMore) {
  const std::vector<Program> classes{program_of(kGatherThenReduce, kSquare),
                                     program_of({{.communicator = 0, .stream = 1}}, kSquare)};
  const auto findings = findings_of(classes, {0, 0, 0, 1});
  ASSERT_THAT(rules_in(findings), ElementsAre("MF201"));
  EXPECT_THAT(findings[0].message, HasSubstr("rank 3 issues no further one"));
}

TEST(RankSequences, AGroupIsOneLaunch) {
  const auto grouped = [](bool gather_first) {
    PlanBuilder plan;
    const BufferId a = plan.buffer("a", true);
    const BufferId b = plan.buffer("b", true);
    plan.add(plan.gather, "begin", GroupBegin{.communicator = plan.gathers});
    plan.collective(plan.gather, "first", gather_first ? plan.gathers : plan.reductions, a);
    plan.collective(plan.gather, "second", gather_first ? plan.reductions : plan.gathers, b);
    plan.add(plan.gather, "end", GroupEnd{.communicator = plan.gathers});
    return plan.finish();
  };
  EXPECT_THAT(findings_of({grouped(true), grouped(false)}, {0, 1}), IsEmpty());
}

TEST(RankSequences, WhatDoesNotFit) {
  const std::vector<Program> classes{program_of(kGatherThenReduce, kSquare),
                                     program_of(kGatherThenReduce, data_parallel_mesh(4, 1))};
  const auto message = [&](const std::vector<Program>& programs,
                           const std::vector<std::uint32_t>& class_of) {
    return compare_ranks(programs, class_of).error().message();
  };
  EXPECT_EQ(message(classes, {0, 0, 0, 1}),
            "class 1: expected the mesh and communicators of class 0");
  EXPECT_EQ(message({classes[0]}, {0, 0, 0}), "classes: expected 4 ranks as the mesh has, got 3");
  EXPECT_EQ(message({classes[0]}, {0, 0, 0, 1}),
            "classes: expected 1 classes at most, got one of number 1");
  EXPECT_EQ(message({}, {}), "classes: expected at least one program");
}

// ---- rank by rank and by class -----------------------------------------------------------------

rc::Gen<std::vector<Step>> any_steps() {
  return rc::gen::exec([] {
    std::vector<Step> steps(*rc::gen::inRange<std::size_t>(2, 7));
    for (Step& step : steps)
      step = {.communicator = *rc::gen::inRange<std::uint32_t>(0, 3),
              .stream = *rc::gen::inRange<std::uint32_t>(0, 3),
              .waits = *rc::gen::arbitrary<bool>()};
    return steps;
  });
}

/// The same with something moved, left out or no longer waited for.
std::vector<Step> edited(std::vector<Step> steps) {
  const auto at = *rc::gen::inRange<std::size_t>(0, steps.size() - 1);
  switch (*rc::gen::inRange(0, 4)) {
    case 0: std::swap(steps[at], steps[at + 1]); break;
    case 1: steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 2: steps[at].waits = !steps[at].waits; break;
    default: break;
  }
  return steps;
}

/// Where every communicator has ranks of every class, both proofs see the same; elsewhere the
/// proof by class finds all that there is, and may find more.
RC_GTEST_PROP(RankSequences, AgreesWithTheProofByClass, ()) {
  const Mesh mesh = data_parallel_mesh(*rc::gen::inRange<std::int64_t>(2, 5),
                                       *rc::gen::inRange<std::int64_t>(2, 5));
  const std::vector<Step> steps = *any_steps();
  const std::vector<Program> classes{program_of(steps, mesh), program_of(edited(steps), mesh)};
  const auto by_class = rules_in(compare_classes(classes).value());
  std::vector<std::uint32_t> mixed;
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank)
    mixed.push_back(static_cast<std::uint32_t>((rank / mesh.size(Axis::dp_shard) + rank) % 2));
  // With an even dp_shard, rank + outer alternates along both axes; with an odd one, rank does.
  if (mesh.size(Axis::dp_shard) % 2 != 0)
    for (std::size_t rank = 0; rank < mixed.size(); ++rank) mixed[rank] = rank % 2;
  for (const std::string& rule : by_class) RC_TAG(rule);
  RC_ASSERT(rules_in(findings_of(classes, mixed)) == by_class);
  std::vector<std::uint32_t> any;
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank)
    any.push_back(*rc::gen::inRange<std::uint32_t>(0, 2));
  if (by_class.empty()) RC_ASSERT(findings_of(classes, any).empty());
}

}  // namespace
}  // namespace mfsdp
