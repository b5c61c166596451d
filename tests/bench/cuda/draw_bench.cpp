// Measures what memory-bound kernels draw at a GPU's power limit, relative to the limit, and how fast GEMMs in
// FP8 and in bf16 are at one clock.
//
//   draw_bench [SECONDS]
//
// A row alternates the twelve GEMMs of a block of Llama-3-8B with runs of another kernel, for 1.2 SECONDS (1)
// without pause; then SECONDS are timed. At the limit, energy is time: what the GEMMs gain beside the other
// kernel is what that one spares, draw = 1 - (GEMMs alone - GEMMs in the row) / time of the other. GEMMs alone are
// timed before and after, and the mean counts. Prints CSV; times in ms of a pass.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "core/runtime/step_report.hpp"
#include "gpu_backend/cuda/gemm.hpp"
#include "gpu_backend/cuda/kernels/fp8.hpp"
#include "gpu_backend/cuda/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/swiglu.hpp"
#include "gpu_backend/cuda/kernels/update.hpp"
#include "tests/bench/cuda/kernel_table.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kTokens = 8192;
constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kIntermediate = 14336;
constexpr std::int64_t kSlice = 218112000 / 8;
constexpr std::int64_t kCopyBytes = std::int64_t{1} << 30;
constexpr GemmSettings kSearch{.candidates = 8, .timed_rounds = 5, .sustained_milliseconds = 60};

/// Random numbers of both types, for all GEMMs.
struct Operands {
  explicit Operands(DType dtype)
      : left(kTokens * 2 * kIntermediate * size_of(dtype)),
        right(kTokens * 2 * kIntermediate * size_of(dtype)) {
    for (DeviceArray<std::uint8_t>* const array : {&left, &right}) {
      const std::span<std::byte> bytes = array->as_bytes();
      const auto fill = [&](const auto& block) {
        const std::size_t size = block.size() * sizeof(block.front());
        for (std::size_t at = 0; at < bytes.size(); at += size)
          require(cudaMemcpy(bytes.data() + at, block.data(), std::min(bytes.size() - at, size),
                             cudaMemcpyDefault));
      };
      if (dtype == DType::bf16)
        fill(random_values<Bf16>(1 << 20, 7, 1));
      else
        fill(random_values<Fp8E4m3>(1 << 20, 7, fp8_max<Fp8E4m3> / 5));
    }
  }
  DeviceArray<std::uint8_t> left, right;
};

/// The twelve GEMMs of a block, in one type.
class Gemms {
 public:
  explicit Gemms(DType dtype) : operands_(dtype), planner_(required(GemmPlanner::create(kSearch))) {
    const bool fp8 = dtype != DType::bf16;
    const auto add = [&](std::int64_t rows, std::int64_t cols, std::int64_t inner) {
      shapes_.push_back({.rows = rows,
                         .cols = cols,
                         .inner = inner,
                         .a_row = inner,
                         .b_row = inner,
                         .b_transposed = true,
                         .operands = dtype,
                         .alignment = fp8 ? 128 : 256});
    };
    for (const auto& [outputs, inputs] : {std::array<std::int64_t, 2>{6144, kHidden},
                                          {kHidden, kHidden},
                                          {2 * kIntermediate, kHidden},
                                          {kHidden, kIntermediate}}) {
      add(kTokens, outputs, inputs);
      add(kTokens, inputs, outputs);
      add(outputs, inputs, kTokens);
    }
    for (const GemmShape& shape : shapes_) require_runs(planner_.prepare(shape, memory(), nullptr));
  }
  void run() {
    for (const GemmShape& shape : shapes_) require_runs(planner_.run(shape, memory(), nullptr));
  }

