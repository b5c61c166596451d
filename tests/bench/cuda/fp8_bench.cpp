// FP8 on one GPU: kernels as a Markdown table, GEMMs as CSV rows.
//
//   fp8_bench [kernels | layers | table | blocks] [SECONDS]     without a name: all but blocks
//
// `layers`: the GEMMs of Llama-3-8B's layers at 8192 tokens, beside those of bf16. `blocks`: casts with
// scales of blocks of 128 values, and those layers with them, beside split sums of one scale. `table`: the rows of
// scenarios/gpus/tables/h200_gemm_fp8.csv. Each runs for SECONDS (0.5) without pause, of which the second
// half is timed, at the power limit. `ms` is of the algorithm that GemmPlanner chose by time, `first_ms`
// of the one that cuBLASLt's heuristics put first.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "core/runtime/step_report.hpp"
#include "gpu_backend/cuda/gemm.hpp"
#include "gpu_backend/cuda/kernels/fp8.hpp"
#include "gpu_backend/cuda/kernels/fp8_blocks.hpp"
#include "gpu_backend/cuda/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/swiglu.hpp"
#include "gpu_backend/cuda/kernels/update.hpp"
#include "tests/bench/cuda/kernel_table.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kTokens = 8192;
constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kIntermediate = 14336;
constexpr std::int64_t kSlice = 218112000 / 8;  // of a block's parameters
constexpr std::int64_t kWorkspaceBytes = 32 << 20;

std::string sizes(std::int64_t rows, std::int64_t cols) {
  return fmt::format("{} x {}", rows, cols);
}

// ---- kernels -----------------------------------------------------------------------------------

class Kernels {
 public:
  explicit Kernels(Table& table) : table_(table), a_(table.arena) {}

  void amaxes(std::int64_t rows, std::int64_t cols) {
    table_.row("amax", sizes(rows, cols), rows * cols * 2, [=, this] {
      return amax(kernels::Amax<Bf16>{.rows = rows,
                                      .cols = cols,
                                      .input = a_.take<Bf16>(rows * cols),
                                      .amax = next_.data()},
                  nullptr);
    });
  }

  kernels::CastScaled<Bf16> cast(std::int64_t rows, std::int64_t cols, bool stored, bool transposed,
                                 DType dtype) {
    const std::int64_t count = rows * cols;
    kernels::CastScaled<Bf16> call{.rows = rows,
                                   .cols = cols,
                                   .input = a_.take<Bf16>(count),
                                   .amax = amax_.data(),
                                   .output_scale = scale_.data()};
    if (stored) call.output = {a_.take<AnyFp8>(count), dtype};
    if (transposed) call.output_t = {a_.take<AnyFp8>(count), dtype};
    return call;
  }

  void casts(const std::string& name, std::int64_t rows, std::int64_t cols, bool stored,
             bool transposed, bool next = false, DType dtype = DType::fp8_e4m3) {
    const std::int64_t bytes = rows * cols * (2 + (stored ? 1 : 0) + (transposed ? 1 : 0));
    table_.row(name, sizes(rows, cols), bytes, [=, this] {
      auto call = cast(rows, cols, stored, transposed, dtype);
      if (next) call.next_amax = next_.data();
      return cast_scaled(call, nullptr);
    });
  }

  /// The second pass may find a part of the input in the L2 cache; the bytes count it.
  void both_passes(std::int64_t rows, std::int64_t cols) {
    table_.row("amax, cast_scaled", sizes(rows, cols), rows * cols * 6,
               [=, this]() -> Result<void> {
                 const auto call = cast(rows, cols, true, true, DType::fp8_e4m3);
                 MFSDP_TRY(amax(
                     kernels::Amax<Bf16>{
                         .rows = rows, .cols = cols, .input = call.input, .amax = next_.data()},
                     nullptr));
                 return cast_scaled(call, nullptr);
               });
  }

