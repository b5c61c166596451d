// Kernels of experts at the shapes of Qwen3-30B-A3B and Mixtral-8x7B (8192 tokens), as Markdown
// tables.
//
//   experts_bench [NAME]     only models and kernels whose name contains NAME
//   experts_bench --table    sustained GEMMs of many models as CSV, for sim/cost/grouped: the rows
//                            of scenarios/gpus/tables/h200_grouped_warpgroups.csv
//
// GEMMs: TFLOP/s of each version, with rows spread at random over the experts, and by a Zipf law
// of exponent 1; beside them cuBLASLt's GEMM of one matrix with as many rows. Others: GB/s of the
// bytes that must be read and written. A figure is the median of five runs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/gemm.hpp"
#include "gpu_backend/cuda/grouped_products.hpp"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kTokens = 8192;
constexpr std::int64_t kWorkspaceBytes = 32 << 20;
constexpr int kRuns = 5;
constexpr double kRunMilliseconds = 12;
constexpr double kSustainedMilliseconds = 150;  // of each half; the first one warms up

struct Model {
  const char* name;
  std::int64_t hidden, inner, experts, top_k;
};
constexpr std::array kModels{Model{"qwen3-30b-a3b", 2048, 768, 128, 8},
                             Model{"mixtral-8x7b", 4096, 14336, 8, 2}};
/// As many experts as one rank has: those of DeepSeek-V3 on eight ranks.
constexpr std::array kTableModels{
    Model{"mixtral-8x7b", 4096, 14336, 8, 2}, Model{"gpt-oss-20b", 2880, 2880, 32, 4},
    Model{"deepseek-v3", 7168, 2048, 32, 8},  Model{"qwen1.5-moe", 2048, 1408, 60, 4},
    Model{"olmoe-1b-7b", 2048, 1024, 64, 8},  Model{"qwen3-30b-a3b", 2048, 768, 128, 8}};
/// Mean rows of an expert.
constexpr std::array<std::int64_t, 6> kTableRows{64, 128, 256, 512, 1024, 2048};

void require_runs(const Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "experts_bench: %s\n", result.error().message().c_str());
  std::exit(3);
}

template <class T>
T require_made(Result<T> result) {
  if (!result) require_runs(tl::unexpected(result.error()));
  return std::move(*result);
}

class Timer {
 public:
  Timer() {
    for (cudaEvent_t& event : events_) require(cudaEventCreate(&event));
  }
  /// Milliseconds of one launch.
  double time(const std::function<Result<void>()>& launch) {
    const double first = run(launch, 3);
    const int launches = std::clamp(static_cast<int>(kRunMilliseconds / first), 3, 500);
    std::array<double, kRuns> times{};
    for (double& time : times) time = run(launch, launches);
    std::ranges::sort(times);
    return times[kRuns / 2];
  }
  /// Milliseconds of one launch at the GPU's power limit.
  double time_sustained(const std::function<Result<void>()>& launch) {
    const int launches =
        std::clamp(static_cast<int>(kSustainedMilliseconds / run(launch, 3)), 3, 20'000);
    run(launch, launches);
    return run(launch, launches);
  }

 private:
  double run(const std::function<Result<void>()>& launch, int launches) {
    require(cudaEventRecord(events_[0]));
    for (int i = 0; i < launches; ++i) require_runs(launch());
    require(cudaEventRecord(events_[1]));
    require(cudaEventSynchronize(events_[1]));
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return static_cast<double>(milliseconds) / launches;
  }

  std::array<cudaEvent_t, 2> events_{};
};

/// Normal random numbers; one block of them again and again.
template <class T>
void fill(const DeviceArray<T>& array, float deviation) {
  const std::vector<T> block = random_values<T>(1 << 20, 7, deviation);
  const std::span<std::byte> bytes = array.as_bytes();
  for (std::size_t at = 0; at < bytes.size(); at += block.size() * sizeof(T)) {
    const std::size_t size = std::min(bytes.size() - at, block.size() * sizeof(T));
    require(cudaMemcpy(bytes.data() + at, block.data(), size, cudaMemcpyDefault));
  }
}

/// Different experts for each token; expert e is taken as often as 1 / (e + 1)^exponent, about.
std::vector<std::int32_t> indices_of(const Model& model, double exponent,
                                     std::int64_t tokens = kTokens) {
  std::mt19937 bits(11);
  std::vector<double> shares;
  for (std::int64_t e = 0; e < model.experts; ++e)
    shares.push_back(std::pow(static_cast<double>(e + 1), -exponent));
  std::discrete_distribution<std::int32_t> any(shares.begin(), shares.end());
  std::vector<std::int32_t> indices;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<std::ptrdiff_t>(indices.size());
    while (static_cast<std::int64_t>(indices.size()) - first < model.top_k) {
      const std::int32_t e = any(bits);
      if (std::find(indices.begin() + first, indices.end(), e) == indices.end())
        indices.push_back(e);
    }
  }
  return indices;
}

