#include "verify/proof/prove.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "core/schedule/build.hpp"
#include "tests/support/plan_builder.hpp"
#include "tests/support/races.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/tiny_program.hpp"
#include "verify/proof/order/unrolled_plan.hpp"
#include "verify/proof/passes.hpp"

namespace mfsdp {
namespace {

using test::rules_of;

TEST(Prove, TinyProgramIsClean) {
  EXPECT_THAT(rules_of(test::tiny_program()), testing::IsEmpty());
  const auto proof = prove(test::tiny_program());
  EXPECT_EQ(proof->ops, 10);
  EXPECT_EQ(proof->waits, 2);
  EXPECT_EQ(proof->instances, 20);
  EXPECT_EQ(proof->bounds.live_full_weights, 1);
  EXPECT_EQ(proof->bounds.peak.value, 128 + 256 + 256);  // shard, weights and activation, bf16
}

/// Every pair of accesses compared one by one agrees, for each wait that is left out.
RC_GTEST_PROP(Prove, WithoutAWaitAgreesWithSlowOracle, ()) {
  PlanConfig config = *test::any_config();
  auto program = build_program(config, {});
  RC_ASSERT(program.has_value());
  Plan& train = program->plans[0];
  std::vector<std::pair<std::size_t, std::size_t>> waits;
  for (std::size_t s = 0; s < train.segments.size(); ++s)
    for (std::size_t i = 0; i < train.segments[s].ops.size(); ++i)
      if (train.segments[s].ops[i].kind() == OpKind::wait) waits.emplace_back(s, i);
  const auto [segment, at] = *rc::gen::elementOf(waits);
  auto& ops = train.segments[segment].ops;
  const auto place = ops.begin() + static_cast<std::ptrdiff_t>(at);
  // Copies whose host work orders what the wait did are the one thing that the oracle lacks.
  RC_PRE(program->streams[place->stream.value].role != StreamRole::h2d);
  const bool redundant = [&] {
    const auto proof = prove(*program);
    return std::ranges::count(proof->bounds.redundant_waits, place->id) > 0;
  }();
  ops.erase(place);
  const auto race = test::find_race(*program, train);
  const auto rules = rules_of(*program);
  RC_CLASSIFY(redundant, "redundant");
  RC_CLASSIFY(race.has_value(), "race");
  RC_ASSERT(rules.contains("MF101") == race.has_value());
  if (redundant) RC_ASSERT(rules.empty());
}

/// The interleaving of a race is one that the plan allows, and has the two ops in the wrong order.
RC_GTEST_PROP(Prove, InterleavingsAreAllowed, ()) {
  auto program = build_program(*test::any_config(), {});
  RC_ASSERT(program.has_value());
  program->plans.resize(1);
  Plan& train = program->plans[0];
  for (Segment& segment : train.segments)
    std::erase_if(segment.ops, [&](const Op& op) {
      return op.kind() == OpKind::wait && *rc::gen::inRange(0, 4) == 0;
    });
  const auto proof = prove(*program);
  const ProgramIndex index(*program);
  FindingList ignored(0);
  const UnrolledPlan u = unroll(*program, index, train, {}, ignored);
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, OpId, std::string>, std::size_t> at;
  const auto key = [](const Place& p) {
    return std::tuple(p.segment, p.step, p.repetition, p.op, p.stream);
  };
  for (std::size_t i = 0; i < u.instances.size(); ++i) at[key(place_of(u, i))] = i;
  for (const Finding& finding : proof->findings) {
    if (finding.rule != "MF101") continue;
    const auto& order = finding.interleaving;
    RC_ASSERT(order.size() >= 2U);
    RC_ASSERT(order.size() <= 6U);
    RC_ASSERT(order.back() == finding.places[0]);
    RC_ASSERT(std::ranges::count(order, finding.places[1]) == 1);
    for (std::size_t a = 0; a < order.size(); ++a)
      for (std::size_t b = a + 1; b < order.size(); ++b)
        RC_ASSERT(!u.before(at.at(key(order[b])), at.at(key(order[a]))));
  }
}

// ---- hostile plans -----------------------------------------------------------------------------

/// A number that a careless or hostile edit leaves behind.
std::int64_t any_number(std::mt19937& random) {
  constexpr std::int64_t kMaximum = std::numeric_limits<std::int64_t>::max();
  const std::array<std::int64_t, 9> numbers{0,         1,        -1,           7, 256, -8,
                                            1LL << 31, kMaximum, -kMaximum - 1};
  return numbers[random() % numbers.size()];
}

template <class Kind>
void spoil(Id<Kind>& id, std::mt19937& random) {
  id.value = random() % 2 == 0 ? static_cast<std::uint32_t>(random()) : random() % 8;
}

void spoil(Operand& operand, std::mt19937& random) {
  switch (random() % 6) {
    case 0: operand.offset = any_number(random); break;
    case 1: operand.shape = {any_number(random), any_number(random)}; break;
    case 2: operand.strides = {any_number(random), any_number(random)}; break;
    case 3:
      operand.rank_strides = {{.axis = Axis::dp_shard, .bytes = any_number(random)},
                              {.axis = Axis::dp_outer, .bytes = any_number(random)}};
      break;
    case 4: operand.access = static_cast<Access>(random() % 4); break;
    default: spoil(operand.buffer, random);
  }
}

template <class AnyWait>
void spoil_wait(AnyWait& wait, std::mt19937& random) {
  spoil(wait.event, random);
  if (!wait.bindings.empty() && random() % 2 == 0) spoil(wait.bindings[0].record, random);
  if (random() % 4 == 0) wait.bindings.clear();
}

void spoil(Op& op, std::mt19937& random) {
  if (random() % 4 == 0) return spoil(op.stream, random);
  if (random() % 8 == 0) return spoil(op.id, random);
  if (auto* kernel = std::get_if<Kernel>(&op.body); kernel && !kernel->operands.empty())
    spoil(kernel->operands[random() % kernel->operands.size()], random);
  if (auto* collective = std::get_if<Collective>(&op.body)) {
    if (random() % 2 == 0) collective->count = any_number(random);
    spoil(random() % 2 == 0 ? collective->input : collective->output, random);
    if (random() % 2 == 0) spoil(collective->communicator, random);
  }
  if (auto* copy = std::get_if<Copy>(&op.body)) {
    copy->kind = static_cast<CopyKind>(random() % 3);
    if (random() % 2 == 0) spoil(copy->input, random);
  }
  if (auto* record = std::get_if<Record>(&op.body)) spoil(record->event, random);
  if (auto* wait = std::get_if<Wait>(&op.body)) spoil_wait(*wait, random);
  if (auto* wait = std::get_if<HostWait>(&op.body)) spoil_wait(*wait, random);
  if (auto* acquire = std::get_if<Acquire>(&op.body)) spoil(acquire->buffer, random);
  if (auto* release = std::get_if<Release>(&op.body)) spoil(release->buffer, random);
}

void spoil(Group& group, std::mt19937& random) {
  PlacedParameter& parameter = group.parameters[random() % group.parameters.size()];
  switch (random() % 6) {
    case 0: group.elements = any_number(random); break;
    case 1: group.cut.push_back(static_cast<Axis>(random() % 9)); break;
    case 2: group.requires_grad = !group.requires_grad; break;
    case 3: parameter.offset = any_number(random); break;
    case 4: parameter.shape = {any_number(random), any_number(random)}; break;
    default: spoil(group.unit, random);
  }
}

void spoil(std::optional<Contents>& holds, std::mt19937& random) {
  if (!holds) return;
  switch (random() % 5) {
    case 0: holds->kind = static_cast<ContentKind>(random() % 5); break;
    case 1:
      holds->groups.push_back({.group = GroupId(random() % 8), .offset = any_number(random)});
      break;
    case 2:
      holds->placement.push_back({.axis = static_cast<Axis>(random() % 9),
                                  .kind = static_cast<PlacementKind>(random() % 4),
                                  .dim = {}});
      break;
    case 3:
      if (!holds->groups.empty()) holds->groups[0].offset = any_number(random);
      break;
    default: holds->groups.clear();
  }
}

void spoil(Program& program, std::mt19937& random) {
  auto& segments = program.plans[random() % program.plans.size()].segments;
  Segment& segment = segments[random() % segments.size()];
  Buffer& buffer = program.buffers[random() % program.buffers.size()];
  Pool& pool = program.pools[random() % program.pools.size()];
  switch (random() % 15) {
    case 0: buffer.offset = Bytes(any_number(random)); break;
    case 1: buffer.size = Bytes(any_number(random)); break;
    case 2: buffer.persistent = !buffer.persistent; break;
    case 3: pool.height = Bytes(any_number(random)); break;
    case 4: pool.alignment = any_number(random); break;
    case 5: pool.registered = CommunicatorId(random() % 3); break;
    case 6: segment.repeat = any_number(random); break;
    case 7: std::shuffle(segment.ops.begin(), segment.ops.end(), random); break;
    case 8: segment.live_in.push_back(BufferId(random() % 40)); break;
    case 9: program.config.mesh.resize(Axis::dp_shard, any_number(random)); break;
    case 10: spoil(program.groups[random() % program.groups.size()], random); break;
    case 11: buffer.category = static_cast<Category>(random() % 9); break;
    case 12: spoil(buffer.holds, random); break;
    default: spoil(segment.ops[random() % segment.ops.size()], random);
  }
}

TEST(Prove, HostilePlansAreFindingsOrErrors) {
  PlanConfig config = test::small_config(4);
  config.microbatches = 3;
  const auto built = build_program(config, {});
  int judged = 0;
  for (int seed = 0; seed < (test::kOneCase ? 100 : 3000); ++seed) {
    std::mt19937 random(static_cast<std::uint32_t>(seed));
    Program program = *built;
    for (auto edits = 1 + random() % 3; edits > 0; --edits) spoil(program, random);
    const auto proof = prove(program);
    if (proof && !proof->findings.empty() && proof->findings.front().rule > "MF006") ++judged;
  }
  EXPECT_GT(judged, test::kOneCase ? 5 : 200);  // not all of them end at the first gate
}

/// Each rule of the proofs is found by some pass, and passes find no other rules.
TEST(Prove, PassesFindAllRules) {
  std::set<std::string> found;
  for (const PassInfo& pass : passes()) {
    std::istringstream rules{std::string(pass.finds)};
    for (std::string rule; rules >> rule;) found.insert(rule);
  }
  std::set<std::string> expected;
  for (const RuleInfo& rule : rules())
    if (rule.id < "MF700") expected.emplace(rule.id);
  EXPECT_EQ(found, expected);
}

TEST(Prove, TooLargeToUnroll) {
  test::PlanBuilder plan;
  plan.record(plan.compute, "e");
  Program program = plan.finish();
  const auto proof = prove(program, {.steps = 1LL << 40});
  ASSERT_FALSE(proof.has_value());
  EXPECT_EQ(proof.error().message(),
            "plan 'train': expected at most 20000000 ops when it is unrolled over 1099511627776 "
            "steps");
  EXPECT_FALSE(prove(program, {.steps = 0}).has_value());
}

TEST(Prove, FindingsOfARuleAreLimited) {
  test::PlanBuilder plan;
  for (int i = 0; i < 9; ++i) plan.buffer("b" + std::to_string(i), true, 0);
  EXPECT_EQ(prove(plan.finish())->findings.size(), 8U + 1U);  // and a note of the pool's bound
  EXPECT_EQ(prove(plan.finish(), {.most_findings = 3})->findings.size(), 3U + 1U);
}

}  // namespace
}  // namespace mfsdp