  void block_casts(std::int64_t rows, std::int64_t cols, bool of_weight, bool transposed) {
    const std::int64_t count = rows * cols;
    const std::string of = of_weight ? "cast_blocks, weight" : "cast_blocks";
    table_.row(of + (transposed ? ", both copies" : ", as stored"), sizes(rows, cols),
               count * (transposed ? 4 : 3), [=, this] {
                 const auto scales = [this](std::int64_t some) {
                   return TypedBytes<BlockScale>{
                       reinterpret_cast<BlockScale*>(a_.take<float>(some)), DType::fp32};
                 };
                 kernels::CastBlocks<Bf16> call{.block = kScaleBlock,
                                                .codes = kScaleBlock,
                                                .lines = of_weight ? 1 : kScaleBlock,
                                                .blocks = cols / kScaleBlock,
                                                .blocks_t = rows / kScaleBlock,
                                                .input = a_.take<Bf16>(count)};
                 call.output = {a_.take<BlockCode>(count), DType::fp8_e4m3};
                 call.output_scale = scales(count / kScaleBlock);
                 if (transposed) {
                   call.output_t = {a_.take<BlockCode>(count), DType::fp8_e4m3};
                   call.output_t_scale = scales(count / kScaleBlock);
                 }
                 return cast_blocks(call, nullptr);
               });
  }

  void transposes(std::int64_t rows, std::int64_t cols) {
    const std::int64_t count = rows * cols;
    table_.row("transpose", sizes(rows, cols), 2 * count, [=, this] {
      return transpose({.rows = rows,
                        .cols = cols,
                        .input = {a_.take<const AnyFp8>(count)},
                        .output = {a_.take<AnyFp8>(count)}},
                       nullptr);
    });
  }

  void shard() {
    table_.row("cast_scaled, fp32 as stored", fmt::format("{}", kSlice), kSlice * 5, [=, this] {
      return cast_scaled(
          kernels::CastScaled<float>{.rows = 1,
                                     .cols = kSlice,
                                     .input = a_.take<float>(kSlice),
                                     .amax = amax_.data(),
                                     .output = {a_.take<AnyFp8>(kSlice), DType::fp8_e4m3},
                                     .output_scale = scale_.data()},
          nullptr);
    });
    table_.row("amax, fp32", fmt::format("{}", kSlice), kSlice * 4, [=, this] {
      return amax(
          kernels::Amax<float>{
              .rows = 1, .cols = kSlice, .input = a_.take<float>(kSlice), .amax = next_.data()},
          nullptr);
    });
  }

  void updates() {
    const StepBlock step = make_step_block(2, 0.01, {});
    const DeviceArray<StepBlock> block(std::vector<StepBlock>{step});
    const DeviceArray<LossReport> loss(std::vector<LossReport>{{.inverse_tokens = 0.25F}});
    const DeviceArray<kernels::DecayRun> runs(
        std::vector<kernels::DecayRun>{{.first = 0, .count = kSlice, .decays = true}});
    std::vector<AmaxRun> tensors;
    for (std::int64_t i = 0; i < 4; ++i)
      tensors.push_back({.first = i * (kSlice / 4), .count = kSlice / 4, .slot = i});
    const DeviceArray<AmaxRun> d_tensors(tensors);
    const DeviceArray<float> amaxes(std::vector<float>(4));
    for (const bool takes : {false, true})
      table_.row(
          takes ? "adamw + amax" : "adamw", fmt::format("{}, fp32 main, bf16 weights", kSlice),
          kSlice * 30, [&, this] {
            return update(
                kernels::Update<float, float, Bf16>{
                    .elements = kSlice,
                    .gradients = a_.take<float>(kSlice),
                    .weights = a_.take<float>(kSlice),
                    .compute = a_.take<Bf16>(kSlice),
                    .states = {a_.take<float>(kSlice), a_.take<float>(kSlice)},
                    .step = block.data(),
                    .loss = reinterpret_cast<const float*>(loss.data())},
                Optimizer::adamw, {}, {runs.data(), 1}, nullptr,
                takes ? AmaxOfWeights{.runs = d_tensors.data(), .count = 4, .amax = amaxes.data()}
                      : AmaxOfWeights{});
          });
  }

