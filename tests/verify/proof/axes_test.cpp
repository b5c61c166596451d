// The meaning of an axis is not in its name alone: plans of data parallelism whose axes have other
// names are refused, as are communicators over another axis of the same size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/rename_axis.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

/// Two groups of two ranks.
Program two_by_two(Strategy outer) {
  PlanConfig config = test::small_config(2);
  config.mesh = data_parallel_mesh(2, 2);
  config.outer_strategy = outer;
  return build_program(config, {}).value();
}

std::vector<Finding> errors_of(const Program& program) {
  std::vector<Finding> errors = prove(program).value().findings;
  std::erase_if(errors, [](const Finding& finding) { return !is_error(finding.rule); });
  return errors;
}

TEST(Axes, RanksOfDataParallelismAreNoOtherAxis) {
  for (const Strategy outer : {Strategy::no_shard, Strategy::optim})
    for (const Axis from : {Axis::dp_outer, Axis::dp_shard})
      for (const Axis to : {Axis::cp, Axis::tp}) {
        Program program = two_by_two(outer);
        ASSERT_TRUE(errors_of(program).empty());
        test::rename_axis(program, from, to);
        std::ranges::sort(program.config.mesh.dense, {}, &MeshAxis::axis);
        const auto errors = errors_of(program);
        ASSERT_FALSE(errors.empty());
        if (to == Axis::cp) continue;  // its kernels have other sizes
        const auto found = std::ranges::find(errors, "MF113", &Finding::rule);
        ASSERT_NE(found, errors.end());
        EXPECT_THAT(found->message, HasSubstr("share a block's weights"));
      }
}

TEST(Axes, CommunicatorsAreNotExchanged) {
  for (const Strategy outer : {Strategy::no_shard, Strategy::optim}) {
    const Program right = two_by_two(outer);
    Program program = right;
    test::exchange_communicators(program, Axis::dp_outer, Axis::dp_shard);
    EXPECT_FALSE(errors_of(program).empty());
    for (std::size_t c = 0; c < right.communicators.size(); ++c) {
      if (right.communicators[c].axes.size() != 1) continue;
      program = right;
      Axis& axis = program.communicators[c].axes[0];
      axis = axis == Axis::dp_outer ? Axis::dp_shard : Axis::dp_outer;
      EXPECT_FALSE(errors_of(program).empty()) << right.communicators[c].purpose;
    }
  }
}

/// The axes of the experts' grid without ep are the data axes of the experts of a rank, and of no
/// parameter that is whole on ep.
TEST(Axes, GradientsAreSummedOverAllAxesOnWhichParametersAreWhole) {
  PlanConfig config = test::small_config();
  test::add_experts(config.model, 4, 2);
  config.expert_parallel = 2;
  config.mesh = with_expert_grid(data_parallel_mesh(1, 4), 2);
  const Program right = build_program(config, {}).value();
  ASSERT_TRUE(errors_of(right).empty());
  for (const bool of_experts : {false, true}) {
    Program program = right;
    for (Group& group : program.groups)
      if (group.shard.empty() != of_experts)
        group.reduce = {of_experts ? Axis::dp_shard : Axis::expt_dp};
    const auto errors = errors_of(program);
    EXPECT_TRUE(std::ranges::any_of(errors, [](const Finding& finding) {
      return finding.rule == "MF303" &&
             finding.message.find("over other axes than") != std::string::npos;
    })) << of_experts;
  }
}

}  // namespace
}  // namespace mfsdp
