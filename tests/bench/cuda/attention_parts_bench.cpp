// Attention of ranks that share sequences, as CSV on standard output: queries of two chunks of a
// sequence, keys of all ranks (all_gather) or of one (a step of a ring).
//
//   attention_parts_bench [QUERIES ...]
//
// Random numbers, bf16, one sequence, 32 query heads over 8 key heads of 128. Times are medians of
// ten calls without pause, in milliseconds. TFLOP/s count the pairs of a query and a key that it
// sees: two GEMMs forward, five backward. `whole` is attention of a sequence of QUERIES tokens by
// the kernels of whole sequences.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "gpu_backend/cuda/kernels/warpgroup_attention.hpp"
#include "gpu_backend/cuda/warpgroup_attention.hpp"
#include "tests/bench/cuda/llama_kernels.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::AttentionShape;

constexpr std::int64_t kHeads = 32;
constexpr std::int64_t kKeyHeads = 8;
constexpr std::int64_t kDim = 128;

double median(Timer& timer, const Launch& launch) {
  const auto run = [&] { require(launch()); };
  timer.time(3, run);
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) times.push_back(timer.time(1, run));
  std::ranges::nth_element(times, times.begin() + 5);
  return times[5];
}

double pairs_of(const AttentionShape& s) {
  double pairs = 0;
  for (std::int64_t row = 0; row < s.queries(); ++row) {
    const std::int64_t place = s.place(row);
    pairs += static_cast<double>(s.keys_before(place + 1) - s.keys_before(s.first_seen(0, place)));
  }
  return pairs;
}

/// The memory of a call, which reads random numbers.
class PartCall {
 public:
  explicit PartCall(const AttentionShape& shape)
      : s_(shape),
        query_(s_.queries() * kHeads * kDim),
        keys_(s_.keys() * 2 * kKeyHeads * kDim),
        output_(s_.queries() * kHeads * kDim),
        d_output_(s_.queries() * kHeads * kDim),
        d_query_(s_.queries() * kHeads * kDim),
        d_keys_(s_.keys() * 2 * kKeyHeads * kDim),
        log_sum_exp_(s_.queries() * kHeads),
        d_query_sum_(s_.queries() * kHeads * kDim),
        row_sums_(s_.queries() * kHeads),
        workspace_(std::max<std::int64_t>(warpgroup_backward_workspace(s_), 256)) {
    for (DeviceArray<Bf16>* array : {&query_, &keys_, &output_, &d_output_}) fill(*array, 1);
  }

  [[nodiscard]] kernels::AttentionForward<Bf16> forward() const {
    const Bf16* const queries = query_.data();
    const Bf16* const columns = keys_.data();
    return {.shape = s_,
            .query = of_queries(queries),
            .key = of_keys(columns, 0),
            .value = of_keys(columns, kKeyHeads),
            .output = of_queries(output_.data()),
            .log_sum_exp = log_sum_exp_.data(),
            .workspace = workspace_.as_bytes()};
  }
  [[nodiscard]] kernels::AttentionBackward<Bf16> backward() const {
    const kernels::AttentionForward<Bf16> f = forward();
    const Bf16* const made = output_.data();
    const Bf16* const d_made = d_output_.data();
    return {.shape = s_,
            .query = f.query,
            .key = f.key,
            .value = f.value,
            .output = of_queries(made),
            .d_output = of_queries(d_made),
            .log_sum_exp = log_sum_exp_.data(),
            .d_query = of_queries(d_query_.data()),
            .d_key = of_keys(d_keys_.data(), 0),
            .d_value = of_keys(d_keys_.data(), kKeyHeads),
            .d_query_sum = d_query_sum_.data(),
            .row_sums = row_sums_.data(),
            .workspace = workspace_.as_bytes()};
  }

 private:
  template <class T>
  [[nodiscard]] kernels::HeadView<T> of_queries(T* data) const {
    return heads(data, s_.queries(), kDim, kHeads * kDim, 0);
  }
  template <class T>
  [[nodiscard]] kernels::HeadView<T> of_keys(T* data, std::int64_t first) const {
    return heads(data, s_.keys(), kDim, 2 * kKeyHeads * kDim, first);
  }

  AttentionShape s_;
  DeviceArray<Bf16> query_, keys_, output_, d_output_, d_query_, d_keys_;
  DeviceArray<float> log_sum_exp_, d_query_sum_, row_sums_;
  DeviceArray<std::uint8_t> workspace_;
};

class PartsBench {
 public:
  PartsBench() : planner_(require(AttentionPlanner::create(AttentionKernels::warpgroups))) {
    fmt::print(
        "kind,parts,part,shift,sequence,window,queries,keys,pairs,forward_ms,backward_ms,"
        "forward_tflops,backward_tflops\n");
  }

  void run(const char* kind, const AttentionShape& s) {
    const PartCall call(s);
    const auto forward = call.forward();
    const auto backward = call.backward();
    if (!(require(warpgroups_take(forward)) && require(warpgroups_take(backward)))) return;
    // In this order, because the backward reads what the forward writes.
    const double forward_ms = median(timer_, require(planner_.bind(forward, nullptr)));
    const double backward_ms = median(timer_, require(planner_.bind(backward, nullptr)));
    const double pairs = pairs_of(s);
    const double flops = 2e-9 * static_cast<double>(kHeads * kDim) * pairs;  // for milliseconds
    fmt::print("{},{},{},{},{},{},{},{},{:.0f},{:.4f},{:.4f},{:.1f},{:.1f}\n", kind, s.share.parts,
               s.share.part, s.shift, s.seq_len, s.window, s.queries(), s.keys(), pairs, forward_ms,
               backward_ms, 2 * flops / forward_ms, 5 * flops / backward_ms);
    std::fflush(stdout);
  }

 private:
  Timer timer_;
  AttentionPlanner planner_;
};

AttentionShape shape_of(std::int64_t seq, std::int64_t parts, std::int64_t part) {
  return {.batch = 1,
          .heads = kHeads,
          .kv_heads = kKeyHeads,
          .seq_len = seq,
          .head_dim = kDim,
          .share = {.parts = parts, .part = part, .is_part = parts > 1}};
}

void bench_parts(const std::vector<std::int64_t>& all) {
  PartsBench bench;
  for (const std::int64_t queries : all) {
    bench.run("whole", shape_of(queries, 1, 0));
    for (const std::int64_t parts : {2, 4, 8})
      for (const std::int64_t part : {std::int64_t{0}, parts - 1}) {
        AttentionShape shape = shape_of(queries * parts, parts, part);
        bench.run("all_gather", shape);
        if (parts > 2 || part > 0) continue;
        shape.window = 4096;
        bench.run("all_gather", shape);
      }
    AttentionShape step = shape_of(2 * queries, 2, 0);
    step.key_parts = 1;
    bench.run("ring own keys", step);
    step.shift = 1;
    bench.run("ring later keys", step);
    step.share.part = 1;
    bench.run("ring earlier keys", step);
  }
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) {
  std::vector<std::int64_t> queries;
  for (int i = 1; i < argc; ++i) queries.push_back(std::atoll(argv[i]));
  if (queries.empty()) queries = {2048, 4096, 8192, 16384, 32768};
  mfsdp::cuda::bench_parts(queries);
}