  void producers() {
    const std::int64_t rows = kTokens * kHidden;
    const DeviceArray<Bf16> weight(random_values<Bf16>(kHidden, 1));
    for (float* const found : {static_cast<float*>(nullptr), next_.data()}) {
      const std::string more = found != nullptr ? " + amax" : "";
      table_.row("rms_norm_forward" + more, "8192 x 4096, residual + delta", 4 * rows * 2,
                 [&, this] {
                   return rms_norm_forward(
                       kernels::RmsNormForward<Bf16>{.rows = kTokens,
                                                     .cols = kHidden,
                                                     .epsilon = 1e-5F,
                                                     .residual = a_.take<Bf16>(rows),
                                                     .delta = a_.take<Bf16>(rows),
                                                     .weight = weight.data(),
                                                     .residual_out = a_.take<Bf16>(rows),
                                                     .normed = a_.take<Bf16>(rows),
                                                     .rstd = a_.take<float>(kTokens),
                                                     .amax = found},
                       nullptr);
                 });
    }
    const std::int64_t products = kTokens * kIntermediate;
    for (float* const found : {static_cast<float*>(nullptr), next_.data()}) {
      const std::string more = found != nullptr ? " + amax" : "";
      table_.row("swiglu_forward" + more, sizes(kTokens, kIntermediate), 3 * products * 2,
                 [&, this] {
                   return swiglu_forward(
                       kernels::SwigluForward<Bf16>{.rows = kTokens,
                                                    .cols = kIntermediate,
                                                    .gate_up = a_.take<Bf16>(2 * products),
                                                    .product = a_.take<Bf16>(products),
                                                    .amax = found},
                       nullptr);
                 });
      table_.row("swiglu_backward" + more, sizes(kTokens, kIntermediate), 5 * products * 2,
                 [&, this] {
                   return swiglu_backward(
                       kernels::SwigluBackward<Bf16>{.rows = kTokens,
                                                     .cols = kIntermediate,
                                                     .gate_up = a_.take<Bf16>(2 * products),
                                                     .d_product = a_.take<Bf16>(products),
                                                     .amax = found},
                       nullptr);
                 });
    }
    const auto targets = [this](std::int64_t count, auto tag) {
      using F = decltype(tag);
      return CastTargets<F>{.amax = amax_.data(),
                            .output = a_.take<F>(count),
                            .output_t = a_.take<F>(count),
                            .output_scale = scale_.data(),
                            .next_amax = next_.data()};
    };
    table_.row("swiglu_forward_cast", sizes(kTokens, kIntermediate), products * (4 + 2), [&, this] {
      return swiglu_forward_cast(kTokens, kIntermediate, a_.take<Bf16>(2 * products),
                                 targets(products, Fp8E4m3{}), nullptr);
    });
    table_.row("swiglu_backward_cast", sizes(kTokens, kIntermediate), products * (6 + 4),
               [&, this] {
                 return swiglu_backward_cast(kTokens, kIntermediate, a_.take<Bf16>(2 * products),
                                             a_.take<Bf16>(products),
                                             targets(2 * products, Fp8E5m2{}), nullptr);
               });
  }

 private:
  Table& table_;
  Arena& a_;
  DeviceArray<float> amax_{std::vector<float>{4}};
  DeviceArray<float> next_{std::vector<float>{0}};
  DeviceArray<float> scale_{1};
};

struct Layer {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};
const std::vector<Layer> kLlama8b{{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}};
const std::vector<Layer> kLlama1b{{3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}};

