// Traces made up event by event, in the form that Kineto writes (libkineto/src/output_json.cpp).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "sim/calibrate/calibrate.hpp"
#include "sim/cost/cost_model.hpp"
#include "tests/sim/calibrate/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;
using testing_calibrate::kGpus;

/// Kernels run consecutively on one stream; each is launched by its own operator.
class RunTrace {
 public:
  /// An operator of the host, and the kernel that it launches.
  void run(const std::string& name, const std::string& dims, std::int64_t ns, int thread,
           const std::string& kernel) {
    ++id_;
    host("cpu_op", name, thread, 2000,
         fmt::format(R"("External id": {}, "Input Dims": {})", id_, dims));
    host("cuda_runtime", "cudaLaunchKernel", thread, kLaunchNs,
         fmt::format(R"("External id": {}, "correlation": {})", id_, id_));
    host_ += 3 * kLaunchNs;
    add(fmt::format(
        R"({{"ph": "X", "cat": "kernel", "name": "{}", "pid": 0, "tid": 7, "ts": {}, "dur": {}, )"
        R"("args": {{"External id": {}, "device": 0, "stream": 7, "correlation": {}}}}})",
        kernel, micros(gpu_), micros(ns), id_, id_));
    gpu_ += ns;
  }
  void copy(std::int64_t bytes, std::int64_t ns) {
    add(fmt::format(
        R"-({{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoD (Device -> Device)", "pid": 0, )-"
        R"("tid": 7, "ts": {}, "dur": {}, "args": {{"device": 0, "stream": 7, "bytes": {}}}}})",
        micros(gpu_), micros(ns), bytes));
    gpu_ += ns;
  }
  void gather(std::int64_t elements, int ranks, std::int64_t ns) {
    add(fmt::format(
        R"-({{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL()", "pid": 0, )-"
        R"("tid": 20, "ts": {}, "dur": {}, "args": {{"device": 0, "stream": 20, )"
        R"("Collective name": "_allgather_base", "In msg nelems": {}, "Out msg nelems": {}, )"
        R"("Group size": {}, "dtype": "BFloat16"}}}})",
        micros(gpu_), micros(ns), elements, elements * ranks, ranks));
    gpu_ += ns;
  }
  [[nodiscard]] std::string text() const {
    return fmt::format(R"({{"deviceProperties": [], "traceEvents": [{}]}})",
                       fmt::join(events_, ",\n"));
  }

  static constexpr std::int64_t kLaunchNs = 6000;  ///< of the host's call

 private:
  static std::string micros(std::int64_t ns) {
    return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
  }
  void add(std::string event) { events_.push_back(std::move(event)); }
  void host(const std::string& category, const std::string& name, int thread, std::int64_t ns,
            const std::string& args) {
    add(fmt::format(R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 9, "tid": {}, "ts": {}, )"
                    R"("dur": {}, "args": {{{}}}}})",
                    category, name, thread, micros(host_), micros(ns), args));
  }

  std::vector<std::string> events_;
  std::int64_t id_ = 0;
  std::int64_t host_ = 0;
  std::int64_t gpu_ = 0;
};

constexpr int kForward = 1;  // threads
constexpr int kBackward = 2;

class CalibrateTraces : public testing::Test {
 protected:
  [[nodiscard]] CostModel base() const {
    const Gpu gpu = load_gpu("h100", kGpus).value();
    return make_cost_model(make_cluster(gpu, 8, 8).value()).value();
  }
  [[nodiscard]] static Kernel product(GemmKind kind, std::int64_t m, std::int64_t n,
                                      std::int64_t k) {
    return {.kind = KernelKind::gemm,
            .operands = {},
            .attributes = {{"k", k}, {"kind", number_of(kind)}, {"m", m}, {"n", n}}};
  }
  [[nodiscard]] static Kernel attention() {
    return {.kind = KernelKind::attention_forward,
            .operands = {},
            .attributes = {{"batch", 1}, {"head_dim", 128}, {"heads", 32}, {"seq", 4096}}};
  }

  Result<Calibration> calibrated(const std::string& text) {
    const std::filesystem::path file = folder_ / "run.json";
    std::ofstream(file) << text;
    return calibrate({.files = {file},
                      .gpu = "h100",
                      .gpus_dir = kGpus,
                      .output = folder_ / "mine.toml",
                      .domain = {}});
  }

