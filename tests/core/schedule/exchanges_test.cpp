// Kernels that hide token exchanges, and plans that have a stream for these.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr StreamId kExchange(static_cast<std::size_t>(StreamRole::exchange));
constexpr StreamId kCompute(static_cast<std::size_t>(StreamRole::compute));

/// One block with four experts over two ranks.
PlanConfig dealt_config(Recompute recompute) {
  PlanConfig config = test::small_config(2, 1);
  test::add_experts(config.model, 4, 2);
  config.model.shared_intermediate = 6;
  config.expert_parallel = 2;
  config.mesh = with_expert_grid(config.mesh, 2);
  config.recompute.kind = recompute;
  return config;
}

/// The exchanges of one run, then "|", then the kernels between their issue and compute's wait.
std::vector<std::string> beside_exchanges(const Program& program) {
  std::vector<std::string> found;
  std::string run;
  std::string kernels;
  bool crosses = false;
  for (const Op& op : program.plans[0].segments[0].ops) {
    if (op.stream == kExchange && op.kind() == OpKind::collective) {
      run += op.name + " ";
      crosses = true;
    } else if (op.kind() == OpKind::wait && op.stream == kCompute &&
               op.name.starts_with("exchanged.")) {
      found.push_back(run + "|" + kernels);
      run.clear();
      kernels.clear();
      crosses = false;
    } else if (crosses && op.kind() == OpKind::kernel && op.stream == kCompute) {
      kernels += " " + op.name;
    }
  }
  EXPECT_EQ(run, "");  // every exchange is waited for
  return found;
}

TEST(Exchanges, HaveASharedExpertsKernelsBesideThem) {
  const Program program = build_program(dealt_config(Recompute::none), {}).value();
  EXPECT_THAT(
      beside_exchanges(program),
      ElementsAre("layers.0.send_counts layers.0.send layers.0.send_weights | "
                  "layers.0.shared_gate layers.0.shared_sigmoid layers.0.shared_gate_up",
                  "layers.0.return | layers.0.shared_swiglu layers.0.shared_down",
                  "layers.0.return.backward | layers.0.shared_down.dgrad "
                  "layers.0.shared_swiglu.backward",
                  "layers.0.send.backward layers.0.send_weights.backward | layers.0.zero_padding "
                  "layers.0.experts.zero_padding layers.0.shared_down.wgrad "
                  "layers.0.shared_sigmoid.backward"));
}

// The weight gradients of the lowest block are late, so that no kernel hides the exchange of
// gradients there; in a second block kernels do.
TEST(Exchanges, ResendBesideGradientsOfWhatTakesTheSameRows) {
  PlanConfig config = dealt_config(Recompute::selective);
  config.model.layers = 2;
  const std::vector<std::string> beside = beside_exchanges(build_program(config, {}).value());
  EXPECT_THAT(beside,
              testing::Contains("layers.1.resend | layers.1.router.wgrad "
                                "layers.1.shared_gate_up.wgrad layers.1.shared_gate.wgrad"));
}

/// Without one no kernel is between an exchange and its reader: no stream, no event.
TEST(Exchanges, StayInComputesStreamWithoutASharedExpert) {
  PlanConfig config = dealt_config(Recompute::selective);
  config.model.shared_intermediate = 0;
  const Program program = build_program(config, {}).value();
  EXPECT_EQ(program.streams.size(), static_cast<std::size_t>(StreamRole::exchange));
  EXPECT_THAT(beside_exchanges(program), IsEmpty());
  std::int64_t exchanges = 0;
  for (const Op& op : program.plans[0].segments[0].ops)
    if (const auto* collective = std::get_if<Collective>(&op.body);
        collective != nullptr && collective->kind == CollectiveKind::all_to_all) {
      EXPECT_EQ(op.stream, kCompute) << op.name;
      ++exchanges;
    }
  // Counts, rows and weights out, rows back; backward the same but for counts, and rows once more.
  EXPECT_EQ(exchanges, 4 + 3 + 1);
}

TEST(Exchanges, HaveNoGradientBesideThemThatIsFrozen) {
  PlanConfig config = dealt_config(Recompute::none);
  config.model.shared_intermediate = 6;
  config.frozen = {"shared_expert."};
  const std::vector<std::string> beside = beside_exchanges(build_program(config, {}).value());
  ASSERT_EQ(beside.size(), 4U);
  EXPECT_EQ(beside[3],
            "layers.0.send.backward layers.0.send_weights.backward | "
            "layers.0.shared_sigmoid.backward");
}

}  // namespace
}  // namespace mfsdp
