// Matrix products and attention at the shapes of Llama-3-8B, as Markdown tables.
//
//   products_bench [SECONDS]
//
// Each row runs for SECONDS (1.0) without pause and times the second half: in training it is the
// sustained rate that counts, which the power limit sets. `first` is the algorithm that cuBLASLt's
// heuristics put first, `timed` the one that GemmPlanner chose by time. `burst` is the median of
// ten runs of a GPU that has just rested.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "gpu_backend/cuda/attention.hpp"
#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/gemm.hpp"
#include "gpu_backend/cuda/gemm_cache.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kWorkspaceBytes = 32 << 20;
constexpr int kCandidates = 16;
constexpr int kRounds = 7;
constexpr int kSustained = 300;

template <class T>
T require(Result<T> result) {
  if (result) {
    if constexpr (std::is_void_v<T>)
      return;
    else
      return std::move(*result);
  }
  std::fprintf(stderr, "products_bench: %s\n", result.error().message().c_str());
  std::exit(3);
}

/// Normal random numbers; one block of them again and again.
DeviceArray<Bf16>& fill(DeviceArray<Bf16>& array, float deviation) {
  const std::vector<Bf16> block = random_values<Bf16>(1 << 20, 7, deviation);
  const std::span<std::byte> bytes = array.as_bytes();
  for (std::size_t at = 0; at < bytes.size(); at += block.size() * sizeof(Bf16)) {
    const std::size_t size = std::min(bytes.size() - at, block.size() * sizeof(Bf16));
    require(check(cudaMemcpy(bytes.data() + at, block.data(), size, cudaMemcpyDefault), "copy"));
  }
  return array;
}