 private:
  [[nodiscard]] GemmMemory memory() const {
    return {.a = operands_.left.data(),
            .b = operands_.right.data(),
            .c = result_.data(),
            .workspace = workspace_.as_bytes(),
            .a_scale = scales_.data(),
            .b_scale = scales_.data()};
  }
  Operands operands_;
  GemmPlanner planner_;
  DeviceArray<std::uint8_t> result_{kTokens * 2 * kIntermediate * 2};
  DeviceArray<std::uint8_t> workspace_{32 << 20};
  DeviceArray<float> scales_{std::vector<float>{1e-4F}};
  std::vector<GemmShape> shapes_;
};

struct Part {
  std::string_view name;
  std::function<void()> run;
  int times = 1;  ///< of a pass
};

/// Memory-bound kernels of a block, on operands that no recent launch has touched.
class Others {
 public:
  std::vector<Part> all() {
    return {{"copy", [this] { copy(); }},
            {"adamw", [this] { adamw(); }},
            {"rms_norm_forward", [this] { norm(); }},
            {"swiglu_forward", [this] { swiglu(); }},
            {"swiglu_backward", [this] { swiglu_back(); }},
            {"amax", [this] { largest(); }},
            {"cast_scaled", [this] { cast(); }}};
  }

 private:
  void copy() {
    const auto* const from = a_.take<std::byte>(kCopyBytes);
    require(cudaMemcpyAsync(a_.take<std::byte>(kCopyBytes), from,
                            static_cast<std::size_t>(kCopyBytes), cudaMemcpyDeviceToDevice));
  }
  void adamw() {
    require_runs(update(
        kernels::Update<float, float, Bf16>{
            .elements = kSlice,
            .gradients = a_.take<float>(kSlice),
            .weights = a_.take<float>(kSlice),
            .compute = a_.take<Bf16>(kSlice),
            .states = {a_.take<float>(kSlice), a_.take<float>(kSlice)},
            .step = step_.data(),
            .loss = reinterpret_cast<const float*>(loss_.data())},
        Optimizer::adamw, {}, {decay_.data(), 1}, nullptr));
  }
  void norm() {
    constexpr std::int64_t kCount = kTokens * kHidden;
    require_runs(
        rms_norm_forward(kernels::RmsNormForward<Bf16>{.rows = kTokens,
                                                       .cols = kHidden,
                                                       .epsilon = 1e-5F,
                                                       .residual = a_.take<Bf16>(kCount),
                                                       .delta = a_.take<Bf16>(kCount),
                                                       .weight = weight_.data(),
                                                       .residual_out = a_.take<Bf16>(kCount),
                                                       .normed = a_.take<Bf16>(kCount),
                                                       .rstd = a_.take<float>(kTokens)},
                         nullptr));
  }
  void swiglu() {
    require_runs(
        swiglu_forward(kernels::SwigluForward<Bf16>{.rows = kTokens,
                                                    .cols = kIntermediate,
                                                    .gate_up = a_.take<Bf16>(2 * kProducts),
                                                    .product = a_.take<Bf16>(kProducts)},
                       nullptr));
  }
  void swiglu_back() {
    require_runs(
        swiglu_backward(kernels::SwigluBackward<Bf16>{.rows = kTokens,
                                                      .cols = kIntermediate,
                                                      .gate_up = a_.take<Bf16>(2 * kProducts),
                                                      .d_product = a_.take<Bf16>(kProducts)},
                        nullptr));
  }
  void largest() {
    require_runs(mfsdp::cuda::amax(kernels::Amax<Bf16>{.rows = kTokens,
                                                       .cols = kIntermediate,
                                                       .input = a_.take<Bf16>(kProducts),
                                                       .amax = amax_.data()},
                                   nullptr));
  }
  void cast() {
    require_runs(cast_scaled(
        kernels::CastScaled<Bf16>{.rows = kTokens,
                                  .cols = kIntermediate,
                                  .input = a_.take<Bf16>(kProducts),
                                  .amax = amax_.data(),
                                  .output = {a_.take<AnyFp8>(kProducts), DType::fp8_e4m3},
                                  .output_t = {a_.take<AnyFp8>(kProducts), DType::fp8_e4m3},
                                  .output_scale = scale_.data()},
        nullptr));
  }