  /// Blocks of a model of 4096 tokens and columns. GEMMs take twice the predicted time, attention
  /// 5/4 of it.
  RunTrace blocks(int count) {
    const CostModel costs = base();
    const auto ns = [&](const Kernel& kernel) { return costs.kernel(kernel).value; };
    RunTrace trace;
    for (int i = 0; i < count; ++i) {
      trace.run("aten::mm", "[[2048, 4096], [4096, 6144]]",
                2 * ns(product(GemmKind::forward, 2048, 6144, 4096)), kForward, "gemm");
      trace.run("aten::_scaled_dot_product_cudnn_attention",
                "[[1, 32, 4096, 128], [1, 8, 4096, 128], [1, 8, 4096, 128], [], [], [], [], []]",
                ns(attention()) * 5 / 4, kForward, "cudnn_sdpa");
      trace.run("aten::add", "[[2048, 4096], [2048, 4096], []]", 10000, kForward, "elementwise");
    }
    for (int i = 0; i < count; ++i) {
      trace.run("aten::mm", "[[6144, 2048], [2048, 4096]]",
                2 * ns(product(GemmKind::weight_gradient, 2048, 6144, 4096)), kBackward, "gemm");
      trace.run("aten::mm", "[[2048, 6144], [6144, 4096]]",
                2 * ns(product(GemmKind::input_gradient, 2048, 6144, 4096)), kBackward, "gemm");
    }
    return trace;
  }

  test::ScratchFolder folder_;
};

TEST_F(CalibrateTraces, ScaleWhatTheyShow) {
  RunTrace trace = blocks(8);
  // 1 GiB in 1 ms is read and written: 2.147 of 3.35 TB/s.
  trace.copy(std::int64_t{1} << 30, 1'000'000);
  const auto calibration = calibrated(trace.text());
  ASSERT_TRUE(calibration) << calibration.error().message();
  const Gpu& gpu = calibration->gpu;
  EXPECT_NEAR(gpu.gemm_scale, 0.5, 1e-4);
  EXPECT_NEAR(gpu.attention_scale, 0.8, 1e-4);
  EXPECT_NEAR(gpu.copy_fraction, 2.147483648 / 3.35, 1e-6);
  EXPECT_EQ(gpu.host_launch, Nanos(RunTrace::kLaunchNs));
  EXPECT_EQ(gpu.calibration, "datasheet");
  EXPECT_EQ(gpu.link_efficiency, 1.0);
}

/// A GEMM of few tiles near the peak, and a small gather near the link's bandwidth, are possible.
/// With the scales that they imply, larger ones would exceed both.
TEST_F(CalibrateTraces, ScalesEndAtThePeakAndTheLink) {
  RunTrace trace;
  constexpr double kFlops = 2.0 * 256 * 6144 * 4096;
  for (int i = 0; i < 8; ++i)
    trace.run("aten::mm", "[[256, 4096], [4096, 6144]]", std::llround(kFlops / 900e3), kForward,
              "gemm");  // 900 of 989 TFLOP/s
  constexpr std::int64_t kElements = std::int64_t{1} << 20;
  trace.gather(kElements, 8, std::llround(7 * 2.0 * kElements / 440));  // 440 of 450 GB/s
  const auto calibration = calibrated(trace.text());
  ASSERT_TRUE(calibration) << calibration.error().message();
  const Gpu& gpu = calibration->gpu;
  const CostTables tables = load_cost_tables(load_gpu("h100", kGpus).value().tables).value();
  double fastest = 0;
  for (const GemmRow& row : tables.gemm) fastest = std::max(fastest, row.flops_per_ns);
  EXPECT_NEAR(gpu.gemm_scale * fastest, 989e3, 1);
  double bus = 0;
  for (const CollectiveRow& row : tables.collective)
    bus = std::max(bus, row.bytes * (row.ranks - 1) / row.ranks /
                            std::min(row.all_gather_ns, row.reduce_scatter_ns));
  EXPECT_NEAR(gpu.link_efficiency * bus, 450, 0.01);
  EXPECT_THAT(calibration->notes, testing::Contains(HasSubstr("which exceeds the peak of h100")));
  EXPECT_THAT(calibration->notes, testing::Contains(HasSubstr("which exceeds the link of h100")));
}

