// Newton and Schulz on each matrix of a block of Llama-3-8B and of OLMo-2-1B, as a Markdown table:
// time, FLOP/s of the Gram form, and the FLOPs of the plain form divided by the same time. Then the
// same kernels as one CUDA graph, between which the GPU waits less.
//
//   orthogonal_bench
//
// Algorithms of GEMMs are timed before; a figure is the median of seven runs.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

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
using Block = std::vector<Matrix>;
const std::array kBlocks{Block{{"q_proj, o_proj", 4096, 4096, 2},
                               {"k_proj, v_proj", 1024, 4096, 2},
                               {"gate_proj, up_proj", 14336, 4096, 2},
                               {"down_proj", 4096, 14336, 1}},
                         Block{{"q, k, v and o_proj", 2048, 2048, 4},
                               {"gate_proj, up_proj", 8192, 2048, 2},
                               {"down_proj", 2048, 8192, 1}}};
constexpr int kRuns = 7;

/// The times of one call.
struct Times {
  double milliseconds = 0;
  double graphed = 0;  ///< as one CUDA graph
  std::size_t kernels = 0;
};

void require_runs(const Result<void>& launch) {
  if (launch) return;
  std::fprintf(stderr, "orthogonal_bench: %s\n", launch.error().message().c_str());
  std::exit(3);
}

/// Milliseconds, the median.
template <class Run>
double time_of(cudaStream_t stream, const Run& run) {
  std::array<cudaEvent_t, 2> events{};
  for (cudaEvent_t& event : events) require(cudaEventCreate(&event));
  std::array<float, kRuns> times{};
  run();
  for (float& time : times) {
    require(cudaEventRecord(events[0], stream));
    run();
    require(cudaEventRecord(events[1], stream));
    require(cudaEventSynchronize(events[1]));
    require(cudaEventElapsedTime(&time, events[0], events[1]));
  }
  for (cudaEvent_t event : events) require(cudaEventDestroy(event));
  std::ranges::sort(times);
  return times[kRuns / 2];
}

Times times_of(GemmPlanner& planner, const Matrix& matrix, cudaStream_t stream) {
  const DeviceArray<Bf16> values(random_values<Bf16>(matrix.rows * matrix.cols, 3));
  const DeviceArray<std::byte> workspace(
      newton_schulz_workspace_of(matrix.rows, matrix.cols, 2).bytes);
  const kernels::NewtonSchulz<Bf16> k{.rows = matrix.rows,
                                      .cols = matrix.cols,
                                      .matrix = values.data(),
                                      .workspace = workspace.as_bytes()};
  require_runs(prepare(planner, k, stream));
  Times times{.milliseconds = time_of(stream, [&] { require_runs(run(planner, k, stream)); })};
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  require_runs(run(planner, k, stream));
  require(cudaStreamEndCapture(stream, &graph));
  require(cudaGraphGetNodes(graph, nullptr, &times.kernels));
  require(cudaGraphInstantiate(&ready, graph, 0));
  times.graphed = time_of(stream, [&] { require(cudaGraphLaunch(ready, stream)); });
  require(cudaGraphExecDestroy(ready));
  require(cudaGraphDestroy(graph));
  return times;
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
  cudaStream_t stream = nullptr;
  require(cudaStreamCreate(&stream));
  std::printf("%s\n", device.name);
  for (const Block& block : kBlocks) {
    std::printf(
        "\n| matrix | rows | cols | ms | TFLOP/s | of the plain form | as a graph, ms | kernels |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|\n");
    double of_block = 0;
    for (const Matrix& matrix : block) {
      const Times times = times_of(planner, matrix, stream);
      const double ms = times.milliseconds;
      const auto m = static_cast<double>(std::min(matrix.rows, matrix.cols));
      const auto n = static_cast<double>(std::max(matrix.rows, matrix.cols));
      const double plain = 5 * (4 * m * m * n + 2 * m * m * m);
      const auto flops = static_cast<double>(newton_schulz_flops(matrix.rows, matrix.cols));
      std::printf("| %s | %lld | %lld | %.3f | %.0f | %.0f | %.3f | %zu |\n", matrix.name,
                  static_cast<long long>(matrix.rows), static_cast<long long>(matrix.cols), ms,
                  flops / ms / 1e9, plain / ms / 1e9, times.graphed, times.kernels);
      of_block += ms * matrix.in_block;
    }
    std::printf("\na block: %.2f ms\n", of_block);
  }
  require(cudaStreamDestroy(stream));
  return 0;
}

}  // namespace
}  // namespace mfsdp::cuda

int main() { return mfsdp::cuda::run_all(); }
