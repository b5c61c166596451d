// The cost of one prediction of a sweep: of its parts, in total, and of storing it.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "core/model/hf_config.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "reports/store/store.hpp"
#include "sim/predict/predict.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

const std::filesystem::path kScenarios = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios";

/// A model on 64 H100, as a sweep asks for it.
struct Setting {
  PlanConfig config;
  CostModel costs;
};

Setting setting_of(const char* model) {
  PlanConfig config;
  config.model = load_model(model, kScenarios / "models")->shape;
  config.mesh.resize(Axis::dp_shard, 64);
  const auto gpu = load_gpu("h100", kScenarios / "gpus");
  return {.config = config, .costs = *make_cost_model(*make_cluster(*gpu, 64, 8))};
}

RunResult run_of(const char* model) {
  const Setting setting = setting_of(model);
  return predict(*build_program(setting.config, {}), setting.costs)->run;
}

void build_plan(benchmark::State& state, const char* model) {
  const Setting setting = setting_of(model);
  for (auto _ : state) benchmark::DoNotOptimize(build_program(setting.config, {}));
}

void predict_plan(benchmark::State& state, const char* model) {
  const Setting setting = setting_of(model);
  const auto program = build_program(setting.config, {});
  for (auto _ : state) benchmark::DoNotOptimize(predict(*program, setting.costs));
}

void save_run(benchmark::State& state, const char* model) {
  const test::ScratchFolder folder;
  auto store = *Store::open(folder / "bench.sqlite");
  RunResult run = run_of(model);
  std::int64_t number = 0;
  for (auto _ : state) {
    run.run_id = fmt::format("{}", number++);
    benchmark::DoNotOptimize(store.save(run));
  }
}

/// A hundred runs in one transaction.
void save_runs(benchmark::State& state, const char* model) {
  const test::ScratchFolder folder;
  auto store = *Store::open(folder / "bench.sqlite");
  std::vector<RunResult> runs(100, run_of(model));
  std::int64_t number = 0;
  for (auto _ : state) {
    for (RunResult& run : runs) run.run_id = fmt::format("{}", number++);
    benchmark::DoNotOptimize(store.save_all(runs));
  }
}

void load_run(benchmark::State& state, const char* model) {
  const test::ScratchFolder folder;
  auto store = *Store::open(folder / "bench.sqlite");
  const std::int64_t row = *store.save(run_of(model));
  for (auto _ : state) benchmark::DoNotOptimize(store.load(row));
}

/// One configuration of a sweep from its flags to its stored row.
void one_of_a_sweep(benchmark::State& state, const char* model) {
  const Setting setting = setting_of(model);
  const test::ScratchFolder folder;
  auto store = *Store::open(folder / "bench.sqlite");
  std::int64_t number = 0;
  for (auto _ : state) {
    const auto program = build_program(setting.config, {});
    auto prediction = predict(*program, setting.costs);
    prediction->run.run_id = fmt::format("{}", number++);
    benchmark::DoNotOptimize(store.save(prediction->run));
  }
}

BENCHMARK_CAPTURE(build_plan, llama3_8b, "llama3_8b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(build_plan, llama3_70b, "llama3_70b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict_plan, llama3_8b, "llama3_8b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(predict_plan, llama3_70b, "llama3_70b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(save_run, llama3_8b, "llama3_8b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(save_run, llama3_70b, "llama3_70b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(save_runs, llama3_8b, "llama3_8b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(save_runs, llama3_70b, "llama3_70b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(load_run, llama3_70b, "llama3_70b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one_of_a_sweep, llama3_8b, "llama3_8b")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one_of_a_sweep, llama3_70b, "llama3_70b")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mfsdp
