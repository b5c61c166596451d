// FSDP2's step beside what PyTorch 2.11 recorded: docs/lab/2026-11-25-engines.md.
#include "sim/engines/fsdp2.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp {
namespace {

using test::config_of;
using test::llama;
using test::llama3_8b;
using test::plan_of;
using test::recorded_events;
using test::small_llama;

struct Recorded {
  std::string name;
  EngineKind engine = EngineKind::fsdp2;
  PlanConfig config;
  double allocated = 0;  ///< bytes
  double reserved = 0;
  double reserved_error = 0;  ///< a fraction that it may be off by
};

std::vector<Recorded> recorded_runs() {
  constexpr EngineKind eager = EngineKind::fsdp2;
  constexpr EngineKind compiled = EngineKind::fsdp2_compile;
  constexpr double kExact = 0;
  constexpr double kNear = 0.003;
  std::vector<Recorded> runs{
      {"eager", eager, config_of(small_llama(), 3072), 2069666304, 2814377984, kExact},
      {"compiled", compiled, config_of(small_llama(), 3072), 1996003840, 2743074816, kExact},
      // Here an MLP's gradient takes the place of another: 2048 tokens are twice the hidden width.
      {"compiled, 2048", compiled, config_of(small_llama(), 2048), 1459087872, 1975517184, kExact},
      {"8B", eager, config_of(llama3_8b(), 8192), 74148611072, 83642810368, kExact},
      {"8B compiled", compiled, config_of(llama3_8b(), 8192), 66632418304, 75933679616, kNear}};
  runs.push_back(
      {"recomputed", eager, config_of(small_llama(), 3072), 1616579072, 2051014656, kExact});
  runs.back().config.recompute.kind = Recompute::full;
  runs.push_back({"tied", eager, config_of(small_llama(), 3072), 1951963136, 2661285888, kExact});
  runs.back().config.model.tied_embeddings = true;
  runs.push_back(
      {"bf16 wire", eager, config_of(small_llama(), 2048), 1508502016, 2044723200, kExact});
  runs.back().config.reduce_dtype = DType::bf16;
  runs.push_back(
      {"microbatches", eager, config_of(small_llama(), 3072), 2125769216, 2847932416, kExact});
  runs.back().config.microbatches = 3;
  runs.push_back({"batch", eager, config_of(small_llama(), 1024), 2068093440, 2812280832, kExact});
  runs.back().config.micro_batch = 3;
  ModelShape qwen3 = llama(1024, 3072, 4, 16, 8, 151936);
  qwen3.head_dim = 128;
  qwen3.qk_norm = qwen3.tied_embeddings = true;
  runs.push_back({"Qwen3", eager, config_of(qwen3, 3072), 7040133632, 10089398272, kExact});
  return runs;
}

/// On one H100: gpu_lab engines record.
std::vector<Recorded> recorded_strategies() {
  constexpr EngineKind eager = EngineKind::fsdp2;
  constexpr EngineKind compiled = EngineKind::fsdp2_compile;
  constexpr double kExact = 0;
  const PlanConfig small = config_of(small_llama(), 3072);
  PlanConfig zero2 = small;
  zero2.strategy = Strategy::optim_grads;
  PlanConfig hsdp = small;
  hsdp.mesh = data_parallel_mesh(2, 4);
  std::vector<Recorded> runs{
      {"ZeRO-2", eager, zero2, 2141379072, 2868903936, kExact},
      {"HSDP", eager, hsdp, 2231820288, 2902458368, kExact},
      {"HSDP, bf16 wire", eager, hsdp, 2231820288, 2977955840, kExact},
      {"HSDP, 3 microbatches", eager, hsdp, 2342454272, 3019898880, kExact},
      {"HSDP and ZeRO-2", eager, hsdp, 2304708608, 2959081472, kExact},
      {"ZeRO-2, 3 microbatches", eager, zero2, 2197481984, 2902458368, kExact},
      {"ZeRO-2, recomputed", eager, zero2, 1685015040, 2107637760, kExact},
      {"compiled HSDP", compiled, hsdp, 2159730688, 2820669440, kExact},
      {"compiled ZeRO-2", compiled, zero2, 2066536960, 2812280832, kExact}};
  runs[2].config.reduce_dtype = DType::bf16;
  runs[3].config.microbatches = runs[5].config.microbatches = 3;
  runs[4].config.strategy = Strategy::optim_grads;
  runs[6].config.recompute.kind = Recompute::full;
  return runs;
}

TEST(Fsdp2Memory, OfOtherStrategiesIsWhatWasRecorded) {
  for (const Recorded& run : recorded_strategies()) {
    constexpr std::int64_t kL2OfH100 = std::int64_t{50} << 20;
    const auto own = engine_config(run.engine, run.config);
    ASSERT_TRUE(own) << own.error().message();
    const EngineMemory memory = engine_memory(engine_plan_of(run.engine, *own, {}, kL2OfH100), {});
    EXPECT_EQ(static_cast<double>(memory.counters.peak_allocated), run.allocated) << run.name;
    EXPECT_EQ(static_cast<double>(memory.counters.peak_reserved), run.reserved) << run.name;
  }
}

TEST(Fsdp2Memory, IsWhatWasRecorded) {
  for (const Recorded& run : recorded_runs()) {
    const EngineMemory memory = engine_memory(plan_of(run.engine, run.config), {});
    EXPECT_EQ(static_cast<double>(memory.counters.peak_allocated), run.allocated) << run.name;
    EXPECT_NEAR(static_cast<double>(memory.counters.peak_reserved), run.reserved,
                run.reserved_error * run.reserved)
        << run.name;
  }
}

std::vector<test::MemoryEventLine> events_of(const PlanConfig& config) {
  return test::derived_events(plan_of(EngineKind::fsdp2, config));
}

TEST(Fsdp2Sequence, IsWhatWasRecorded) {
  PlanConfig tied = config_of(small_llama(), 3072);
  tied.model.tied_embeddings = true;
  PlanConfig recomputed = config_of(small_llama(), 3072);
  recomputed.recompute.kind = Recompute::full;
  EXPECT_EQ(events_of(config_of(small_llama(), 3072)), recorded_events("fsdp2_eager.txt"));
  EXPECT_EQ(events_of(recomputed), recorded_events("fsdp2_recomputed.txt"));
  EXPECT_EQ(events_of(tied), recorded_events("fsdp2_tied.txt"));
}

/// Any configuration, also with ZeRO-2 and HSDP.
PlanConfig any_fsdp2_config() {
  PlanConfig config = test::any_engine_config();
  if (test::pick({0, 1}) == 1) config.strategy = Strategy::optim_grads;
  if (test::pick({0, 1}) == 1) config.mesh = data_parallel_mesh(3, config.mesh.world_size());
  return config;
}

RC_GTEST_PROP(Fsdp2Property, StepsBalance, ()) {
  const PlanConfig config = any_fsdp2_config();
  const EngineKind engine = *rc::gen::element(EngineKind::fsdp2, EngineKind::fsdp2_compile,
                                              EngineKind::fsdp2_compile_loss);
  test::check_balance(plan_of(engine, config));
}

/// Weights, gradients and moments in fp32, a rank's shard of them, are live at every peak.
RC_GTEST_PROP(Fsdp2Property, StateIsThere, ()) {
  const PlanConfig config = any_fsdp2_config();
  const EnginePlan plan = plan_of(EngineKind::fsdp2, config);
  const EngineMemory memory = engine_memory(plan, {});
  const std::int64_t shard =
      make_model(config.model, DType::bf16).parameter_count() / config.mesh.size(Axis::dp_shard);
  RC_ASSERT(memory.counters.peak_allocated >= 12 * shard);
  RC_ASSERT(memory.counters.peak_reserved >= memory.counters.peak_allocated);
  RC_ASSERT(sum_of(memory.at_peak).value <= memory.counters.peak_allocated);
}

/// With a compiled loss, two tensors of bf16 logits are live at the peak: 2 * 2 bytes each. Eager:
/// log-probabilities and two gradients in fp32, 3 * 4 bytes, of which the first is freed.
TEST(Fsdp2Memory, ACompiledLossMakesNoLogitsInFp32) {
  const PlanConfig config = config_of(llama3_8b(), 8192);
  const auto logits = [&](EngineKind engine) {
    const EngineMemory memory = engine_memory(plan_of(engine, config), {});
    return memory.at_peak[static_cast<std::size_t>(Category::logits)].value;
  };
  const std::int64_t each = 8192LL * 128256;
  EXPECT_EQ(logits(EngineKind::fsdp2_compile_loss), 4 * each);
  EXPECT_EQ(logits(EngineKind::fsdp2_compile), 12 * each);
}

/// Benefit and cost of ZeRO-2: a block is gathered once in a microbatch instead of twice, and all
/// of them are live at the loss.
TEST(Fsdp2, GathersOnceWhereItKeepsWhatItGathered) {
  PlanConfig config = config_of(small_llama(), 3072);
  const auto gathers = [&] {
    std::int64_t count = 0;
    const EnginePlan plan = plan_of(EngineKind::fsdp2, config);
    for (const Op& op : plan.program.find_plan(PlanRole::train)->segments.front().ops)
      if (const auto* made = std::get_if<Collective>(&op.body))
        count += made->kind == CollectiveKind::all_gather ? 1 : 0;
    return count;
  };
  EXPECT_EQ(gathers(), 1 + 2 * 4);  // the root once, four blocks in forward and in backward
  config.strategy = Strategy::optim_grads;
  EXPECT_EQ(gathers(), 1 + 4);
}

/// The sum along the outer axis is over a rank's shard, in each microbatch, on a stream of its own.
TEST(Fsdp2, SumsAlongTheOuterAxis) {
  PlanConfig config = config_of(small_llama(), 3072);
  config.mesh = data_parallel_mesh(2, 4);
  const EnginePlan plan = plan_of(EngineKind::fsdp2, config);
  const Program& program = plan.program;
  ASSERT_EQ(program.communicators.size(), 2U);
  EXPECT_EQ(program.communicators[0].size, 4);
  EXPECT_EQ(program.communicators[1].size, 2);
  std::int64_t elements = 0;
  for (const Op& op : program.find_plan(PlanRole::train)->segments.front().ops) {
    const auto* made = std::get_if<Collective>(&op.body);
    if (made == nullptr || made->kind != CollectiveKind::all_reduce) continue;
    EXPECT_EQ(program.streams[op.stream.value].role, StreamRole::outer);
    EXPECT_EQ(made->communicator, program.communicators[1].id);
    elements += made->count;
  }
  EXPECT_EQ(elements, make_model(config.model, DType::bf16).parameter_count() / 4);
}

/// Host work of Python: hooks, launches and collectives are counted for each op of the plan.
TEST(Fsdp2, CountsWhatTheHostDoes) {
  const EnginePlan plan = plan_of(EngineKind::fsdp2, config_of(small_llama(), 128));
  std::size_t ops = 0;
  for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
    for (const Op& op : segment.ops) {
      ASSERT_LT(op.id.value, plan.host.size());
      const HostLaunches work = plan.host[op.id.value];
      EXPECT_GE(work, 0);
      if (std::holds_alternative<Kernel>(op.body)) {
        EXPECT_GE(work, kBackwardKernel) << op.name;
      } else if (std::holds_alternative<Collective>(op.body)) {
        EXPECT_GE(work, kCollectiveCall) << op.name;
      }
      ++ops;
    }
  EXPECT_EQ(plan.host.size(), ops);
}

}  // namespace
}  // namespace mfsdp
