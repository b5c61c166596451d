// GEMMs on the CPU through the kernels' entry, at the sizes of small models.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp {
namespace {

/// output[m, n] = input[m, k] weight[n, k]^T.
void forward_gemm(benchmark::State& state, DType dtype) {
  const std::int64_t m = state.range(0);
  const std::int64_t n = state.range(1);
  const std::int64_t k = state.range(2);
  Kernel kernel;
  kernel.kind = KernelKind::gemm;
  kernel.attributes = {{"beta", 0}, {"k", k}, {"kind", 0}, {"m", m}, {"n", n}};
  const std::vector<std::vector<std::int64_t>> shapes = {{m, k}, {n, k}, {m, n}, {32 << 20}};
  const std::vector<std::vector<std::int64_t>> strides = {{k, 1}, {k, 1}, {n, 1}, {1}};
  const std::array roles{"input", "weight", "output", "workspace"};
  std::vector<std::vector<std::byte>> memory;
  std::vector<OperandView> views;
  for (std::size_t i = 0; i < 4; ++i) {
    const DType type = i == 3 ? DType::uint8 : dtype;
    memory.emplace_back(static_cast<std::size_t>(product_of(shapes[i]) * size_of(type)));
    views.push_back({.role = roles[i],
                     .access = i < 2 ? Access::read : Access::write,
                     .data = memory.back().data(),
                     .dtype = type,
                     .shape = shapes[i],
                     .strides = strides[i]});
  }
  const Program program;
  const KernelSettings settings{.program = &program};
  const KernelCall call{.kernel = &kernel, .operands = views};
  for (auto _ : state)
    if (!run_kernel(call, settings)) return state.SkipWithError("the kernel refused");
  state.counters["flops"] = benchmark::Counter(static_cast<double>(2 * m * n * k),
                                               benchmark::Counter::kIsIterationInvariantRate);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({1, 1, 1});         // the entry itself
  bench->Args({64, 64, 32});      // llama_nano: qkv of 64 tokens
  bench->Args({64, 192, 32});     // its gate and up
  bench->Args({512, 1280, 256});  // llama_tiny: gate and up of 512 tokens
}

BENCHMARK_CAPTURE(forward_gemm, bf16, DType::bf16)->Apply(sizes);
BENCHMARK_CAPTURE(forward_gemm, fp32, DType::fp32)->Apply(sizes);

}  // namespace
}  // namespace mfsdp