std::vector<std::int32_t> ends_of(const Model& model, const std::vector<std::int32_t>& indices) {
  std::vector<std::int32_t> ends(static_cast<std::size_t>(model.experts));
  for (const std::int32_t e : indices) ++ends[static_cast<std::size_t>(e)];
  for (std::size_t e = 1; e < ends.size(); ++e) ends[e] += ends[e - 1];
  return ends;
}

// ---- GEMMs -------------------------------------------------------------------------------------

enum class Kind { forward, input_gradient, weight_gradient, added_weight_gradient };
constexpr std::array kKinds{Kind::forward, Kind::input_gradient, Kind::weight_gradient,
                            Kind::added_weight_gradient};
constexpr std::array kKindNames{"product", "input gradient", "weight gradient fp32",
                                "weight gradient fp32 +="};

struct Operands {
  kernels::GroupedSizes sizes;
  DeviceArray<Bf16> input, output, weight;
  DeviceArray<float> weight_grad;

  explicit Operands(const kernels::GroupedSizes& s)
      : sizes(s),
        input(s.m * s.k),
        output(s.m * s.n),
        weight(s.experts * s.n * s.k),
        weight_grad(s.experts * s.n * s.k) {
    fill(input, 1);
    fill(output, 1);
    fill(weight, 0.02F);
    fill(weight_grad, 1);
  }
};

Launch grouped(const Operands& o, Kind kind, const std::int32_t* ends, GroupedVersion version) {
  const bool gradient = kind == Kind::input_gradient;
  if (kind == Kind::forward || gradient)
    return require_made(grouped_launch(
        kernels::GroupedProduct<Bf16>{.sizes = o.sizes,
                                      .gradient = gradient,
                                      .input = gradient ? o.output.data() : o.input.data(),
                                      .weight = o.weight.data(),
                                      .ends = ends,
                                      .output = gradient ? o.input.data() : o.output.data()},
        nullptr, version));
  return require_made(grouped_launch(
      kernels::GroupedWeightGradient<Bf16, float>{.sizes = o.sizes,
                                                  .d_output = o.output.data(),
                                                  .input = o.input.data(),
                                                  .ends = ends,
                                                  .adds = kind == Kind::added_weight_gradient,
                                                  .weight_grad = o.weight_grad.data()},
      nullptr, nullptr, version));
}

/// As many rows with the weight of one expert.
double dense_time(Timer& timer, GemmPlanner& planner, const Operands& o, Kind kind,
                  std::span<std::byte> workspace) {
  const auto& [experts, m, n, k] = o.sizes;
  GemmShape shape{.rows = m, .cols = n, .inner = k, .a_row = k, .b_row = k, .b_transposed = true};
  GemmMemory memory{
      .a = o.input.data(), .b = o.weight.data(), .c = o.output.data(), .workspace = workspace};
  if (kind == Kind::input_gradient) {
    shape = {.rows = m, .cols = k, .inner = n, .a_row = n, .b_row = k};
    memory.a = o.output.data();
    memory.c = o.input.data();
  } else if (kind != Kind::forward) {
    shape = {.rows = n,
             .cols = k,
             .inner = m,
             .a_row = n,
             .b_row = k,
             .a_transposed = true,
             .adds = kind == Kind::added_weight_gradient,
             .result = DType::fp32};
    memory.a = o.output.data();
    memory.b = o.input.data();
    memory.c = o.weight_grad.data();
  }
  shape.alignment = 128;
  require_runs(planner.prepare(shape, memory, nullptr));
  return timer.time([&] { return planner.run(shape, memory, nullptr); });
}

struct Layer {
  const char* name;
  std::int64_t n, k;
};
std::array<Layer, 2> layers_of(const Model& model) {
  return {Layer{"gate_up", 2 * model.inner, model.hidden},
          Layer{"down", model.hidden, model.inner}};
}