void bench_kernels() {
  Table table("");
  Kernels kernels(table);
  const std::vector<std::int64_t> widths{4096, 6144, 14336, 28672};
  for (const std::int64_t cols : widths) kernels.amaxes(kTokens, cols);
  for (const std::int64_t cols : widths)
    kernels.casts("cast_scaled, both copies", kTokens, cols, true, true);
  kernels.casts("cast_scaled, both copies, next amax", kTokens, 14336, true, true, true);
  kernels.casts("cast_scaled, both copies, e5m2", kTokens, 28672, true, true, false,
                DType::fp8_e5m2);
  kernels.casts("cast_scaled, as stored", kTokens, 14336, true, false);
  kernels.casts("cast_scaled, transposed", kTokens, 14336, false, true);
  for (const Layer& layer : kLlama8b)
    kernels.casts("cast_scaled, weight, both copies", layer.outputs, layer.inputs, true, true);
  for (const Layer& layer : kLlama8b) kernels.transposes(layer.outputs, layer.inputs);
  kernels.transposes(kTokens, 28672);
  for (const std::int64_t cols : widths) kernels.both_passes(kTokens, cols);
  kernels.shard();
  kernels.producers();
  kernels.updates();
}

// ---- GEMMs -------------------------------------------------------------------------------------

/// Clock and power while a GPU works, through the driver's library; empty without it.
class Meter {
 public:
  Meter() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    if (library_ == nullptr) return;
    const auto start = find<int()>("nvmlInit_v2");
    const auto handle = find<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
    clock_ = find<int(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
    power_ = find<int(void*, unsigned*)>("nvmlDeviceGetPowerUsage");
    if (start == nullptr || handle == nullptr || start() != 0 || handle(0, &device_) != 0)
      device_ = nullptr;
  }
  [[nodiscard]] std::string read() const {
    unsigned clock = 0;
    unsigned milliwatts = 0;
    constexpr int kMultiprocessors = 1;
    if (device_ == nullptr || clock_ == nullptr || power_ == nullptr ||
        clock_(device_, kMultiprocessors, &clock) != 0 || power_(device_, &milliwatts) != 0)
      return ",";
    return fmt::format("{},{}", clock, milliwatts / 1000);
  }

 private:
  template <class Function>
  Function* find(const char* name) {
    return reinterpret_cast<Function*>(dlsym(library_, name));
  }
  void* library_;
  void* device_ = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
};

class Sustained {
 public:
  Sustained() {
    for (cudaEvent_t* event : {&begin_, &end_}) require(cudaEventCreate(event));
  }
  /// Milliseconds of a run, in the second half of `seconds`; `meter` is read meanwhile.
  double time(double seconds, const std::function<void()>& run) {
    const double first = of(3, run);
    const int half = std::max(3, static_cast<int>(seconds * 500 / first));
    of(half, run);
    return of(half, run);
  }
  [[nodiscard]] const std::string& meter() const { return read_; }

