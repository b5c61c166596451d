// A plan of role logprob on the CPU: the host receives each label's log-probability.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tests/support/shipped_plan.hpp"
#include "tests/verify/cpu/oracle/training_step.hpp"

namespace mfsdp {
namespace {

constexpr std::int32_t kIgnored = -100;

std::vector<double> log_probs_on_host(const test::RankState& state) {
  const Buffer& host = *state.find("pinned_log_probs");
  std::vector<double> values;
  for (std::int64_t i = 0; i < host.size.value / size_of(host.dtype); ++i)
    values.push_back(test::load(state.bytes(host), host.dtype, i));
  return values;
}

TEST(Logprob, TheHostReceivesEachLabelsLogProbability) {
  const Program program = test::shipped_plan("logprob/llama_nano.json");
  const test::Tensors weights = test::random_weights(program, 1);
  const test::Batches batch = test::random_batches(program, 2);
  std::vector<std::int32_t> labels;
  std::ptrdiff_t only = -1;  ///< the token whose label is kept; -1: all
  const auto tokens = [&](std::int64_t rank, std::int64_t microbatch, std::span<std::int32_t> all) {
    batch(rank, microbatch, all);
    const auto own = all.subspan(all.size() / 2);
    labels.assign(own.begin(), own.end());
    for (std::ptrdiff_t i = 0; i < std::ssize(own); ++i)
      if (only >= 0 && i != only) own[static_cast<std::size_t>(i)] = kIgnored;
  };
  test::TrainingStep step(program, tokens);
  const auto run = [&](PlanRole role) {
    step.run_plan(role, [&](std::size_t rank) { step.state(rank).fill(weights); });
    return step.reported_loss();
  };
  const double loss = run(PlanRole::logprob);
  const std::vector<double> log_probs = log_probs_on_host(step.state(0));
  EXPECT_EQ(run(PlanRole::eval), loss);
  ASSERT_EQ(log_probs.size(), labels.size());
  EXPECT_NEAR(std::accumulate(log_probs.begin(), log_probs.end(), 0.0), -loss, 1e-4 * loss);
  // Alone, each label's loss is what evaluation reports.
  std::ptrdiff_t ignored = 0;
  for (only = 0; only < std::ssize(log_probs); ++only) {
    const double log_prob = log_probs[static_cast<std::size_t>(only)];
    if (labels[static_cast<std::size_t>(only)] == kIgnored) {
      EXPECT_EQ(log_prob, 0);
      ++ignored;
    } else if (only < 4) {
      EXPECT_EQ(run(PlanRole::eval), -log_prob) << only;
    }
  }
  EXPECT_GT(ignored, 0);
}

}  // namespace
}  // namespace mfsdp
