// Simulated op executions per second, on plans of a training step's shape.
#include <benchmark/benchmark.h>

#include <filesystem>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "sim/predict/predict.hpp"
#include "sim/simulator/critical_path.hpp"
#include "tests/sim/timed_plan.hpp"

namespace mfsdp {
namespace {

using namespace test;

/// One microbatch: per layer and direction a gather one layer ahead, `kernels` kernels with their
/// buffers, and in backward a reduction with its accumulation.
void add_microbatch(Tiny& tiny, std::int64_t layers, int kernels) {
  for (const bool backward : {false, true})
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      tiny.wait(kGather, 1, 1).acquire(kCompute, 0);
      tiny.collective(kGather, 0, {.duration = 900'000, .latency = 20'000, .sms = 1}, 0);
      tiny.record(kGather, 0).wait(kCompute, 0);
      for (int i = 0; i < kernels; ++i) {
        tiny.acquire(kCompute, 1).kernel(101'000 + 1000 * i).release(kCompute, 1);
      }
      tiny.release(kCompute, 0).record(kCompute, 1);
      if (!backward) continue;
      tiny.record(kCompute, 2).wait(kScatter, 2);
      tiny.collective(kScatter, 1, {.duration = 1'700'000, .latency = 20'000}, 1);
      tiny.kernel(30'000, "accumulate", kScatter).record(kScatter, 3).wait(kCompute, 3, 1);
    }
}

Tiny training(std::int64_t layers, int kernels, std::int64_t microbatches) {
  Tiny tiny;
  tiny.buffer(1 << 20, Category::unsharded_weight).buffer(1 << 10, Category::activation);
  tiny.segment("middle", microbatches);
  add_microbatch(tiny, layers, kernels);
  tiny.segment("optimizer");
  for (std::int64_t layer = 0; layer < layers; ++layer) tiny.kernel(50'000);
  return tiny;
}

/// Arguments: layers, kernels per layer and direction, microbatches.
void simulate_step(benchmark::State& state) {
  Tiny tiny = training(state.range(0), static_cast<int>(state.range(1)), state.range(2));
  std::int64_t ops = 0;
  for (const Segment& segment : tiny.plan().segments)
    ops += static_cast<std::int64_t>(segment.ops.size()) * segment.repeat;
  for (auto _ : state) {
    auto simulation = simulate(tiny);
    if (!simulation) state.SkipWithError(simulation.error().message().c_str());
    benchmark::DoNotOptimize(simulation);
  }
  state.counters["ops"] = static_cast<double>(ops);
}
BENCHMARK(simulate_step)
    ->Args({32, 15, 1})
    ->Args({32, 15, 256})
    ->Args({126, 15, 1})
    ->Unit(benchmark::kMillisecond);

void find_critical_path(benchmark::State& state) {
  Tiny tiny = training(state.range(0), 15, state.range(1));
  const auto simulation = simulate(tiny);
  for (auto _ : state) {
    auto path = critical_path(tiny.program, tiny.plan(), *simulation);
    benchmark::DoNotOptimize(path);
  }
}
BENCHMARK(find_critical_path)->Args({32, 1})->Args({126, 1})->Unit(benchmark::kMillisecond);

/// Llama-3-8B on H100; argument: dp_outer x dp_shard. Every rank by itself where it is asked for.
void predict_llama(benchmark::State& state, const RankVariation& variation) {
  const std::filesystem::path scenarios = MFSDP_SOURCE_DIR "/scenarios";
  PlanConfig config;
  config.model = load_model("llama3_8b", scenarios / "models")->shape;
  config.mesh = data_parallel_mesh(state.range(0), state.range(1));
  const auto program = build_program(config, {});
  const auto gpu = load_gpu("h100", scenarios / "gpus");
  const auto costs = make_cost_model(*make_cluster(*gpu, config.mesh.world_size(), 8));
  for (auto _ : state) {
    auto prediction = predict(*program, *costs, variation);
    if (!prediction) state.SkipWithError(prediction.error().message().c_str());
    benchmark::DoNotOptimize(prediction);
  }
}
BENCHMARK_CAPTURE(predict_llama, alike, RankVariation{})
    ->Args({1, 64})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict_llama, one_slow,
                  RankVariation{.slow = {SlowRank{.rank = 5, .factor = {11, 10}}}})
    ->Args({1, 512})
    ->Args({64, 8})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict_llama, jitter, RankVariation{.jitter = {2, 100}})
    ->Args({1, 64})
    ->Args({1, 512})
    ->Args({64, 8})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mfsdp