void bench_products(Timer& timer, const Model& model) {
  auto planner = require_made(GemmPlanner::create({}));
  const DeviceArray<std::byte> workspace(kWorkspaceBytes);
  const DeviceArray<std::int32_t> even(ends_of(model, indices_of(model, 0)));
  const DeviceArray<std::int32_t> skewed(ends_of(model, indices_of(model, 1)));
  const bool has = require_made(has_warpgroups());
  fmt::print(
      "| {}: TFLOP/s of | m | n | k | warps | warpgroups | warps, Zipf | warpgroups, Zipf | dense "
      "|\n|---|---|---|---|---:|---:|---:|---:|---:|\n",
      model.name);
  for (const Layer& layer : layers_of(model)) {
    const kernels::GroupedSizes sizes{
        .experts = model.experts, .m = kTokens * model.top_k, .n = layer.n, .k = layer.k};
    const Operands operands(sizes);
    const double flops = 2e-9 * static_cast<double>(sizes.m) * static_cast<double>(layer.n) *
                         static_cast<double>(layer.k);
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      const auto rate = [&](const DeviceArray<std::int32_t>& ends, GroupedVersion version) {
        if (version == GroupedVersion::warpgroups && !has) return 0.0;
        return flops / timer.time(grouped(operands, kKinds[i], ends.data(), version));
      };
      const double warps = rate(even, GroupedVersion::warps);
      const double warpgroups = rate(even, GroupedVersion::warpgroups);
      const double warps_skewed = rate(skewed, GroupedVersion::warps);
      const double warpgroups_skewed = rate(skewed, GroupedVersion::warpgroups);
      const double dense =
          flops / dense_time(timer, planner, operands, kKinds[i], workspace.as_bytes());
      fmt::print("| {} {} | {} | {} | {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} | {:.0f} |\n",
                 layer.name, kKindNames[i], sizes.m, layer.n, layer.k, warps, warpgroups,
                 warps_skewed, warpgroups_skewed, dense);
      std::fflush(stdout);
    }
  }
  fmt::print("\n");
}

/// Rows are spread at random over the experts. M: their mean of an expert.
void print_table() {
  Timer timer;
  fmt::print("kind,experts,M,N,K,main_grad,tflops\n");
  for (const Model& model : kTableModels)
    for (const std::int64_t rows : kTableRows) {
      const std::int64_t tokens = rows * model.experts / model.top_k;
      const DeviceArray<std::int32_t> ends(ends_of(model, indices_of(model, 0, tokens)));
      for (const Layer& layer : layers_of(model)) {
        const Operands operands(
            {.experts = model.experts, .m = rows * model.experts, .n = layer.n, .k = layer.k});
        const auto print = [&](const char* kind, Kind which) {
          const double milliseconds = timer.time_sustained(
              grouped(operands, which, ends.data(), GroupedVersion::warpgroups));
          fmt::print("{},{},{},{},{},fp32,{:.1f}\n", kind, model.experts, rows, layer.n, layer.k,
                     2e-9 * static_cast<double>(operands.sizes.m) * static_cast<double>(layer.n) *
                         static_cast<double>(layer.k) / milliseconds);
          std::fflush(stdout);
        };
        print("fwd", Kind::forward);
        print("dgrad", Kind::input_gradient);
        print("wgrad", Kind::added_weight_gradient);
      }
    }
}

// ---- the others --------------------------------------------------------------------------------

