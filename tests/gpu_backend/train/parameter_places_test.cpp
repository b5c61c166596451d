#include "gpu_backend/train/parameter_places.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <span>

#include "core/runtime/bound_plan.hpp"
#include "core/schedule/build.hpp"
#include "core/shard/groups.hpp"
#include "tests/gpu_backend/train/rank_memory.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/shipped_plan.hpp"

namespace mfsdp {
namespace {

/// Each element of each parameter belongs to exactly one of the ranks that are first replicas; each
/// rank computes with what it owns at least, and has moments and gradients of just that.
RC_GTEST_PROP(ParameterPlacesProperty, RanksOwnEachElementOnce, ()) {
  const PlanConfig config = *test::any_config();
  const Program program = build_program(config, {}).value();
  std::map<std::string, std::vector<Interval>> owned;
  for (std::int64_t rank = 0; rank < config.mesh.world_size(); ++rank) {
    test::RankMemory memory(program);
    const auto parameters = find_parameters(program, memory.bytes(), rank);
    for (const ParameterPlaces& p : *parameters) {
      const Interval& own = p.own.elements;
      if (p.first_replica && !own.empty()) owned[p.parameter->name].push_back(own);
      RC_ASSERT(own.empty() ||
                (p.weight.elements.begin <= own.begin && own.end <= p.weight.elements.end));
      const bool trains = p.group->requires_grad;
      RC_ASSERT(p.gradient.elements == (trains ? own : Interval{}));
      std::vector<KeptState> kept;
      if (trains) kept = config.kept_states(*p.group->optimizer);
      RC_ASSERT(p.states.size() == kept.size());
      for (std::size_t s = 0; s < p.states.size(); ++s) {
        const Interval& values = p.states[s].elements;
        RC_ASSERT(values.begin * kept[s].block == own.begin || own.empty());
        RC_ASSERT(values.size() == kept[s].values(own.size()));
      }
    }
  }
  for (const Group& group : program.groups)
    for (const PlacedParameter& parameter : group.parameters) {
      std::vector<Interval>& parts = owned[parameter.name];
      std::ranges::sort(parts, {}, &Interval::begin);
      std::int64_t covered = 0;
      for (const Interval& part : parts) {
        RC_ASSERT(part.begin == covered);
        covered = part.end;
      }
      RC_ASSERT(covered == whole_parameter(parameter, group, program.config.mesh).elements());
    }
}

/// The update of a group as a rank runs it, with Muon's momentum: operands by role.
std::map<std::string_view, const OperandView*> update_of(const BoundPlan& plan, GroupId group) {
  std::map<std::string_view, const OperandView*> operands;
  for (const BoundList& list : plan.lists)
    for (const BoundOp& op : list.ops) {
      const auto* kernel = std::get_if<Kernel>(&op.op->body);
      if (kernel == nullptr || op.op->group != group) continue;
      if (kernel->kind != KernelKind::update && kernel->kind != KernelKind::momentum) continue;
      for (const OperandView& operand : op.operands) operands[operand.role] = &operand;
    }
  return operands;
}

/// An own element lies at the same place of all operands of its group's update, which is the
/// schedule's word for where they are.
RC_GTEST_PROP(ParameterPlacesProperty, OwnElementsAreThoseOfTheUpdate, ()) {
  const PlanConfig config = *test::any_config();
  const Program program = build_program(config, {}).value();
  std::vector<std::unique_ptr<std::byte[]>> pools;  // never touched
  PoolBases bases;
  for (const Pool& pool : program.pools) {
    pools.emplace_back(new std::byte[static_cast<std::size_t>(pool.height.value) + 1]);
    bases.push_back(pools.back().get());
  }
  const std::int64_t rank = *rc::gen::inRange<std::int64_t>(0, config.mesh.world_size());
  PlanBinder binder(program, bases, rank);
  const BoundPlan train = binder.bind(*program.find_plan(PlanRole::train)).value();
  const auto bytes = [&](BufferId id) { return binder.buffer_bytes(id); };
  std::map<GroupId, std::int64_t> held;
  const auto parameters = find_parameters(program, bytes, rank);
  for (const ParameterPlaces& p : *parameters) {
    if (p.own.elements.empty() || !p.group->requires_grad) continue;
    const auto operands = update_of(train, p.group->id);
    const auto place = [&](std::string_view role, const HeldElements& elements,
                           std::int64_t block = 1) {
      const std::byte* first = operands.at(role)->data;
      const std::int64_t at = (elements.data - first) / size_of(elements.dtype) * block;
      RC_ASSERT(at >= 0 && at + p.own.elements.size() <= operands.at(role)->shape[0] * block);
      RC_ASSERT(elements.dtype == operands.at(role)->dtype);
      return at;
    };
    const std::int64_t at = place("grad", p.gradient);
    RC_ASSERT(place(operands.contains("main_weight") ? "main_weight" : "weight", p.own) == at);
    HeldElements weight = p.weight;  // from its first own element on
    weight.data += (p.own.elements.begin - weight.elements.begin) * size_of(weight.dtype);
    RC_ASSERT(place("weight", weight) == at);
    const std::vector<KeptState> kept = config.kept_states(*p.group->optimizer);
    for (std::size_t s = 0; s < p.states.size(); ++s)
      RC_ASSERT(place(kept[s].name, p.states[s], kept[s].block) == at);
    // All parameters of a group agree on where in the group the update's slice begins.
    // With expert parallelism, a rank's elements begin at a multiple of its group's size of them.
    const std::int64_t ranks = p.group->shard.empty() ? 1 : config.expert_parallel;
    const std::int64_t begin = p.own.elements.begin % (p.parameter->elements() / ranks);
    const std::int64_t slice = p.parameter->offset + begin - at;
    RC_ASSERT(held.emplace(p.group->id, slice).first->second == slice);
  }
}

TEST(ParameterPlaces, AStateBufferOfAnotherSizeIsAnError) {
  Program program = build_program(test::small_config(2), {}).value();
  test::RankMemory memory(program);
  for (Buffer& buffer : program.buffers)
    if (buffer.name == "layers.1.exp_avg_sq") buffer.size += Bytes(8);
  const auto places = find_parameters(program, memory.bytes(), 0);
  ASSERT_FALSE(places);
  EXPECT_THAT(places.error().message(),
              testing::MatchesRegex("plan, group 2, exp_avg_sq: expected a "
                                    "buffer of [0-9]+ bytes, got [0-9]+"));
}

/// A rank's part of a fused matrix is no interval of the whole one, but of the order of ranks.
TEST(ParameterPlaces, OfRanksOnTpFollowEachOther) {
  const Program program = test::shipped_plan("tensor_parallel/llama_tp2.json");
  const ModelShape& model = program.config.model;
  const std::int64_t queries = model.heads * model.head_dim;
  for (const std::int64_t rank : {0, 1}) {
    test::RankMemory memory(program);
    const auto all = find_parameters(program, memory.bytes(), rank);
    ASSERT_TRUE(all) << all.error().message();
    const auto qkv = std::ranges::find_if(*all, [](const ParameterPlaces& places) {
      return places.parameter->role == ParameterRole::qkv;
    });
    const std::int64_t half = qkv->parameter->elements() / 2;
    EXPECT_EQ(qkv->own.elements, (Interval{.begin = rank * half, .end = rank * half + half}));
    EXPECT_TRUE(qkv->first_replica);
    // Its queries, then its keys.
    EXPECT_EQ(qkv->place_of(rank * half), rank * queries / 2 * model.hidden);
    EXPECT_EQ(qkv->place_of(rank * half + queries / 2 * model.hidden),
              (queries + rank * model.kv_heads / 2 * model.head_dim) * model.hidden);
  }
}

}  // namespace
}  // namespace mfsdp