  static constexpr std::int64_t kProducts = kTokens * kIntermediate;
  Arena a_;
  DeviceArray<float> amax_{std::vector<float>{4}};
  DeviceArray<float> scale_{1};
  DeviceArray<Bf16> weight_{random_values<Bf16>(kHidden, 1)};
  DeviceArray<StepBlock> step_{std::vector<StepBlock>{make_step_block(2, 0.01, {})}};
  DeviceArray<LossReport> loss_{std::vector<LossReport>{{.inverse_tokens = 0.25F}}};
  DeviceArray<kernels::DecayRun> decay_{
      std::vector<kernels::DecayRun>{{.first = 0, .count = kSlice, .decays = true}}};
};

/// Milliseconds of each part in a pass, over `passes`.
std::vector<double> time_passes(const std::vector<Part>& parts, int passes) {
  std::vector<cudaEvent_t> events(static_cast<std::size_t>(passes) * (parts.size() + 1));
  for (cudaEvent_t& event : events) require(cudaEventCreate(&event));
  auto next = events.begin();
  for (int pass = 0; pass < passes; ++pass) {
    require(cudaEventRecord(*next++));
    for (const Part& part : parts) {
      for (int i = 0; i < part.times; ++i) part.run();
      require(cudaEventRecord(*next++));
    }
  }
  require(cudaDeviceSynchronize());
  std::vector<double> sums(parts.size());
  next = events.begin();
  for (int pass = 0; pass < passes; ++pass, ++next)
    for (double& sum : sums) {
      float milliseconds = 0;
      require(cudaEventElapsedTime(&milliseconds, *next, *(next + 1)));
      sum += static_cast<double>(milliseconds) / passes;
      ++next;
    }
  for (const cudaEvent_t event : events) require(cudaEventDestroy(event));
  return sums;
}

/// The times of a row, at the clock that the GPU settles at.
std::vector<double> settled(const std::vector<Part>& parts, double seconds) {
  double pass = 0;
  for (const double part : time_passes(parts, 3)) pass += part;
  const auto passes = [&](double of) { return std::max(3, static_cast<int>(of * 1e3 / pass)); };
  time_passes(parts, passes(1.2 * seconds));
  return time_passes(parts, passes(seconds));
}

int bench(double seconds) {
  const std::string device = device_line();
  if (device.empty()) return kSkipped;
  fmt::print("# {}\ngemms,beside,gemms_ms,beside_ms,draw\n", device);
  Gemms bf16(DType::bf16);
  Gemms fp8(DType::fp8_e4m3);
  Others others;
  const Part of_bf16{"bf16", [&] { bf16.run(); }};
  const Part of_fp8{"fp8", [&] { fp8.run(); }};
  /// GEMMs alone, beside each of `others`, and alone again, as the GPU may have become warmer.
  const auto rows = [&](const Part& gemms, std::vector<Part> parts) {
    const double before = settled({gemms}, seconds).front();
    std::vector<std::vector<double>> times;
    for (Part& other : parts) {
      other.times = std::max(1, static_cast<int>(before / 2 / settled({other}, 0.05).front()));
      times.push_back(settled({gemms, other}, seconds));
    }
    const double after = settled({gemms}, seconds).front();
    fmt::print("{0},,{1:.4f},,\n{0},,{2:.4f},,\n", gemms.name, before, after);
    for (std::size_t i = 0; i < parts.size(); ++i)
      fmt::print("{},{} x {},{:.4f},{:.4f},{:.3f}\n", gemms.name, parts[i].times, parts[i].name,
                 times[i][0], times[i][1], 1 - ((before + after) / 2 - times[i][0]) / times[i][1]);
    std::fflush(stdout);
  };
  rows(of_bf16, others.all());
  rows(of_fp8, others.all());
  rows(of_bf16, {of_fp8});
  return 0;
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) { return mfsdp::cuda::bench(argc > 1 ? std::atof(argv[1]) : 1); }
