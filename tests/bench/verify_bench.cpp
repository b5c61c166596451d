// How long it takes to prove a plan, to make its certificate and to check that.
#include <benchmark/benchmark.h>

#include <filesystem>

#include "core/base/read_file.hpp"
#include "core/model/hf_config.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/proof/certificate.hpp"
#include "verify/proof/job.hpp"

namespace mfsdp {
namespace {

Program program_of(const char* model, Mesh mesh, std::int64_t microbatches) {
  PlanConfig config;
  config.model =
      load_model(model, std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models")->shape;
  config.mesh = mesh;
  config.microbatches = microbatches;
  return *build_program(config, {});
}

void report(benchmark::State& state, const Program& program, const ProofSettings& settings = {}) {
  Proof proof;
  for (auto _ : state) {
    proof = *prove(program, settings);
    benchmark::DoNotOptimize(proof);
  }
  state.counters["ops"] = static_cast<double>(proof.ops);
  state.counters["instances"] = static_cast<double>(proof.instances);
  state.counters["ranks"] = static_cast<double>(proof.expansion.ranks);
  state.counters["findings"] = static_cast<double>(proof.findings.size());
}

void verify(benchmark::State& state, const char* model, Mesh mesh, std::int64_t microbatches) {
  report(state, program_of(model, mesh, microbatches));
}
BENCHMARK_CAPTURE(verify, llama3_8b_on_64, "llama3_8b", (data_parallel_mesh(1, 64)), 1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(verify, llama3_8b_8_microbatches, "llama3_8b", (data_parallel_mesh(1, 64)), 8)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(verify, llama3_405b_on_16384, "llama3_405b", (data_parallel_mesh(128, 128)), 8)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// 1F1B of four stages, with as many microbatches as wanted: those beyond eight are in the middle.
Job pipeline_of(std::int64_t microbatches) {
  const std::filesystem::path path =
      std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "pipeline" / "1f1b_4x8.json";
  const std::string text = read_file(path.string(), "a plan", std::size_t{1} << 26).value();
  Job job = job_from_json(text, path.string()).value();
  for (Program& program : job.programs) {
    for (Segment& segment : program.plans[0].segments)
      if (segment.name == "steady") segment.repeat += microbatches - program.config.microbatches;
    program.config.microbatches = microbatches;
  }
  return job;
}

void verify_job(benchmark::State& state, std::int64_t microbatches) {
  const Job job = pipeline_of(microbatches);
  JobProof proof;
  for (auto _ : state) {
    proof = *prove_job(job);
    benchmark::DoNotOptimize(proof);
  }
  state.counters["errors"] = static_cast<double>(has_errors(proof.findings));
}
BENCHMARK_CAPTURE(verify_job, four_stages_64_microbatches, 64)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

/// Every rank by itself.
void verify_expanded(benchmark::State& state, const char* model, Mesh mesh,
                     std::int64_t microbatches) {
  report(state, program_of(model, mesh, microbatches), {.expand_ranks = true});
}
BENCHMARK_CAPTURE(verify_expanded, llama3_8b_on_64, "llama3_8b", (data_parallel_mesh(1, 64)), 1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(verify_expanded, llama3_405b_on_16384, "llama3_405b",
                  (data_parallel_mesh(128, 128)), 8)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(2);

/// The proof is part of it.
void certify(benchmark::State& state, const char* model, Mesh mesh, std::int64_t microbatches) {
  const Program program = program_of(model, mesh, microbatches);
  std::string certificate;
  for (auto _ : state) certificate = *certificate_of(program);
  state.counters["bytes"] = static_cast<double>(certificate.size());
}
BENCHMARK_CAPTURE(certify, llama3_8b_on_64, "llama3_8b", (data_parallel_mesh(1, 64)), 1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(certify, llama3_405b_on_16384, "llama3_405b", (data_parallel_mesh(128, 128)), 8)
    ->Unit(benchmark::kMillisecond);

/// From text to verdict: reading the plan's JSON is most of it.
void check(benchmark::State& state, const char* model, Mesh mesh, std::int64_t microbatches) {
  const Program program = program_of(model, mesh, microbatches);
  const std::string plan = to_canonical_json(program);
  const std::string certificate = *certificate_of(program);
  for (auto _ : state) {
    const auto checked = check_certificate(plan, certificate);
    if (!checked) state.SkipWithError(checked.error().message().c_str());
  }
  state.SetBytesProcessed(state.iterations() * std::ssize(plan));
}
BENCHMARK_CAPTURE(check, llama3_8b_on_64, "llama3_8b", (data_parallel_mesh(1, 64)), 1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(check, llama3_405b_on_16384, "llama3_405b", (data_parallel_mesh(128, 128)), 8)
    ->Unit(benchmark::kMillisecond);

/// A plan of a million ops: a model with enough layers, and three segments of microbatches.
void verify_million(benchmark::State& state) {
  PlanConfig config;
  config.model =
      load_model("llama_nano", std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models")
          ->shape;
  config.model.layers = state.range(0);
  config.mesh.resize(Axis::dp_shard, 8);
  config.microbatches = 3;
  config.seq_len = 64;
  report(state, *build_program(config, {}));
}
BENCHMARK(verify_million)->Arg(3700)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(2);

}  // namespace
}  // namespace mfsdp
