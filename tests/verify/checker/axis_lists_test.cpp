// Collectives over several axes at once: members count in the order of ranks, so a gradient may be
// summed over both, but is not cut as two reductions one after another cut it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/plan/check.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

/// Two groups of two ranks. Gradients are reduced within groups, then over them.
Program in_two_steps(Strategy strategy, Strategy outer) {
  PlanConfig config = test::small_config(2);
  config.mesh = data_parallel_mesh(2, 2);
  config.strategy = strategy;
  config.outer_strategy = outer;
  config.microbatches = 1;
  return build_program(config, {}).value();
}

/// The same with one reduction over all ranks in place of both.
Program at_once(Program program) {
  const CommunicatorId all =
      std::ranges::find(program.communicators, "world", &Communicator::purpose)->id;
  std::size_t replaced = 0;
  for (Segment& segment : program.plans[0].segments) {
    std::vector<Op> ops;
    std::size_t inner = 0;
    for (Op& op : segment.ops) {
      const auto* collective = std::get_if<Collective>(&op.body);
      const bool reduces = collective != nullptr && collective->reduction == Reduction::sum;
      if (reduces && op.name.find(".outer_") != std::string::npos) {
        auto& both = std::get<Collective>(ops.at(inner).body);
        both.communicator = all;
        both.output = collective->output;
        both.count = collective->count;
        ++replaced;
        continue;
      }
      if (reduces) inner = ops.size();
      ops.push_back(std::move(op));
    }
    segment.ops = std::move(ops);
  }
  EXPECT_EQ(replaced, program.units.size());
  return program;
}

/// The first error of the proof, or nothing.
std::string error_of_lists(const Program& program) {
  const Proof proof = prove(program).value();
  for (const Finding& finding : proof.findings)
    if (is_error(finding.rule)) return finding.rule + ": " + finding.message;
  return {};
}

TEST(AxisLists, AGradientIsSummedOverSeveralAxesAtOnce) {
  const Program program = at_once(in_two_steps(Strategy::no_shard, Strategy::no_shard));
  ASSERT_TRUE(check_structure(program));
  EXPECT_EQ(error_of_lists(program), "");
  EXPECT_EQ(test::checker_refusal(program), "");
  Program less = program;  // with another sum than that of all ranks
  for (Communicator& communicator : less.communicators)
    if (communicator.purpose == "world") communicator.axes = {Axis::dp_outer};
  EXPECT_NE(error_of_lists(less), "");
  EXPECT_NE(test::checker_refusal(less), "");
}

/// Rank 1 is the second in its group of the first of two: it would receive the second of four parts,
/// but updates the third, as groups are cut inside first.
TEST(AxisLists, PartsOfSeveralAxesAreInTheOrderOfRanks) {
  const Program right = in_two_steps(Strategy::optim_grads_params, Strategy::optim);
  ASSERT_EQ(error_of_lists(right), "");
  ASSERT_EQ(test::checker_refusal(right), "");
  const Program program = at_once(right);
  EXPECT_NE(error_of_lists(program), "");
  EXPECT_NE(test::checker_refusal(program), "");
}

}  // namespace
}  // namespace mfsdp
