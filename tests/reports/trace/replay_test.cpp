#include "reports/trace/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "reports/trace/whole_memory.hpp"
#include "tests/support/predicted.hpp"

namespace mfsdp {
namespace {

struct Replayed {
  test::Predicted predicted;
  std::vector<TimedOp> whole;
  Replay replay;
};

template <class Change>
Replayed replayed(Change change) {
  Replayed all{.predicted = test::predicted(change), .whole = {}, .replay = {}};
  const test::Predicted& predicted = all.predicted;
  all.whole = whole_step(predicted.run());
  all.replay = replay(predicted.program, predicted.plan(), all.whole, predicted.run().time.step);
  return all;
}

/// Live bytes of transient device buffers at a time.
std::int64_t live_at(const Replayed& all, Nanos at) {
  const Program& program = all.predicted.program;
  std::int64_t sum = 0;
  for (const BufferSpan& span : all.replay.buffers) {
    const Buffer& buffer = program.buffers[span.buffer];
    const auto pool = std::ranges::find(program.pools, buffer.pool, &Pool::id);
    if (pool->space == MemorySpace::device && span.begin <= at && at < span.end)
      sum += buffer.size.value;
  }
  return sum;
}

std::int64_t persistent_bytes(const Program& program) {
  std::int64_t sum = 0;
  for (const Buffer& buffer : program.buffers) {
    const auto pool = std::ranges::find(program.pools, buffer.pool, &Pool::id);
    if (buffer.persistent && pool->space == MemorySpace::device) sum += buffer.size.value;
  }
  return sum;
}

class ReplayOf : public testing::TestWithParam<std::pair<Strategy, std::int64_t>> {};

TEST_P(ReplayOf, BuffersAddUpToTheSimulatedMemory) {
  const auto [strategy, microbatches] = GetParam();
  const Replayed all = replayed([&](PlanConfig& config) {
    config.strategy = strategy;
    config.microbatches = microbatches;
    if (strategy == Strategy::optim_grads) config.recompute.kind = Recompute::full;
  });
  const PredictedRun& run = all.predicted.run();
  const std::int64_t resident = persistent_bytes(all.predicted.program);
  constexpr auto kRuntime = static_cast<std::size_t>(Category::runtime);
  std::size_t compared = 0;
  for (std::size_t i = 0; i + 1 < run.memory_timeline.size(); ++i) {
    const MemoryPoint& point = run.memory_timeline[i];
    // If several changes have one time, the last one holds until the next.
    if (run.memory_timeline[i + 1].at == point.at || point.at >= run.time.step) continue;
    std::int64_t sum = 0;
    for (const Bytes bytes : point.categories) sum += bytes.value;
    ASSERT_EQ(live_at(all, point.at) + resident + point.categories.at(kRuntime).value, sum)
        << "at " << point.at.value << " ns";
    ++compared;
  }
  EXPECT_GT(compared, 20U);
}

/// The last of several points with one time.
std::map<Nanos, std::array<Bytes, 10>> by_time(const std::vector<MemoryPoint>& points, Nanos step) {
  std::map<Nanos, std::array<Bytes, 10>> times;
  for (const MemoryPoint& point : points)
    if (point.at < step) times[point.at] = point.categories;
  return times;
}

TEST_P(ReplayOf, WholeMemoryIsTheSimulatedMemory) {
  const auto [strategy, microbatches] = GetParam();
  const Replayed all = replayed([&](PlanConfig& config) {
    config.strategy = strategy;
    config.microbatches = microbatches;
  });
  const PredictedRun& run = all.predicted.run();
  const auto whole =
      by_time(whole_memory(all.predicted.program, all.replay, run.memory_timeline, run.time.step),
              run.time.step);
  EXPECT_EQ(whole, by_time(run.memory_timeline, run.time.step));
}

TEST(WholeMemory, HasThePeakOfEveryMicrobatch) {
  const Replayed all = replayed([](PlanConfig& config) { config.microbatches = 7; });
  const PredictedRun& run = all.predicted.run();
  std::size_t peaks = 0;
  for (const MemoryPoint& point :
       whole_memory(all.predicted.program, all.replay, run.memory_timeline, run.time.step)) {
    Bytes sum;
    for (const Bytes bytes : point.categories) sum += bytes;
    ASSERT_LE(sum, *run.live_peak);
    if (sum == *run.live_peak) ++peaks;
  }
  EXPECT_GE(peaks, 7U);
}

TEST_P(ReplayOf, NoOpBeginsBeforeWhatItsStreamAwaited) {
  const auto [strategy, microbatches] = GetParam();
  const Replayed all = replayed([&](PlanConfig& config) {
    config.strategy = strategy;
    config.microbatches = microbatches;
  });
  ASSERT_FALSE(all.replay.waits.empty());
  for (const WaitEdge& wait : all.replay.waits) {
    const TimedOp& awaited = all.whole[wait.awaited];
    const TimedOp& waiter = all.whole[wait.waiter];
    EXPECT_LE(awaited.end, waiter.start) << waiter.op->name << " waits for " << awaited.op->name;
    EXPECT_NE(awaited.op->stream, waiter.op->stream);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, ReplayOf,
                         testing::Values(std::pair(Strategy::optim_grads_params, 1),
                                         std::pair(Strategy::optim_grads_params, 2),
                                         std::pair(Strategy::optim_grads, 1),
                                         std::pair(Strategy::no_shard, 2)));

TEST(OpFactsOf, KernelsCopiesAndCollectives) {
  const auto predicted = test::predicted([](PlanConfig&) {});
  const auto facts = op_facts(predicted.program, predicted.plan());
  TrafficSummary sent;
  std::size_t waits = 0;
  for (const Segment& segment : predicted.plan().segments)
    for (const Op& op : segment.ops) {
      const auto found = facts.find(op.id);
      const auto* collective = std::get_if<Collective>(&op.body);
      if (const auto* kernel = std::get_if<Kernel>(&op.body)) {
        ASSERT_NE(found, facts.end());
        EXPECT_EQ(found->second.flops, kernel->flops);
        EXPECT_EQ(found->second.bytes, kernel->bytes());
      } else if (collective != nullptr) {
        ASSERT_NE(found, facts.end());
        Bytes& sum = collective->kind == CollectiveKind::all_gather       ? sent.all_gather
                     : collective->kind == CollectiveKind::reduce_scatter ? sent.reduce_scatter
                                                                          : sent.all_reduce;
        sum += Bytes(found->second.bytes);
      } else if (op.kind() != OpKind::copy) {
        EXPECT_EQ(found, facts.end());
      }
      if (found != facts.end()) waits += found->second.waits.size();
    }
  const TrafficSummary& traffic = predicted.run().traffic;
  EXPECT_EQ(sent.all_gather, traffic.all_gather);
  EXPECT_EQ(sent.reduce_scatter, traffic.reduce_scatter);
  EXPECT_EQ(sent.all_reduce, traffic.all_reduce);
  EXPECT_GT(waits, 10U);
}

}  // namespace
}  // namespace mfsdp
