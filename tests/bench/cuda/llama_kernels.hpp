// The large kernels of a block of Llama-3-8B on one GPU, for benchmarks: its GEMMs and its
// attention, on random numbers.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu_backend/cuda/attention.hpp"
#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/gemm.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {

/// A benchmark goes on with what it asked for, or ends.
template <class T>
T require(Result<T> result) {
  if (result) {
    if constexpr (std::is_void_v<T>)
      return;
    else
      return std::move(*result);
  }
  std::fprintf(stderr, "benchmark: %s\n", result.error().message().c_str());
  std::exit(3);
}

/// Normal random numbers; one block of them again and again.
inline DeviceArray<Bf16>& fill(DeviceArray<Bf16>& array, float deviation) {
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

/// The GEMMs of a linear layer with m tokens, n outputs and k inputs.
inline std::vector<Product> products(std::int64_t m, std::int64_t n, std::int64_t k) {
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

template <class T>
kernels::HeadView<T> heads(T* data, std::int64_t seq, std::int64_t dim, std::int64_t row,
                           std::int64_t first) {
  return {data + first * dim, seq * row, dim, row};
}

/// Sequences of `seq` tokens: query heads over key heads, Llama-3-8B's by default, packed as
/// the block has them.
class LlamaAttention {
 public:
  explicit LlamaAttention(std::int64_t seq, std::int64_t batch = 1, std::int64_t query_heads = 32,
                          std::int64_t key_heads = 8, std::int64_t head_dim = 128)
      : seq_(seq),
        batch_(batch),
        heads_(query_heads),
        key_heads_(key_heads),
        dim_(head_dim),
        qkv_(batch * seq * row()),
        d_qkv_(batch * seq * row()),
        output_(batch * seq * width()),
        d_output_(batch * seq * width()),
        log_sum_exp_(batch * seq * heads_),
        row_sums_(batch * seq * heads_),
        d_query_sum_(batch * seq * width()),
        forward_workspace_(kAttentionWorkspaceBytes),
        backward_workspace_(1) {
    fill(qkv_, 1);
    fill(d_output_, 1);
  }

  /// FLOPs of one GEMM of attention without a mask. The causal mask halves each: forward has two of
  /// them, backward five.
  [[nodiscard]] double product_flops() const {
    return 2.0 * static_cast<double>(batch_ * seq_) * static_cast<double>(seq_ * width());
  }

  [[nodiscard]] kernels::AttentionForward<Bf16> forward() {
    const Bf16* const packed = qkv_.data();
    return {.shape = {batch_, heads_, key_heads_, seq_, dim_},
            .query = heads(packed, seq_, dim_, row(), 0),
            .key = heads(packed, seq_, dim_, row(), heads_),
            .value = heads(packed, seq_, dim_, row(), heads_ + key_heads_),
            .output = heads(output_.data(), seq_, dim_, width(), 0),
            .log_sum_exp = log_sum_exp_.data(),
            .workspace = forward_workspace_.as_bytes()};
  }

  /// Its workspace is good until the next call of this.
  [[nodiscard]] kernels::AttentionBackward<Bf16> backward(bool deterministic) {
    const kernels::AttentionForward<Bf16> of = forward();
    kernels::AttentionBackward<Bf16> call{
        .shape = of.shape,
        .query = of.query,
        .key = of.key,
        .value = of.value,
        .output = heads<const Bf16>(output_.data(), seq_, dim_, width(), 0),
        .d_output = heads<const Bf16>(d_output_.data(), seq_, dim_, width(), 0),
        .log_sum_exp = log_sum_exp_.data(),
        .d_query = heads(d_qkv_.data(), seq_, dim_, row(), 0),
        .d_key = heads(d_qkv_.data(), seq_, dim_, row(), heads_),
        .d_value = heads(d_qkv_.data(), seq_, dim_, row(), heads_ + key_heads_),
        .deterministic = deterministic,
        .d_query_sum = d_query_sum_.data(),
        .row_sums = row_sums_.data()};
    backward_workspace_.resize(attention_backward_workspace(layout_of(call)));
    call.workspace = backward_workspace_.as_bytes();
    return call;
  }

 private:
  [[nodiscard]] std::int64_t width() const { return heads_ * dim_; }
  [[nodiscard]] std::int64_t row() const { return width() + 2 * key_heads_ * dim_; }

  std::int64_t seq_, batch_, heads_, key_heads_, dim_;
  DeviceArray<Bf16> qkv_, d_qkv_, output_, d_output_;
  DeviceArray<float> log_sum_exp_, row_sums_, d_query_sum_;
  DeviceArray<std::uint8_t> forward_workspace_, backward_workspace_;
};

}  // namespace mfsdp::cuda