/// The shortest time of a size counts: the others include waits for late ranks.
TEST_F(CalibrateTraces, TakeTheShortestCollective) {
  RunTrace trace = blocks(8);
  constexpr std::int64_t kElements = std::int64_t{8} << 20;
  const std::int64_t predicted =
      base()
          .collective(CollectiveKind::all_gather, Bytes(8 * 2 * kElements), {.ranks = 8})
          .duration.value;
  trace.gather(kElements, 8, 5 * predicted);
  trace.gather(kElements, 8, predicted * 10 / 8);
  const auto calibration = calibrated(trace.text());
  ASSERT_TRUE(calibration) << calibration.error().message();
  EXPECT_NEAR(calibration->gpu.link_efficiency, 0.8, 1e-3);
}

TEST_F(CalibrateTraces, NameWhatTheyCannotAttribute) {
  const auto calibration = calibrated(blocks(8).text());
  ASSERT_TRUE(calibration) << calibration.error().message();
  const CostModel costs = base();
  // A block's time: GEMMs at twice the prediction, attention, and 10 us of an addition.
  double block = 10000 + static_cast<double>(costs.kernel(attention()).value * 5 / 4);
  for (const GemmKind kind :
       {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient})
    block += 2 * static_cast<double>(costs.kernel(product(kind, 2048, 6144, 4096)).value);
  EXPECT_THAT(calibration->notes,
              testing::Contains(HasSubstr(
                  fmt::format("{:.1f} % of kernel time is neither GEMM", 100 * 10000 / block))));
  EXPECT_THAT(calibration->notes, testing::Contains(HasSubstr("% elementwise")));
  EXPECT_THAT(calibration->notes, testing::Contains(HasSubstr("includes the profiler's own work")));
}

/// A recomputed block launches forward's GEMMs in backward's thread.
TEST_F(CalibrateTraces, KnowForwardAgainInBackward) {
  RunTrace trace = blocks(8);
  const CostModel costs = base();
  trace.run("aten::mm", "[[2048, 4096], [4096, 6144]]",
            2 * costs.kernel(product(GemmKind::forward, 2048, 6144, 4096)).value, kBackward,
            "gemm");
  const auto calibration = calibrated(trace.text());
  ASSERT_TRUE(calibration) << calibration.error().message();
  EXPECT_NEAR(calibration->gpu.gemm_scale, 0.5, 1e-4);
}

TEST_F(CalibrateTraces, AreOfNothingAboveThePeak) {
  const auto error_of = [&](const RunTrace& trace) {
    const auto calibration = calibrated(trace.text());
    return calibration ? std::string() : calibration.error().message();
  };
  const std::string mine = (folder_ / "run.json").string() + ": ";
  RunTrace product = blocks(8);
  for (int i = 0; i < 40; ++i)
    product.run("aten::mm", "[[2048, 4096], [4096, 6144]]", 200, kForward, "gemm");
  EXPECT_EQ(error_of(product), mine +
                                   "a GEMM of 2048 x 6144 x 4096 runs at 5.154e+05 TFLOP/s, "
                                   "above the peak of h100, 989 TFLOP/s; expected a trace of "
                                   "h100 (--gpu)");
  RunTrace gather = blocks(8);
  gather.gather(std::int64_t{8} << 20, 8, 1000);
  EXPECT_THAT(error_of(gather), HasSubstr("all_gather on 8 GPUs has a bus bandwidth of "));
  RunTrace copy = blocks(8);
  copy.copy(std::int64_t{1} << 30, 1000);
  EXPECT_THAT(error_of(copy), HasSubstr("above the 3350 GB/s of the memory of h100"));
}

TEST_F(CalibrateTraces, SayWhatIsMissing) {
  const auto without_shapes = calibrated(
      R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, )"
      R"("dur": 1.0, "args": {"device": 0, "stream": 7}}]})");
  ASSERT_FALSE(without_shapes);
  EXPECT_THAT(without_shapes.error().message(), HasSubstr("run.json: has no shapes of operators"));
  const auto empty = calibrated(R"({"traceEvents": []})");
  ASSERT_FALSE(empty);
  EXPECT_THAT(empty.error().message(), HasSubstr("run.json: has no kernel of a GPU"));
  const auto wrong = calibrated(R"({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k"}]})");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(), HasSubstr("run.json: event 0 (\"k\"): lacks \"ts\""));
}

}  // namespace
}  // namespace mfsdp
