// Plans in which one label is wrong, and all else is right: readers of plans refuse
// them, and so does the checker, by code of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "core/plan/check.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/rename_axis.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

Program built(Strategy strategy, Strategy outer, std::int64_t outer_ranks) {
  PlanConfig config = test::small_config(2);
  config.mesh = data_parallel_mesh(outer_ranks, 2);
  config.strategy = strategy;
  config.outer_strategy = outer;
  return *build_program(config, {});
}

/// Two groups of two ranks, ZeRO-3 inside.
Program built(Strategy outer = Strategy::no_shard) {
  return built(Strategy::optim_grads_params, outer, 2);
}

/// Refused by both, and by the checker in these words.
void expect_refused(const Program& right, const std::function<void(Program&)>& edit,
                    const std::string& words) {
  ASSERT_TRUE(check_structure(right)) << check_structure(right).error().message();
  ASSERT_TRUE(test::checked(right)) << test::checked(right).error().message();
  Program program = right;
  edit(program);
  EXPECT_FALSE(check_structure(program)) << words;
  const auto accepted = test::checked(program);
  ASSERT_FALSE(accepted) << words;
  EXPECT_THAT(accepted.error().message(), HasSubstr(words));
}

TEST(Labels, SumsHaveTheConfiguredDtype) {
  for (const Strategy strategy : {Strategy::no_shard, Strategy::optim}) {
    Program program = built(strategy, Strategy::no_shard, 1);
    program.config.reduce_dtype = DType::bf16;
    EXPECT_THAT(test::checker_refusal(program), HasSubstr("sums in another dtype"));
  }
}

TEST(Labels, DataParallelRanksAreNoOtherAxis) {
  const auto words_of = [](Axis axis, Axis of, Strategy outer) {
    if (axis != Axis::tp) return "an axis that no plan has: " + std::string(to_string(axis));
    // A group is cut along tp after dp_outer, if at all.
    const bool cut_before = of == Axis::dp_shard && outer == Strategy::optim;
    return std::string(cut_before ? "sharded in another way than the strategy"
                                  : "ranks of tp do not divide embedding");
  };
  for (const Axis axis : {Axis::tp, Axis::pp})
    for (const Axis of : {Axis::dp_outer, Axis::dp_shard})
      for (const Strategy outer : {Strategy::no_shard, Strategy::optim})
        expect_refused(
            built(outer),
            [&](Program& p) {
              test::rename_axis(p, of, axis);
              std::ranges::sort(p.config.mesh.dense, {}, &MeshAxis::axis);
            },
            words_of(axis, of, outer));
}

TEST(Labels, AxesAreNotExchanged) {
  expect_refused(
      built(), [](Program& p) { std::ranges::reverse(p.config.mesh.dense); }, "neighbours");
  expect_refused(
      built(),
      [](Program& p) {
        test::rename_axis(p, Axis::dp_outer, Axis::tp);
        test::rename_axis(p, Axis::dp_shard, Axis::dp_outer);
        test::rename_axis(p, Axis::tp, Axis::dp_shard);
      },
      "neighbours");
  expect_refused(
      built(),
      [](Program& p) {
        const Mesh mesh = p.config.mesh;
        test::rename_axis(p, Axis::dp_outer, Axis::tp);
        test::rename_axis(p, Axis::dp_shard, Axis::dp_outer);
        test::rename_axis(p, Axis::tp, Axis::dp_shard);
        p.config.mesh = mesh;
      },
      "sharded in another way than the strategy");
}

TEST(Labels, CommunicatorsAreNotExchanged) {
  for (const Strategy outer : {Strategy::no_shard, Strategy::optim}) {
    Program program = built(outer);
    test::exchange_communicators(program, Axis::dp_outer, Axis::dp_shard);
    EXPECT_FALSE(test::checked(program));
  }
}

TEST(Labels, StrategiesAreThoseOfTheGroups) {
  for (const Strategy made :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    for (const Strategy stated :
         {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
      if (made != stated)
        expect_refused(
            built(made, Strategy::no_shard, 1), [&](Program& p) { p.config.strategy = stated; },
            "sharded in another way than the strategy");
  expect_refused(
      built(), [](Program& p) { p.config.outer_strategy = Strategy::optim; },
      "sharded in another way than the strategy");
  expect_refused(
      built(Strategy::optim), [](Program& p) { p.config.outer_strategy = Strategy::no_shard; },
      "sharded in another way than the strategy");
}

TEST(Labels, ClassesAreApartAndAllRanks) {
  const auto classes = [](std::vector<RankClass> of) {
    expect_refused(built(), [&](Program& p) { p.classes = of; }, "one rank class of all 4 ranks");
  };
  classes({{.role = "a", .ranks = 3}, {.role = "b", .ranks = 1}});
  classes({{.role = "a", .ranks = 4}, {.role = "b", .ranks = 4}});
  classes({{.role = "a", .ranks = 3}});
}

TEST(Labels, ShardsAreMultiplesOfTheChunk) {
  for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{7}, std::int64_t{1} << 50})
    expect_refused(
        built(), [&](Program& p) { p.groups[0].chunk = chunk; }, "not a multiple of its chunk");
  // Beyond what the checker takes for a number.
  expect_refused(
      built(), [](Program& p) { p.groups[0].chunk = std::numeric_limits<std::int64_t>::max(); },
      "not an integer below 2^60");
}

}  // namespace
}  // namespace mfsdp