class Timer {
 public:
  Timer() {
    require(check(cudaEventCreate(&begin_), "cudaEventCreate"));
    require(check(cudaEventCreate(&end_), "cudaEventCreate"));
  }
  /// Milliseconds of one of `runs`.
  double time(int runs, const std::function<void()>& run) {
    require(check(cudaEventRecord(begin_), "cudaEventRecord"));
    for (int i = 0; i < runs; ++i) run();
    require(check(cudaEventRecord(end_), "cudaEventRecord"));
    require(check(cudaEventSynchronize(end_), "cudaEventSynchronize"));
    float milliseconds = 0;
    require(check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime"));
    return milliseconds / static_cast<double>(runs);
  }
  double sustained(double seconds, const std::function<void()>& run) {
    const double first = time(3, run);
    const int half = std::max(3, static_cast<int>(seconds * 500 / first));
    time(half, run);
    return time(half, run);
  }
  double burst(const std::function<void()>& run) {
    time(3, run);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    std::vector<double> times;
    for (int i = 0; i < 10; ++i) times.push_back(time(1, run));
    std::ranges::nth_element(times, times.begin() + 5);
    return times[5];
  }

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

struct Product {
  const char* name;
  GemmShape shape;
};

/// The products of a linear layer with m tokens, n outputs and k inputs.
std::vector<Product> products(std::int64_t m, std::int64_t n, std::int64_t k) {
  const GemmShape forward{.rows = m,
                          .cols = n,
                          .inner = k,
                          .a_row = k,
                          .b_row = k,
                          .b_transposed = true,
                          .alignment = 256};
  const GemmShape dgrad{.rows = m, .cols = k, .inner = n, .a_row = n, .b_row = k, .alignment = 256};
  GemmShape wgrad{.rows = n,
                  .cols = k,
                  .inner = m,
                  .a_row = n,
                  .b_row = k,
                  .a_transposed = true,
                  .alignment = 256};
  std::vector<Product> list{{"fwd", forward}, {"dgrad", dgrad}, {"wgrad bf16", wgrad}};
  wgrad.result = DType::fp32;
  list.push_back({"wgrad fp32", wgrad});
  wgrad.adds = true;
  list.push_back({"wgrad fp32 +=", wgrad});
  return list;
}

GemmAlgorithm algorithm_of(const GemmPlanner& planner, const GemmShape& shape) {
  for (const GemmAlgorithm& algorithm : planner.chosen())
    if (algorithm.shape == shape) return algorithm;
  return {};
}

void bench_gemm(Timer& timer, double seconds) {
  fmt::print(
      "| product | m | n | k | first ms | TFLOP/s | timed ms | TFLOP/s | gain | workspace |\n"
      "|---|---|---|---|---|---|---|---|---|---|\n");
  auto first = require(GemmPlanner::create({}));
  auto timed = require(GemmPlanner::create(
      {.candidates = kCandidates, .timed_rounds = kRounds, .sustained_milliseconds = kSustained}));
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

template <class T>
kernels::HeadView<T> heads(T* data, std::int64_t seq, std::int64_t dim, std::int64_t row,
                           std::int64_t first) {
  return {data + first * dim, seq * row, dim, row};
}

void bench_attention(Timer& timer, double seconds) {
  auto planner = require(AttentionPlanner::create());
  fmt::print(
      "| attention | S | burst ms | TFLOP/s | sustained ms | TFLOP/s | workspace |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const std::int64_t s : {2048, 4096, 8192}) {
    constexpr std::int64_t kHeads = 32;
    constexpr std::int64_t kKeyHeads = 8;
    constexpr std::int64_t kDim = 128;
    constexpr std::int64_t kWidth = kHeads * kDim;
    constexpr std::int64_t kRow = kWidth + 2 * kKeyHeads * kDim;
    DeviceArray<Bf16> qkv(s * kRow);
    DeviceArray<Bf16> d_qkv(s * kRow);
    DeviceArray<Bf16> output(s * kWidth);
    DeviceArray<Bf16> d_output(s * kWidth);
    DeviceArray<float> log_sum_exp(s * kHeads);
    DeviceArray<float> row_sums(s * kHeads);
    DeviceArray<float> d_query_sum(s * kWidth);
    fill(qkv, 1);
    fill(d_output, 1);
    // A causal product is half a product.
    const double flops = 2e-9 * static_cast<double>(s) * static_cast<double>(s) * kWidth;
    const auto row = [&](const char* name, double products, std::size_t bytes, const auto& run) {
      const double burst = timer.burst(run);
      const double sustained = timer.sustained(seconds, run);
      fmt::print("| {} | {} | {:.3f} | {:.0f} | {:.3f} | {:.0f} | {} |\n", name, s, burst,
                 products * flops / burst, sustained, products * flops / sustained, bytes);
      std::fflush(stdout);
    };
    DeviceArray<std::uint8_t> workspace(kAttentionWorkspaceBytes);
    const Bf16* const packed = qkv.data();
    const kernels::AttentionForward<Bf16> forward{
        .shape = {1, kHeads, kKeyHeads, s, kDim},
        .query = heads(packed, s, kDim, kRow, 0),
        .key = heads(packed, s, kDim, kRow, kHeads),
        .value = heads(packed, s, kDim, kRow, kHeads + kKeyHeads),
        .output = heads(output.data(), s, kDim, kWidth, 0),
        .log_sum_exp = log_sum_exp.data(),
        .workspace = workspace.as_bytes()};
    require(planner.prepare(forward));
    row("forward", 1, forward.workspace.size(), [&] { require(planner.run(forward, nullptr)); });
    for (const bool deterministic : {false, true}) {
      kernels::AttentionBackward<Bf16> backward{
          .shape = forward.shape,
          .query = forward.query,
          .key = forward.key,
          .value = forward.value,
          .output = heads<const Bf16>(output.data(), s, kDim, kWidth, 0),
          .d_output = heads<const Bf16>(d_output.data(), s, kDim, kWidth, 0),
          .log_sum_exp = log_sum_exp.data(),
          .d_query = heads(d_qkv.data(), s, kDim, kRow, 0),
          .d_key = heads(d_qkv.data(), s, kDim, kRow, kHeads),
          .d_value = heads(d_qkv.data(), s, kDim, kRow, kHeads + kKeyHeads),
          .deterministic = deterministic,
          .d_query_sum = d_query_sum.data(),
          .row_sums = row_sums.data()};
      workspace.resize(attention_backward_workspace(layout_of(backward)));
      backward.workspace = workspace.as_bytes();
      require(planner.prepare(backward));
      row(deterministic ? "backward, deterministic" : "backward", 2.5, backward.workspace.size(),
          [&] { require(planner.run(backward, nullptr)); });
    }
  }
}

void bench(double seconds) {
  const GemmMachine machine = require(this_machine());
  fmt::print("{}, cuBLASLt {}, cuDNN {}\n\n", machine.gpu, machine.cublaslt, cudnnGetVersion());
  Timer timer;
  bench_attention(timer, seconds);
  fmt::print("\n");
  bench_gemm(timer, seconds);
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) { mfsdp::cuda::bench(argc > 1 ? std::atof(argv[1]) : 1.0); }
