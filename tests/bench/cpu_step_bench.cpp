// A training step of llama_tiny, 512 tokens a rank: what `mfsdp-exec` does on a CPU, and how rank
// 0's time divides among the kinds of kernels (counters in milliseconds a step).
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/model/hf_config.hpp"
#include "core/runtime/interpreter.hpp"
#include "core/runtime/rope_table.hpp"
#include "core/runtime/scalar.hpp"
#include "core/schedule/build.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"
#include "verify/cpu/machine/machine.hpp"

namespace mfsdp {
namespace {

PlanConfig llama_tiny(DType param_dtype, std::int64_t ranks) {
  PlanConfig config;
  const auto models = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models";
  config.model = load_model("llama_tiny", models)->shape;
  config.mesh = data_parallel_mesh(1, ranks);
  config.seq_len = 512;
  config.param_dtype = param_dtype;
  return config;
}

/// Values of some hundredths, as weights begin: NaN and numbers too small take their own time.
void fill_weights(const Program& program, const Interpreter& interpreter) {
  for (const Buffer& buffer : program.buffers) {
    const auto bytes = interpreter.buffer_bytes(buffer.id);
    if (!buffer.persistent || buffer.name == "gemm_workspace") continue;
    std::ranges::fill(bytes, std::byte{0});
    if (buffer.category != Category::model_weight && buffer.category != Category::main_weight)
      continue;
    for (std::size_t i = 0; i < bytes.size() / static_cast<std::size_t>(size_of(buffer.dtype));
         ++i) {
      const float value = static_cast<float>(i * 2654435761U % 1024U) / 12800.0F - 0.04F;
      if (buffer.dtype == DType::bf16)
        reinterpret_cast<Bf16*>(bytes.data())[i] = narrow<Bf16>(value);
      else
        reinterpret_cast<float*>(bytes.data())[i] = value;
    }
  }
}

void llama_tiny_step(benchmark::State& state, DType param_dtype) {
  const std::int64_t ranks = state.range(0);
  const Program program = build_program(llama_tiny(param_dtype, ranks), {}).value();
  const KernelSettings kernels{.program = &program};
  std::map<KernelKind, std::chrono::nanoseconds> spent;
  MachineSettings settings;
  settings.kernel = [&](const KernelCall& call) {
    if (call.rank != 0) return run_kernel(call, kernels);
    const auto begin = std::chrono::steady_clock::now();
    auto outcome = run_kernel(call, kernels);
    spent[call.kernel->kind] += std::chrono::steady_clock::now() - begin;
    return outcome;
  };
  Machine machine(program, settings);
  const auto host_work = [&](const BoundOp& copy, std::int64_t,
                             std::optional<Nanos>) -> Result<void> {
    const OperandView& source = copy.operands[0];
    if (source.dtype != DType::int32) return {};
    auto* ids = reinterpret_cast<std::int32_t*>(source.data);
    for (std::int64_t i = 0; i < product_of(source.shape); ++i)
      ids[i] = static_cast<std::int32_t>(i * 37 % program.config.model.vocab);
    return {};
  };
  std::vector<std::unique_ptr<Interpreter>> interpreters(static_cast<std::size_t>(ranks));
  auto ran = machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    MFSDP_LET(interpreter, Interpreter::create(program, backend, rank, host_work));
    fill_weights(program, *interpreter);
    const auto table = make_rope_table(program.config.model, program.config.seq_len);
    const auto to = std::ranges::find(program.buffers, "rope_table", &Buffer::name);
    std::ranges::copy(std::as_bytes(std::span(table)), interpreter->buffer_bytes(to->id).data());
    interpreters[static_cast<std::size_t>(rank)] = std::move(interpreter);
    return {};
  });
  for (auto _ : state) {
    if (!ran) break;
    ran = machine.run([&](std::int64_t rank, Backend&) -> Result<void> {
      MFSDP_TRY(interpreters[static_cast<std::size_t>(rank)]->run("train"));
      return interpreters[static_cast<std::size_t>(rank)]->finish();
    });
  }
  if (!ran) return state.SkipWithError(ran.error().message().c_str());
  for (const auto& [kind, time] : spent)
    state.counters[std::string(to_string(kind))] =
        static_cast<double>(time.count()) * 1e-6 / static_cast<double>(state.iterations());
}

void ranks(benchmark::internal::Benchmark* bench) {
  bench->ArgName("ranks")->Arg(1)->Arg(4)->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK_CAPTURE(llama_tiny_step, bf16, DType::bf16)->Apply(ranks);
BENCHMARK_CAPTURE(llama_tiny_step, fp32, DType::fp32)->Apply(ranks);

}  // namespace
}  // namespace mfsdp
