// GEMMs and attention at the shapes of Llama-3-8B, as Markdown tables.
//
//   products_bench [SECONDS [on|long|off]]
//
// Each row runs for SECONDS (1.0) without pause and times the second half: in training it is the
// sustained rate that counts, which the power limit sets. `first` is the algorithm that cuBLASLt's
// heuristics put first, `timed` the one that GemmPlanner chose by time, by --gemm-search on or
// long; with `off` attention alone runs. `burst` is the median of ten runs of a GPU that has just
// rested.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "gpu_backend/cuda/gemm_cache.hpp"
#include "tests/bench/cuda/llama_kernels.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kWorkspaceBytes = 32 << 20;

GemmAlgorithm algorithm_of(const GemmPlanner& planner, const GemmShape& shape) {
  for (const GemmAlgorithm& algorithm : planner.chosen())
    if (algorithm.shape == shape) return algorithm;
  return {};
}

void bench_gemm(Timer& timer, double seconds, const GemmSettings& search) {
  fmt::print(
      "| product | m | n | k | first ms | TFLOP/s | timed ms | TFLOP/s | gain | workspace |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  auto first = require(GemmPlanner::create({}));
  auto timed = require(GemmPlanner::create(search));
  DeviceArray<std::uint8_t> workspace(kWorkspaceBytes);
  double choosing = 0;
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{8192, 6144, 4096},
                                {8192, 4096, 4096},
                                {8192, 28672, 4096},
                                {8192, 4096, 14336},
                                {1024, 128256, 4096}}) {
    DeviceArray<Bf16> tokens_in(m * k);
    DeviceArray<Bf16> tokens_out(m * n);
    DeviceArray<Bf16> weight(n * k);
    DeviceArray<float> result(std::max({m * n, m * k, n * k}));
    fill(tokens_in, 1);
    fill(tokens_out, 1);
    fill(weight, 0.02F);
    for (const Product& product : products(m, n, k)) {
      const bool is_forward = product.shape.b_transposed;
      const bool is_wgrad = product.shape.a_transposed;
      const GemmMemory memory{.a = is_forward ? tokens_in.data() : tokens_out.data(),
                              .b = is_wgrad ? tokens_in.data() : weight.data(),
                              .c = result.data(),
                              .workspace = workspace.as_bytes()};
      const auto begin = std::chrono::steady_clock::now();
      require(timed.prepare(product.shape, memory, nullptr));
      choosing += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      require(first.prepare(product.shape, memory, nullptr));
      const auto rate = [&](const GemmPlanner& planner) {
        return timer.sustained(seconds / 2,
                               [&] { require(planner.run(product.shape, memory, nullptr)); });
      };
      const double flops = 2e-9 * static_cast<double>(m) * static_cast<double>(n * k);
      const GemmAlgorithm taken = algorithm_of(timed, product.shape);
      if (taken.bytes == algorithm_of(first, product.shape).bytes) {
        const double a = rate(first);
        fmt::print("| {} | {} | {} | {} | {:.4f} | {:.0f} | the same | | | {} |\n", product.name, m,
                   n, k, a, flops / a, taken.workspace_bytes);
        std::fflush(stdout);
        continue;
      }
      // There and back, as the GPU warms up.
      double a = rate(first);
      const double b = (rate(timed) + rate(timed)) / 2;
      a = (a + rate(first)) / 2;
      fmt::print("| {} | {} | {} | {} | {:.4f} | {:.0f} | {:.4f} | {:.0f} | {:+.1f} % | {} |\n",
                 product.name, m, n, k, a, flops / a, b, flops / b, 100 * (a / b - 1),
                 taken.workspace_bytes);
      std::fflush(stdout);
    }
  }
  fmt::print("\nChoosing took {:.1f} s.\n\n", choosing);
}

void bench_attention(Timer& timer, double seconds, AttentionKernels which) {
  auto planner = require(AttentionPlanner::create(which));
  fmt::print(
      "| attention by {} | B | S | heads | head_dim | burst ms | TFLOP/s | sustained ms | TFLOP/s "
      "|\n"
      "|---|---|---|---|---|---|---|---|---|\n",
      which == AttentionKernels::library ? "cuDNN" : "warpgroups");
  struct Shape {
    std::int64_t batch = 1;
    std::int64_t seq = 0;
    std::int64_t heads = 32;
    std::int64_t key_heads = 8;
    std::int64_t head_dim = 128;
  };
  for (const Shape& s : {Shape{8, 1024},
                         Shape{1, 1024},
                         Shape{1, 1536},
                         Shape{2, 1536},
                         Shape{4, 2048},
                         Shape{1, 2048},
                         Shape{1, 3072},
                         Shape{1, 3072, 24, 8},
                         Shape{2, 4096},
                         Shape{1, 4096},
                         Shape{1, 5120},
                         Shape{1, 8192},
                         Shape{2, 8192},
                         Shape{1, 16384},
                         Shape{1, 32768},
                         Shape{1, 3072, 28, 4},
                         Shape{1, 8192, 28, 4},
                         Shape{1, 4096, 64, 8},
                         Shape{1, 8192, 32, 8, 64},
                         Shape{2, 8192, 32, 8, 64},
                         Shape{1, 2048, 32, 8, 64}}) {
    LlamaAttention attention(s.seq, s.batch, s.heads, s.key_heads, s.head_dim);
    const auto row = [&](const char* name, double products, const Launch& launch) {
      const double flops = products * attention.product_flops();
      const auto run = [&] { require(launch()); };
      const double burst = timer.burst(run);
      const double sustained = timer.sustained(seconds, run);
      fmt::print("| {} | {} | {} | {}, {} | {} | {:.4f} | {:.0f} | {:.4f} | {:.0f} |\n", name,
                 s.batch, s.seq, s.heads, s.key_heads, s.head_dim, burst, flops / burst * 1e-9,
                 sustained, flops / sustained * 1e-9);
      std::fflush(stdout);
    };
    row("forward", 1, require(planner.bind(attention.forward(), nullptr)));
    row("backward", 2.5, require(planner.bind(attention.backward(false), nullptr)));
    if (which == AttentionKernels::library && s.batch == 1 && s.seq <= 8192)
      row("backward, deterministic", 2.5, require(planner.bind(attention.backward(true), nullptr)));
  }
  fmt::print("\n");
}

void bench(double seconds, std::string_view search) {
  const GemmMachine machine = require(this_machine());
  fmt::print("{}, cuBLASLt {}, cuDNN {}\n\n", machine.gpu, machine.cublaslt, cudnnGetVersion());
  Timer timer;
  for (const AttentionKernels which : {AttentionKernels::warpgroups, AttentionKernels::library})
    bench_attention(timer, seconds, which);
  if (search != "off") bench_gemm(timer, seconds, search == "long" ? kLongSearch : kSearch);
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) {
  mfsdp::cuda::bench(argc > 1 ? std::atof(argv[1]) : 1.0, argc > 2 ? argv[2] : "on");
}