 private:
  double of(int runs, const std::function<void()>& run) {
    require(cudaEventRecord(begin_));
    for (int i = 0; i < runs; ++i) run();
    require(cudaEventRecord(end_));
    read_ = meter_.read();
    require(cudaEventSynchronize(end_));
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return static_cast<double>(milliseconds) / runs;
  }
  Meter meter_;
  std::string read_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// A million random numbers of a type, again and again; in FP8 with the spread that casts leave: the
/// largest of them is the type's largest.
template <class T>
void fill_with(DeviceArray<std::uint8_t>& array) {
  static const std::vector<T> block =
      random_values<T>(1 << 20, 7, is_fp8_type<T> ? fp8_max<T> / 5 : 1);
  const std::span<std::byte> bytes = array.as_bytes();
  for (std::size_t at = 0; at < bytes.size(); at += block.size() * sizeof(T))
    require(cudaMemcpy(bytes.data() + at, block.data(),
                       std::min(bytes.size() - at, block.size() * sizeof(T)), cudaMemcpyDefault));
}

void fill_with(DeviceArray<std::uint8_t>& array, DType dtype) {
  if (dtype == DType::bf16) return fill_with<Bf16>(array);
  return dtype == DType::fp8_e5m2 ? fill_with<Fp8E5m2>(array) : fill_with<Fp8E4m3>(array);
}

struct Case {
  std::string kind;
  GemmShape shape;
};

GemmShape shape_of(std::int64_t rows, std::int64_t cols, std::int64_t inner) {
  return {.rows = rows,
          .cols = cols,
          .inner = inner,
          .a_row = inner,
          .b_row = inner,
          .b_transposed = true,
          .operands = DType::fp8_e4m3,
          .alignment = 128};
}

/// The three GEMMs of a layer with m tokens, n outputs and k inputs; the weight gradient once more, added
/// in fp32, if `adds`. First with sums that are split, then fast.
std::vector<Case> cases(std::int64_t m, std::int64_t n, std::int64_t k, bool adds) {
  const auto gradient = [](GemmShape shape) {
    shape.operands = DType::fp8_e5m2;
    shape.operands_b = DType::fp8_e4m3;
    return shape;
  };
  GemmShape wgrad = gradient(shape_of(n, k, m));
  std::vector<Case> list{
      {"fwd", shape_of(m, n, k)}, {"dgrad", gradient(shape_of(m, k, n))}, {"wgrad", wgrad}};
  wgrad.result = DType::fp32;
  wgrad.adds = true;
  if (adds) list.push_back({"wgrad fp32 +=", wgrad});
  const std::size_t count = list.size();
  for (std::size_t i = 0; i < count; ++i) {
    list.push_back(list[i]);
    list.back().shape.fast = true;
  }
  return list;
}

/// The same with scales of blocks: 1 x 128, of weights 128 x 128.
Case of_blocks(Case one) {
  GemmShape& s = one.shape;
  s.operands = DType::fp8_e4m3;
  s.operands_b.reset();
  s.a_scale_rows = 1;
  s.b_scale_rows = one.kind.starts_with("wgrad") ? 1 : kScaleBlock;
  return one;
}

/// The GEMM that a bf16 plan runs instead.
Case in_bf16(Case one) {
  GemmShape& s = one.shape;
  s.operands = DType::bf16;
  s.operands_b.reset();
  s.fast = false;
  if (one.kind != "fwd") {
    s.b_transposed = false;
    s.b_row = s.cols;
  }
  if (one.kind.starts_with("wgrad")) {
    s.a_transposed = true;
    s.a_row = s.rows;
  }
  return one;
}

constexpr GemmSettings kShortSearch{
    .candidates = 16, .timed_rounds = 5, .sustained_milliseconds = 60};

class Gemms {
 public:
  explicit Gemms(double seconds)
      : seconds_(seconds),
        first_(required(GemmPlanner::create({}))),
        chosen_(required(GemmPlanner::create(kShortSearch))) {}

  /// The time of a layer with m tokens; `compares`: also by the algorithm that the heuristics put first.
  void run(std::int64_t m, const Layer& layer, const Case& one, bool compares) {
    const GemmShape& s = one.shape;
    const std::int64_t size = size_of(s.operands);
    DeviceArray<std::uint8_t> a(s.rows * s.inner * size), b(s.cols * s.inner * size);
    DeviceArray<std::uint8_t> c(s.rows * s.cols * size_of(s.result));
    fill_with(a, s.operands);
    fill_with(b, s.operands_b.value_or(s.operands));
    require(cudaMemset(c.data(), 0, static_cast<std::size_t>(s.rows * s.cols * size_of(s.result))));
    const GemmMemory memory{.a = a.data(),
                            .b = b.data(),
                            .c = c.data(),
                            .workspace = workspace_.as_bytes(),
                            .a_scale = scales_.data(),
                            .b_scale = scales_.data()};
    const auto time = [&](GemmPlanner& planner, double seconds) {
      require_runs(planner.prepare(s, memory, nullptr));
      return sustained_.time(seconds, [&] { require_runs(planner.run(s, memory, nullptr)); });
    };
    const double chosen = time(chosen_, seconds_);
    const std::string meter = sustained_.meter();
    const double flops = 2e-9 * static_cast<double>(s.rows * s.cols) * static_cast<double>(s.inner);
    const char* const sums = s.operands == DType::bf16 ? "bf16"
                             : s.a_scale_rows != 0     ? "blocks"
                             : s.fast                  ? "fast"
                                                       : "split";
    fmt::print("{},{},{},{},{},{:.4f},{:.1f},{}", one.kind, sums, m, layer.outputs, layer.inputs,
               chosen, flops / chosen, meter);
    fmt::print("{}\n", compares ? fmt::format(",{:.4f}", time(first_, seconds_)) : "");
    std::fflush(stdout);
  }

