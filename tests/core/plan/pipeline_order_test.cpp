#include "core/plan/pipeline_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace mfsdp {
namespace {

using enum PipelineSchedule;

/// "F3" is the forward of microbatch 3; B a backward, I and W its halves. With several chunks "F3.1".
std::string text_of(const PipelineShape& shape, std::int64_t stage) {
  std::string text;
  for (const PipelineAction& action : pipeline_order(shape, stage)) {
    if (!text.empty()) text += ' ';
    text += "FBIW"[static_cast<std::size_t>(action.part)] + std::to_string(action.microbatch);
    if (shape.chunks > 1) text += '.' + std::to_string(action.chunk);
  }
  return text;
}

/// Times of the parts of a whole stage; chunks divide them.
struct PartTimes {
  double forward = 1;
  double backward = 2;
  double inputs = 1;
  double weights = 1;
};

/// When the last stage has ended, if transfers take no time.
double makespan(const PipelineShape& shape, const PartTimes& times = {}) {
  const auto chunks = static_cast<double>(shape.chunks);
  const std::int64_t last = shape.stages * shape.chunks - 1;  // virtual stage
  std::vector<std::vector<PipelineAction>> orders;
  for (std::int64_t s = 0; s < shape.stages; ++s) orders.push_back(pipeline_order(shape, s));
  std::vector<std::size_t> next(orders.size(), 0);
  std::vector<double> now(orders.size(), 0);
  std::map<std::tuple<bool, std::int64_t, std::int64_t>, double> ends;  // forward, virtual, mb
  const auto end_of = [&](bool forward, std::int64_t at, std::int64_t mb) -> std::optional<double> {
    const auto found = ends.find({forward, at, mb});
    return found == ends.end() ? std::nullopt : std::optional(found->second);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < orders.size(); ++s)
      while (next[s] < orders[s].size()) {
        const PipelineAction& action = orders[s][next[s]];
        const std::int64_t at = action.chunk * shape.stages + static_cast<std::int64_t>(s);
        const bool forward = action.part == PipelinePart::forward;
        std::optional<double> ready = 0.0;
        if (forward && at > 0) ready = end_of(true, at - 1, action.microbatch);
        if (action.part == PipelinePart::backward || action.part == PipelinePart::input_gradients)
          ready = end_of(at == last, at == last ? at : at + 1, action.microbatch);
        if (!ready) break;
        double length = times.weights;
        if (forward) length = times.forward;
        if (action.part == PipelinePart::backward) length = times.backward;
        if (action.part == PipelinePart::input_gradients) length = times.inputs;
        now[s] = std::max(now[s], *ready) + length / chunks;
        if (action.part != PipelinePart::weight_gradients)
          ends[{forward, at, action.microbatch}] = now[s];
        ++next[s];
        moved = true;
      }
  }
  for (std::size_t s = 0; s < orders.size(); ++s) EXPECT_EQ(next[s], orders[s].size()) << s;
  return *std::ranges::max_element(now);
}

std::vector<std::int64_t> live(const PipelineShape& shape) {
  std::vector<std::int64_t> counts;
  for (std::int64_t s = 0; s < shape.stages; ++s)
    counts.push_back(most_live(pipeline_order(shape, s)));
  return counts;
}

using Counts = std::vector<std::int64_t>;

constexpr PipelineShape of(PipelineSchedule schedule, std::int64_t stages, std::int64_t chunks,
                           std::int64_t microbatches) {
  return {.schedule = schedule, .stages = stages, .chunks = chunks, .microbatches = microbatches};
}

// Orders of Megatron-LM at d98e8a64 (megatron/core/pipeline_parallel/schedules.py).
TEST(PipelineOrder, AreThoseOfMegatron) {
  const PipelineShape plain = of(one_f_one_b, 4, 1, 8);
  EXPECT_EQ(text_of(plain, 0), "F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7");
  EXPECT_EQ(text_of(plain, 2), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7");
  EXPECT_EQ(text_of(plain, 3), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7");
  const PipelineShape two = of(interleaved, 2, 2, 4);
  EXPECT_EQ(text_of(two, 0),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(text_of(two, 1),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(text_of(of(gpipe, 2, 1, 3), 1), "F0 F1 F2 B0 B1 B2");
}

TEST(PipelineOrder, WeightGradientsWaitForTheirStagesNumberOfMicrobatches) {
  const PipelineShape shape = of(zb_h1, 3, 1, 4);
  EXPECT_EQ(text_of(shape, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
  EXPECT_EQ(text_of(shape, 2), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

// Makespans without transfers, a forward of 1 and a backward of 2: (m + p - 1)(F + B), and with
// interleaving m (F + B) + (p - 1)(F + B) / v where m is a multiple of p.
TEST(PipelineOrder, TakesTheTextbooksTime) {
  EXPECT_DOUBLE_EQ(makespan(of(gpipe, 4, 1, 8)), 33);
  EXPECT_DOUBLE_EQ(makespan(of(one_f_one_b, 4, 1, 8)), 33);
  EXPECT_DOUBLE_EQ(makespan(of(one_f_one_b, 8, 1, 16)), 69);
  EXPECT_DOUBLE_EQ(makespan(of(interleaved, 4, 2, 8)), 28.5);
  EXPECT_DOUBLE_EQ(makespan(of(interleaved, 4, 4, 8)), 26.25);
  EXPECT_DOUBLE_EQ(makespan(of(interleaved, 8, 2, 16)), 58.5);
  EXPECT_DOUBLE_EQ(makespan(of(interleaved, 4, 2, 4)), 16.5);
  EXPECT_DOUBLE_EQ(makespan(of(zb_h1, 4, 1, 8)), 27);
}

TEST(PipelineOrder, HoldsTheTextbooksMicrobatches) {
  EXPECT_EQ(live(of(gpipe, 2, 1, 5)), (Counts{5, 5}));
  EXPECT_EQ(live(of(one_f_one_b, 4, 1, 8)), (Counts{4, 3, 2, 1}));
  EXPECT_EQ(live(of(one_f_one_b, 4, 1, 2)), (Counts{2, 2, 2, 1}));
  EXPECT_EQ(live(of(zb_h1, 4, 1, 8)), (Counts{4, 3, 2, 1}));
  EXPECT_EQ(live(of(interleaved, 4, 2, 8)), (Counts{11, 9, 7, 5}));
  EXPECT_EQ(live(of(interleaved, 4, 4, 8)), (Counts{19, 17, 15, 13}));
  EXPECT_EQ(live(of(interleaved, 4, 2, 4)), (Counts{8, 8, 7, 5}));
}

TEST(PipelineOrder, GroupsMayBeLargerThanTheStages) {
  PipelineShape shape = of(interleaved, 2, 2, 5);
  shape.group = 3;
  ASSERT_TRUE(check(shape));
  EXPECT_TRUE(text_of(shape, 0).starts_with("F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 B0.1"))
      << text_of(shape, 0);
}

TEST(PipelineOrder, RefusesGroupsThatWouldStall) {
  PipelineShape shape = of(interleaved, 4, 2, 6);
  ASSERT_FALSE(check(shape));
  EXPECT_EQ(
      check(shape).error().message(),
      "--microbatch-group: 6 microbatches in groups of 4 leave 2 for the last group; expected "
      "none, or at least --pp (4)");
  shape.group = 3;
  EXPECT_FALSE(check(shape));
  shape.group = 6;
  EXPECT_TRUE(check(shape));
  EXPECT_FALSE(check(of(zb_h1, 4, 2, 8)));
}

}  // namespace
}  // namespace mfsdp
