// Megatron-FSDP's steps compared with recordings of PyTorch 2.11 on one H200, and with real runs of
// Llama-3-8B on eight.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "sim/engines/megatron_fsdp1.hpp"
#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp {
namespace {

using test::config_of;
using test::llama;
using test::llama3_8b;
using test::plan_of;
using test::recorded_events;
using test::small_llama;

constexpr EngineKind kFirst = EngineKind::megatron_fsdp_v1;
constexpr EngineKind kSecond = EngineKind::megatron_fsdp_v2;
constexpr EngineKind kSecondEager = EngineKind::megatron_fsdp_v2_eager;

PlanConfig with_double_buffer(PlanConfig config) {
  config.allocator = AllocatorPolicy::double_buffer;
  return config;
}

/// As those recordings have main gradients.
PlanConfig with_bf16_gradients(PlanConfig config) {
  config.grad_dtype = DType::bf16;
  return config;
}

AllocatorCounters counters_of(const EnginePlan& plan) { return engine_memory(plan, {}).counters; }

struct RecordedRun {
  std::string name;
  AllocatorCounters memory;
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
};

TEST(MegatronFsdpMemory, IsWhatWasRecorded) {
  const PlanConfig small = config_of(small_llama(), 3072);
  const PlanConfig shorter = config_of(small_llama(), 2048);
  const auto of = [](EngineKind engine, const PlanConfig& config) {
    return counters_of(plan_of(engine, config));
  };
  // These two ran before Inductor had compiled anything.
  const auto compiling = [](const PlanConfig& config) {
    return counters_of(
        megatron_fsdp1_plan(*engine_config(kFirst, config), {}, CompileCache::empty));
  };
  const std::vector<RecordedRun> runs{
      {"v1", compiling(small), 1364238336, 1642070016},
      {"v1, 2048", compiling(shorter), 1213214720, 1356857344},
      {"v1, double buffer", of(kFirst, with_double_buffer(small)), 1405882880, 1868562432},
      {"v2", of(kSecond, with_bf16_gradients(small)), 1260164608, 1560281088},
      {"v2, 2048", of(kSecond, with_bf16_gradients(shorter)), 993498624, 1237319680},
      {"v2, eager", of(kSecondEager, with_bf16_gradients(small)), 2118038528, 2831155200}};
  for (const RecordedRun& run : runs) {
    EXPECT_EQ(run.memory.peak_allocated, run.allocated) << run.name;
    EXPECT_EQ(run.memory.peak_reserved, run.reserved) << run.name;
  }
}

/// Where its buffers are made v1 gives back what lies free, which shows where that is a segment of
/// a large weight. On H200, where Inductor's cache was empty: 2026-11-26-engines-4.md.
TEST(MegatronFsdpMemory, OfV1WithOtherGradientsIsWhatWasRecorded) {
  const auto bf16 = [](PlanConfig config) {
    config.reduce_dtype = DType::bf16;
    return with_bf16_gradients(std::move(config));
  };
  const auto compiling = [](const PlanConfig& config) {
    return counters_of(
        megatron_fsdp1_plan(*engine_config(kFirst, config), {}, CompileCache::empty));
  };
  const PlanConfig small = config_of(small_llama(), 3072);
  const std::vector<RecordedRun> runs{
      {"small, bf16", compiling(bf16(small)), 1297506816, 1541406720},
      {"small, double buffer", compiling(with_double_buffer(small)), 1406079488, 1855979520},
      {"8B, bf16", compiling(bf16(config_of(llama3_8b(), 4096, 16))), 34443569152, 38726008832}};
  for (const RecordedRun& run : runs) {
    EXPECT_EQ(run.memory.peak_allocated, run.allocated) << run.name;
    EXPECT_EQ(run.memory.peak_reserved, run.reserved) << run.name;
  }
  // The same on H100, once all was compiled.
  const auto compiled = counters_of(plan_of(kFirst, bf16(config_of(llama3_8b(), 4096, 16))));
  EXPECT_EQ(compiled.peak_allocated, 34380654592);
  EXPECT_EQ(compiled.peak_reserved, 38726008832);
}

PlanConfig with_strategy(Strategy strategy, PlanConfig config) {
  config.strategy = strategy;
  return config;
}

PlanConfig with_outer(std::int64_t outer, PlanConfig config, std::int64_t microbatches = 1) {
  config.mesh = data_parallel_mesh(outer, config.mesh.world_size() / outer);
  config.microbatches = microbatches;
  return config;
}

/// On one H100, ZeRO-1, ZeRO-2 and HSDP of twice four ranks: gpu_lab engines record.
TEST(MegatronFsdpMemory, OfOtherStrategiesIsWhatWasRecorded) {
  using enum Strategy;
  const PlanConfig first = config_of(small_llama(), 3072);
  const PlanConfig second = with_bf16_gradients(first);
  const auto of = [](EngineKind engine, const PlanConfig& config) {
    return counters_of(plan_of(engine, config));
  };
  const std::vector<RecordedRun> runs{
      {"v1, HSDP", of(kFirst, with_outer(2, first)), 1573974528, 2149580800},
      {"v2, ZeRO-2", of(kSecond, with_strategy(optim_grads, second)), 1299873280, 1847590912},
      {"v2, ZeRO-1", of(kSecond, with_strategy(optim, second)), 1354303488, 2055208960},
      {"v2, HSDP", of(kSecond, with_outer(2, second)), 1481801216, 2046820352},
      {"v2, HSDP, 3", of(kSecond, with_outer(2, second, 3)), 1481801216, 2080374784}};
  for (const RecordedRun& run : runs) {
    EXPECT_EQ(run.memory.peak_allocated, run.allocated) << run.name;
    EXPECT_EQ(run.memory.peak_reserved, run.reserved) << run.name;
  }
  // These take another block of the small pool somewhere: half a mebibyte more.
  const AllocatorCounters two = of(kFirst, with_strategy(optim_grads, first));
  const AllocatorCounters one = of(kFirst, with_strategy(optim, first));
  EXPECT_NEAR(static_cast<double>(two.peak_allocated), 1331888640, 0.001 * 1331888640);
  EXPECT_NEAR(static_cast<double>(two.peak_reserved), 1623195648, 0.003 * 1623195648);
  EXPECT_NEAR(static_cast<double>(one.peak_allocated), 1721528832, 0.001 * 1721528832);
  EXPECT_NEAR(static_cast<double>(one.peak_reserved), 1944059904, 0.003 * 1944059904);
}

/// Real ones, known to a thousandth of a GiB. Theirs is the memory of later steps alone.
TEST(MegatronFsdpMemory, IsWhatEightGpusTook) {
  constexpr double kGib = 1 << 30;
  struct Run {
    std::string name;
    EngineKind engine;
    PlanConfig config;
    double allocated;  ///< GiB
    double reserved;
  };
  const PlanConfig config = config_of(llama3_8b(), 8192);
  const std::vector<Run> runs{
      {"v1", kFirst, config, 62.245, 68.473},
      {"v1, double buffer", kFirst, with_double_buffer(config), 62.849, 65.148},
      {"v2", kSecond, config, 59.837, 65.637},
      {"v2, eager", kSecondEager, config, 74.665, 80.598}};
  for (const Run& run : runs) {
    const AllocatorCounters memory = counters_of(plan_of(run.engine, run.config));
    EXPECT_NEAR(static_cast<double>(memory.peak_allocated) / kGib, run.allocated, 0.001)
        << run.name;
    EXPECT_NEAR(static_cast<double>(memory.peak_reserved) / kGib, run.reserved,
                0.002 * run.reserved)
        << run.name;
  }
}

TEST(MegatronFsdpSequence, IsWhatWasRecorded) {
  const PlanConfig config = config_of(small_llama(), 3072);
  EXPECT_EQ(test::derived_events(plan_of(kFirst, with_double_buffer(config))),
            recorded_events("mfsdp1_double_buffer.txt"));
  EXPECT_EQ(test::derived_events(plan_of(kSecond, with_bf16_gradients(config))),
            recorded_events("mfsdp2.txt"));
  EXPECT_EQ(test::derived_events(plan_of(kSecondEager, with_bf16_gradients(config))),
            recorded_events("mfsdp2_eager.txt"));
}

/// The limits of prefetched gathers and of pending gradients of the first version are in elements.
TEST(MegatronFsdp1, GathersBlocksOfHalfABillionElementsAhead) {
  // A block of Llama-3-8B is 218,136,576 elements with its padding: three are more than 500,000,000
  // and two are less, so that the first block's gather is followed by three.
  const EnginePlan plan = plan_of(kFirst, config_of(llama3_8b(), 8192));
  std::int64_t gathers = 0;
  for (const Op& op : plan.program.find_plan(PlanRole::train)->segments.front().ops) {
    if (const auto* kernel = std::get_if<Kernel>(&op.body))
      if (kernel->kind == KernelKind::rms_norm_forward) break;
    if (const auto* made = std::get_if<Collective>(&op.body))
      gathers += made->kind == CollectiveKind::all_gather ? 1 : 0;
  }
  EXPECT_EQ(gathers, 1 + 1 + 3);  // the root, the block, those ahead
}

TEST(MegatronFsdpConfig, RefusesWhatIsNotDescribed) {
  struct Case {
    std::string flag;
    EngineKind engine;
    PlanConfig config;
  };
  const PlanConfig possible = config_of(small_llama(), 1024);
  const auto changed = [&](auto change) {
    PlanConfig config = possible;
    change(config);
    return config;
  };
  const std::vector<Case> cases{
      {"--gpus", kSecond, config_of(small_llama(), 1024, 1)},
      {"--model", kSecond, changed([](PlanConfig& c) { c.model.qk_norm = true; })},
      {"--model", kFirst, changed([](PlanConfig& c) { c.model.tied_embeddings = true; })},
      {"--strategy", kFirst, changed([](PlanConfig& c) { c.strategy = Strategy::no_shard; })},
      {"--strategy", kFirst, changed([](PlanConfig& c) {
         c.strategy = Strategy::optim;
         c.mesh = data_parallel_mesh(2, 4);
       })},
      {"--allocator", kFirst,
       with_double_buffer(changed([](PlanConfig& c) { c.strategy = Strategy::optim_grads; }))},
      {"--reduce-dtype", kFirst, changed([](PlanConfig& c) {
         c.strategy = Strategy::optim;
         c.reduce_dtype = DType::bf16;
       })},
      {"--strategy", kSecond, changed([](PlanConfig& c) { c.strategy = Strategy::no_shard; })},
      {"--strategy", kSecond, changed([](PlanConfig& c) {
         c.strategy = Strategy::optim;
         c.mesh = data_parallel_mesh(2, 4);
       })},
      {"--recompute", kFirst, changed([](PlanConfig& c) { c.recompute.kind = Recompute::full; })},
      {"--grad-dtype", kFirst, changed([](PlanConfig& c) { c.grad_dtype = DType::fp16; })}};
  for (const Case& wrong : cases) {
    const auto own = engine_config(wrong.engine, wrong.config);
    ASSERT_FALSE(own) << wrong.flag;
    EXPECT_EQ(own.error().where, wrong.flag);
  }
  EXPECT_EQ(engine_config(kSecond, possible)->reduce_dtype, DType::bf16);
  EXPECT_EQ(engine_config(kSecond, with_double_buffer(possible))->allocator,
            AllocatorPolicy::best_fit);
  EXPECT_EQ(engine_config(kFirst, with_double_buffer(possible))->allocator,
            AllocatorPolicy::double_buffer);
}

struct AnyRun {
  EngineKind engine = kFirst;
  PlanConfig config;
};

AnyRun any_run() {
  AnyRun run{.engine = *rc::gen::element(kFirst, kSecond, kSecondEager),
             .config = test::any_engine_config()};
  PlanConfig& config = run.config;
  if (config.mesh.world_size() == 1) config.mesh = data_parallel_mesh(1, 2);
  if (test::pick({0, 1}) == 1) config.grad_dtype = DType::bf16;
  if (run.engine != kSecondEager) config.model.qk_norm = false;
  constexpr std::array kStrategies{Strategy::optim, Strategy::optim_grads,
                                   Strategy::optim_grads_params};
  config.strategy = kStrategies.at(static_cast<std::size_t>(test::pick({0, 1, 2})));
  const bool may_have_outer = run.engine == kFirst ? config.strategy == Strategy::optim_grads_params
                                                   : config.strategy != Strategy::optim;
  if (may_have_outer && test::pick({0, 1}) == 1)
    config.mesh = data_parallel_mesh(2, config.mesh.world_size());
  if (run.engine != kFirst) return run;
  if (config.strategy == Strategy::optim) config.reduce_dtype = config.grad_dtype;
  config.model.tied_embeddings = false;
  config.recompute.kind = Recompute::none;
  if (config.strategy == Strategy::optim_grads_params && test::pick({0, 1}) == 1)
    config.allocator = AllocatorPolicy::double_buffer;
  return run;
}

RC_GTEST_PROP(MegatronFsdpProperty, StepsBalance, ()) {
  const AnyRun run = any_run();
  test::check_balance(plan_of(run.engine, run.config));
}

/// Every wait is for a record that the host has already issued.
RC_GTEST_PROP(MegatronFsdpProperty, WaitsComeAfterTheirRecords, ()) {
  const AnyRun run = any_run();
  const EnginePlan plan = plan_of(run.engine, run.config);
  std::set<std::int64_t> recorded;
  for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
    for (const Op& op : segment.ops) {
      if (std::holds_alternative<Record>(op.body)) recorded.insert(op.id.value);
      if (const auto* wait = std::get_if<Wait>(&op.body))
        for (const auto& binding : wait->bindings)
          RC_ASSERT(recorded.contains(binding.record.value));
    }
}

/// Weights in both types, gradients and moments, a rank's shard of them, are live at every peak.
RC_GTEST_PROP(MegatronFsdpProperty, StateIsThere, ()) {
  const AnyRun run = any_run();
  const EngineMemory memory = engine_memory(plan_of(run.engine, run.config), {});
  // A root with an embedding and a head is divided evenly, blocks with padding: not less than this.
  const std::int64_t shard = make_model(run.config.model, DType::bf16).parameter_count() /
                             run.config.mesh.size(Axis::dp_shard);
  const std::int64_t bytes = 4 + 2 + size_of(run.config.grad_dtype);
  RC_ASSERT(memory.counters.peak_allocated >= bytes * shard);
  RC_ASSERT(memory.counters.peak_reserved >= memory.counters.peak_allocated);
  RC_ASSERT(sum_of(memory.at_peak).value <= memory.counters.peak_allocated);
}

}  // namespace
}  // namespace mfsdp
