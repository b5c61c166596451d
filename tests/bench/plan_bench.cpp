// Building, hashing and reading plans of real models.
#include <benchmark/benchmark.h>

#include <filesystem>

#include "core/model/hf_config.hpp"
#include "core/plan/lifetimes.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"

namespace mfsdp {
namespace {

PlanConfig config_of(const char* model, std::int64_t gpus, std::int64_t microbatches) {
  PlanConfig config;
  config.model =
      load_model(model, std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models")->shape;
  config.mesh.resize(Axis::dp_shard, gpus);
  config.microbatches = microbatches;
  return config;
}

void build(benchmark::State& state, const char* model, std::int64_t gpus,
           std::int64_t microbatches) {
  const PlanConfig config = config_of(model, gpus, microbatches);
  for (auto _ : state) benchmark::DoNotOptimize(build_program(config, {}));
}
BENCHMARK_CAPTURE(build, llama3_8b_on_64, "llama3_8b", 64, 1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(build, llama3_8b_256_microbatches, "llama3_8b", 64, 256)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(build, llama3_405b_on_16384, "llama3_405b", 16384, 1)
    ->Unit(benchmark::kMillisecond);

void hash(benchmark::State& state, const char* model) {
  const auto program = build_program(config_of(model, 64, 1), {});
  for (auto _ : state) benchmark::DoNotOptimize(plan_hash(*program));
}
BENCHMARK_CAPTURE(hash, llama3_8b, "llama3_8b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hash, llama3_70b, "llama3_70b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hash, llama3_405b, "llama3_405b")->Unit(benchmark::kMillisecond);

void lifetimes(benchmark::State& state, const char* model) {
  const auto program = build_program(config_of(model, 64, 1), {});
  for (auto _ : state) benchmark::DoNotOptimize(buffer_lifetimes(*program, program->plans[0]));
}
BENCHMARK_CAPTURE(lifetimes, llama3_8b, "llama3_8b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lifetimes, llama3_70b, "llama3_70b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lifetimes, llama3_405b, "llama3_405b")->Unit(benchmark::kMillisecond);

void read_json(benchmark::State& state) {
  const std::string text = to_canonical_json(*build_program(config_of("llama3_8b", 64, 1), {}));
  for (auto _ : state) benchmark::DoNotOptimize(program_from_json(text, "plan.json"));
}
BENCHMARK(read_json)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mfsdp