void bench_rows(Timer& timer, const Model& model) {
  const kernels::RoutingSizes sizes{.tokens = kTokens,
                                    .experts = model.experts,
                                    .top_k = model.top_k,
                                    .seq = 4096,
                                    .normalised = true};
  const std::int64_t m = kTokens * model.top_k;
  const std::vector<std::int32_t> chosen = indices_of(model, 0);
  const DeviceArray<Bf16> logits(kTokens * model.experts), d_logits(kTokens * model.experts),
      tokens(kTokens * model.hidden), rows(m * model.hidden), gate_up(m * 2 * model.inner),
      product(m * model.inner);
  const DeviceArray<std::int32_t> indices(chosen), ends(ends_of(model, chosen)), order(m),
      places(m), counts(kTokens / sizes.seq * model.experts);
  const DeviceArray<float> weights(m), row_weights(m);
  const DeviceArray<std::byte> workspace(expert_order_workspace(sizes));
  for (const auto* array : {&logits, &tokens, &rows, &gate_up, &product}) fill(*array, 1);
  fill(weights, 0.1F);
  fill(row_weights, 0.1F);
  fmt::print("| {}: kernel | MB | us | GB/s |\n|---|---:|---:|---:|\n", model.name);
  const auto row = [&](const char* name, std::int64_t bytes,
                       const std::function<Result<void>()>& launch) {
    const double milliseconds = timer.time(launch);
    fmt::print("| {} | {:.1f} | {:.1f} | {:.0f} |\n", name, static_cast<double>(bytes) * 1e-6,
               milliseconds * 1e3, static_cast<double>(bytes) * 1e-6 / milliseconds);
    std::fflush(stdout);
  };
  const std::int64_t routed = m * 8;  // an index and a weight each
  const std::int64_t of_logits = 2 * kTokens * model.experts;
  row("expert_order", m * 12, [&] {
    return expert_order({.sizes = sizes,
                         .indices = indices.data(),
                         .ends = ends.data(),
                         .order = order.data(),
                         .places = places.data(),
                         .workspace = workspace.as_bytes()},
                        nullptr);
  });
  row("permute_rows", 2 * (kTokens + m) * model.hidden + m * 12, [&] {
    return permute_rows(kernels::PermuteRows<Bf16>{.tokens = kTokens,
                                                   .rows = kTokens * model.top_k,
                                                   .cols = model.hidden,
                                                   .top_k = model.top_k,
                                                   .input = tokens.data(),
                                                   .order = order.data(),
                                                   .weights = weights.data(),
                                                   .row_weights = row_weights.data(),
                                                   .output = rows.data()},
                        nullptr);
  });
  row("combine_rows", 2 * (kTokens + m) * model.hidden + m * 4, [&] {
    return combine_rows(kernels::CombineRows<Bf16>{.tokens = kTokens,
                                                   .rows = kTokens * model.top_k,
                                                   .cols = model.hidden,
                                                   .top_k = model.top_k,
                                                   .input = rows.data(),
                                                   .places = places.data(),
                                                   .output = tokens.data()},
                        nullptr);
  });
  row("weighted_swiglu_forward", 6 * m * model.inner + m * 4, [&] {
    return weighted_swiglu_forward(
        kernels::WeightedSwigluForward<Bf16>{.rows = m,
                                             .cols = model.inner,
                                             .experts = model.experts,
                                             .gate_up = gate_up.data(),
                                             .row_weights = row_weights.data(),
                                             .ends = ends.data(),
                                             .product = product.data()},
        nullptr);
  });
  row("weighted_swiglu_backward", 12 * m * model.inner + m * 8, [&] {
    return weighted_swiglu_backward(
        kernels::WeightedSwigluBackward<Bf16>{.rows = m,
                                              .cols = model.inner,
                                              .experts = model.experts,
                                              .gate_up = gate_up.data(),
                                              .row_weights = row_weights.data(),
                                              .ends = ends.data(),
                                              .d_product = product.data(),
                                              .product = product.data(),
                                              .d_row_weights = weights.data()},
        nullptr);
  });
  row("router_forward", of_logits + routed, [&] {
    return router_forward(kernels::RouterForward<Bf16>{.sizes = sizes,
                                                       .logits = logits.data(),
                                                       .indices = indices.data(),
                                                       .weights = weights.data(),
                                                       .counts = counts.data()},
                          nullptr);
  });
  row("router_backward", 2 * of_logits + routed, [&] {
    return router_backward(kernels::RouterBackward<Bf16>{.sizes = sizes,
                                                         .logits = logits.data(),
                                                         .indices = indices.data(),
                                                         .d_weights = weights.data(),
                                                         .counts = counts.data(),
                                                         .aux_loss = 0.001F,
                                                         .d_logits = d_logits.data()},
                           nullptr);
  });
  fmt::print("\n");
}

void bench(const std::string& only) {
  Timer timer;
  for (const Model& model : kModels) {
    const std::string name = model.name;
    const auto wanted = [&](const char* part) {
      return (name + " " + part).find(only) != std::string::npos;
    };
    if (wanted("products")) bench_products(timer, model);
    if (wanted("rows")) bench_rows(timer, model);
  }
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) {
  const std::string only = argc > 1 ? argv[1] : "";
  if (only == "--table") {
    mfsdp::cuda::print_table();
  } else {
    mfsdp::cuda::bench(only);
  }
}
