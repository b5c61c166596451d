// Newton and Schulz on each matrix of a block of Llama-3-8B, as a Markdown table: time,
// FLOP/s of the Gram form, and the FLOPs of the plain form divided by the same time.
//
//   orthogonal_bench
//
// Algorithms of GEMMs are timed before; a figure is the median of seven runs.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "core/plan/newton_schulz.hpp"
#include "gpu_backend/cuda/newton_schulz.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {
namespace {

struct Matrix {
  const char* name;
  std::int64_t rows;
  std::int64_t cols;
  int in_block;
};
constexpr std::array kMatrices{
    Matrix{"q_proj, o_proj", 4096, 4096, 2}, Matrix{"k_proj, v_proj", 1024, 4096, 2},
    Matrix{"gate_proj, up_proj", 14336, 4096, 2}, Matrix{"down_proj", 4096, 14336, 1}};

void require_runs(const Result<void>& launch) {
  if (launch) return;
  std::fprintf(stderr, "orthogonal_bench: %s\n", launch.error().message().c_str());
  std::exit(3);
}

/// Milliseconds of one run.
double time_of(GemmPlanner& planner, const Matrix& matrix) {
  const DeviceArray<Bf16> values(random_values<Bf16>(matrix.rows * matrix.cols, 3));
  const DeviceArray<std::byte> workspace(
      newton_schulz_workspace_of(matrix.rows, matrix.cols, 2).bytes);
  const kernels::NewtonSchulz<Bf16> k{.rows = matrix.rows,
                                      .cols = matrix.cols,
                                      .matrix = values.data(),
                                      .workspace = workspace.as_bytes()};
  require_runs(prepare(planner, k, nullptr));
  std::array<cudaEvent_t, 2> events{};
  for (cudaEvent_t& event : events) require(cudaEventCreate(&event));
  constexpr int kRuns = 7;
  std::array<float, kRuns> times{};
  require_runs(run(planner, k, nullptr));
  for (float& time : times) {
    require(cudaEventRecord(events[0]));
    require_runs(run(planner, k, nullptr));
    require(cudaEventRecord(events[1]));
    require(cudaEventSynchronize(events[1]));
    require(cudaEventElapsedTime(&time, events[0], events[1]));
  }
  for (cudaEvent_t event : events) require(cudaEventDestroy(event));
  std::ranges::sort(times);
  return times[kRuns / 2];
}

int run_all() {
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) {
    std::puts("no CUDA device: skipped");
    return 77;
  }
  GemmPlanner planner =
      GemmPlanner::create({.candidates = 8, .timed_rounds = 3, .sustained_milliseconds = 20})
          .value();
  std::printf(
      "%s\n\n| matrix | rows | cols | ms | TFLOP/s | of the plain form "
      "|\n|---|---|---|---|---|---|\n",
      device.name);
  double block = 0;
  for (const Matrix& matrix : kMatrices) {
    const double ms = time_of(planner, matrix);
    const auto m = static_cast<double>(std::min(matrix.rows, matrix.cols));
    const auto n = static_cast<double>(std::max(matrix.rows, matrix.cols));
    const double plain = 5 * (4 * m * m * n + 2 * m * m * m);
    const auto flops = static_cast<double>(newton_schulz_flops(matrix.rows, matrix.cols));
    std::printf("| %s | %lld | %lld | %.3f | %.0f | %.0f |\n", matrix.name,
                static_cast<long long>(matrix.rows), static_cast<long long>(matrix.cols), ms,
                flops / ms / 1e9, plain / ms / 1e9);
    block += ms * matrix.in_block;
  }
  std::printf("\na block: %.2f ms\n", block);
  return 0;
}

}  // namespace
}  // namespace mfsdp::cuda

int main() { return mfsdp::cuda::run_all(); }