 private:
  double seconds_;
  GemmPlanner first_;
  GemmPlanner chosen_;
  Sustained sustained_;
  DeviceArray<std::uint8_t> workspace_{kWorkspaceBytes};
  /// There is one for each block of 128 values of [8192, 28672].
  DeviceArray<float> scales_{std::vector<float>(std::size_t{8192} * 28672 / 128, 1e-4F)};
};

constexpr const char* kColumns = "kind,accumulate,M,N,K,ms,tflops,sm_mhz,watts";

void bench_layers(double seconds) {
  fmt::print("{},first_ms\n", kColumns);
  Gemms gemms(seconds);
  for (const Layer& layer : kLlama8b) {
    const auto list = cases(kTokens, layer.outputs, layer.inputs, true);
    for (const Case& one : list) gemms.run(kTokens, layer, one, true);
    for (std::size_t i = 0; i < list.size() / 2; ++i)
      gemms.run(kTokens, layer, in_bf16(list[i]), true);
  }
}

void bench_blocks(double seconds) {
  {
    Table table("");
    Kernels kernels(table);
    for (const std::int64_t cols : {4096, 6144, 14336, 28672})
      kernels.block_casts(kTokens, cols, false, true);
    kernels.block_casts(kTokens, 14336, false, false);
    for (const Layer& layer : kLlama8b)
      kernels.block_casts(layer.outputs, layer.inputs, true, true);
  }
  fmt::print("{}\n", kColumns);
  Gemms gemms(seconds);
  for (const Layer& layer : kLlama8b)
    for (const Case& one : cases(kTokens, layer.outputs, layer.inputs, true)) {
      if (one.shape.fast) continue;
      gemms.run(kTokens, layer, one, false);
      gemms.run(kTokens, layer, of_blocks(one), false);
    }
}

void bench_table(double seconds) {
  fmt::print("{}\n", kColumns);
  Gemms gemms(seconds);
  const auto bench = [&](std::int64_t tokens, const std::vector<Layer>& layers) {
    for (const Layer& layer : layers)
      for (const Case& one : cases(tokens, layer.outputs, layer.inputs, false))
        gemms.run(tokens, layer, one, false);
  };
  for (const std::int64_t tokens : {2048, 4096, 8192, 16384}) bench(tokens, kLlama8b);
  bench(8192, kLlama1b);
  bench(8192, {{5120, 3072}, {16384, 3072}, {3072, 8192}});   // Llama-3.2-3B
  bench(8192, {{4608, 3584}, {37888, 3584}, {3584, 18944}});  // Qwen2.5-7B
}

int bench(std::string_view what, double seconds) {
  const std::string device = device_line();
  if (device.empty()) return kSkipped;
  required(GemmPlanner::create({}));
  fmt::print("# {}, cuBLASLt {}\n", device, cublas_lt().version());
  if (what.empty() || what == "kernels") bench_kernels();
  if (what.empty() || what == "layers") bench_layers(seconds);
  if (what == "blocks") bench_blocks(seconds);
  if (what.empty() || what == "table") bench_table(seconds);
  return 0;
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) {
  return mfsdp::cuda::bench(argc > 1 ? argv[1] : "", argc > 2 ? std::atof(argv[2]) : 0.5);
}
