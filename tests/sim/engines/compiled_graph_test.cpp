#include "sim/engines/compiled_graph.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mfsdp {
namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

class CompiledGraphTest : public testing::Test {
 protected:
  CompiledGraphTest() { step_.begin_segment("first", 1, 1); }

  static PlanConfig config() {
    PlanConfig config;
    config.mesh = data_parallel_mesh(1, 2);
    return config;
  }

  void kernel() {
    graph_.run([this] { step_.memory_bound(KernelKind::cast, "kernel", 1); });
  }

  /// "+name" for an allocation, "-name" for a free, in their order.
  std::vector<std::string> events() {
    graph_.emit();
    std::vector<std::string> events;
    const Program program = step_.finish().program;
    for (const Op& op : program.plans.front().segments.front().ops) {
      if (op.kind() == OpKind::acquire) events.push_back("+" + op.name);
      if (op.kind() == OpKind::release) events.push_back("-" + op.name);
    }
    return events;
  }

  StepBuilder step_{config(), {}};
  CompiledGraph graph_{step_};
};

TEST_F(CompiledGraphTest, TheNextKernelTakesWhatWasDropped) {
  const auto first = graph_.make("first", kMebibyte);
  kernel();
  graph_.drop(first);
  const auto second = graph_.make("second", kMebibyte);
  kernel();
  graph_.drop(second);
  EXPECT_EQ(events(), (std::vector<std::string>{"+first", "-first"}));
  EXPECT_EQ(graph_.tensor(first).buffer, graph_.tensor(second).buffer);
}

TEST_F(CompiledGraphTest, OtherSizesAreMade) {
  const auto first = graph_.make("first", kMebibyte);
  kernel();
  graph_.drop(first);
  const auto second = graph_.make("second", kMebibyte + 1);
  kernel();
  graph_.drop(second);
  EXPECT_EQ(events(), (std::vector<std::string>{"+first", "-first", "+second", "-second"}));
}

TEST_F(CompiledGraphTest, WhatIsGivenIsFreedAndNotTaken) {
  const Tensor input = step_.allocate("input", kMebibyte, Category::activation);
  kernel();
  graph_.drop(graph_.given(input));
  const auto made = graph_.make("made", kMebibyte);
  kernel();
  graph_.drop(made);
  EXPECT_EQ(events(), (std::vector<std::string>{"+input", "-input", "+made", "-made"}));
}

/// Between, `large` is live: if `first` stayed beside it, that would be the graph's peak.
TEST_F(CompiledGraphTest, NothingStaysThatRaisesThePeak) {
  const auto first = graph_.make("first", kMebibyte);
  kernel();
  graph_.drop(first);
  const auto large = graph_.make("large", 8 * kMebibyte);
  kernel();
  graph_.drop(large);
  const auto second = graph_.make("second", kMebibyte);
  kernel();
  graph_.drop(second);
  EXPECT_EQ(events(), (std::vector<std::string>{"+first", "-first", "+large", "-large", "+second",
                                                "-second"}));
}

TEST_F(CompiledGraphTest, WhatStaysBelowThePeakIsTakenLater) {
  const auto larger = graph_.make("larger", 16 * kMebibyte);
  kernel();
  graph_.drop(larger);
  const auto first = graph_.make("first", kMebibyte);
  kernel();
  graph_.drop(first);
  const auto large = graph_.make("large", 8 * kMebibyte);
  kernel();
  graph_.drop(large);
  const auto second = graph_.make("second", kMebibyte);
  kernel();
  graph_.drop(second);
  EXPECT_EQ(events(), (std::vector<std::string>{"+larger", "-larger", "+first", "+large", "-large",
                                                "-first"}));
}

}  // namespace
}  // namespace mfsdp
