#include "gpu_backend/cuda/gemm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/gemm_fp8.hpp"
#include "gpu_backend/cuda/handles.hpp"
#include "gpu_backend/cuda/kernels/fp8_blocks.hpp"

namespace mfsdp::cuda {
namespace {

/// Alignment that a plan guarantees for the operands of GEMMs. A better-aligned operand could get
/// another algorithm with other bits, but results must not depend on a buffer's address.
constexpr std::int64_t kMostAlignment = 128;
/// Number of algorithms that are timed under load, and the per cent of the time of the heuristics'
/// choice below which another one is taken. Smaller differences may be noise of the clock; longer
/// runs have less noise.
constexpr std::size_t kFinalists = 4;
constexpr std::int64_t kClearly = 102;
constexpr std::size_t kMoreFinalists = 6;  // with variants
constexpr std::int64_t kMoreClearly = 101;
constexpr std::size_t kVaried = 3;  // algorithms whose options are varied
constexpr int kVariedRounds = 2;
constexpr std::uint32_t kOptions = 64;  // values of an option; algorithms support few of them

Result<cudaDataType_t> data_type(DType dtype) {
  switch (dtype) {
    case DType::bf16: return CUDA_R_16BF;
    case DType::fp16: return CUDA_R_16F;
    case DType::fp32: return CUDA_R_32F;
    case DType::fp8_e4m3: return CUDA_R_8F_E4M3;
    case DType::fp8_e5m2: return CUDA_R_8F_E5M2;
    default: break;
  }
  return fail("gemm", fmt::format("expected a floating dtype of GEMMs, got {}", to_string(dtype)));
}

Result<std::int32_t> scale_mode(std::int64_t rows) {
  switch (rows) {
    case 0: return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    case 1: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case kScaleBlock: return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default: break;
  }
  return fail("gemm", fmt::format("expected scales of 1 or 128 rows, got {}", rows));
}

/// Converts to cuBLASLt's 64-byte type.
cublasLtMatmulAlgo_t opaque(const GemmAlgorithm& algorithm) {
  return std::bit_cast<cublasLtMatmulAlgo_t>(algorithm.bytes);
}

template <class Value>
Result<void> set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t name,
                 const Value& value) {
  return check(cublas_lt().set_operation(&operation, name, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

/// cuBLASLt's first matrix is our b.
Result<void> set_scales(cublasLtMatmulDescOpaque_t& operation, const GemmMemory& memory) {
  MFSDP_TRY(set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, memory.b_scale));
  return set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, memory.a_scale);
}

template <class Value>
Result<void> set(cublasLtMatmulPreferenceOpaque_t& preference,
                 cublasLtMatmulPreferenceAttributes_t name, const Value& value) {
  return check(cublas_lt().set_preference(&preference, name, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
}

/// A row-major [rows, cols] matrix is a column-major [cols, rows] one.
Result<cublasLtMatrixLayoutOpaque_t> layout(cudaDataType_t type, std::int64_t rows,
                                            std::int64_t cols, std::int64_t row) {
  cublasLtMatrixLayoutOpaque_t made{};
  MFSDP_TRY(
      check(cublas_lt().init_layout(&made, sizeof made, type, static_cast<std::uint64_t>(cols),
                                    static_cast<std::uint64_t>(rows), row),
            "cublasLtMatrixLayoutInit"));
  return made;
}

/// `step`: distance of consecutive matrices, in elements.
Result<void> set_batch(cublasLtMatrixLayoutOpaque_t& layout, std::int64_t batch,
                       std::int64_t step) {
  const auto count = static_cast<std::int32_t>(batch);
  MFSDP_TRY(check(
      cublas_lt().set_layout(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
      "cublasLtMatrixLayoutSetAttribute"));
  return check(cublas_lt().set_layout(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                      sizeof step),
               "cublasLtMatrixLayoutSetAttribute");
}

/// At least 1, because 0 means not timed.
std::int64_t median(std::vector<std::int64_t> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return std::max<std::int64_t>(*middle, 1);
}

/// Events around timed runs.
class Stopwatch {
 public:
  static Result<Stopwatch> create() {
    Stopwatch made;
    for (OwnedEvent* event : {&made.begin_, &made.end_}) {
      MFSDP_LET(owned, make_event(true));
      *event = std::move(owned);
    }
    return made;
  }
  [[nodiscard]] Result<void> begin(cudaStream_t stream) const {
    return check(cudaEventRecord(begin_.get(), stream), "cudaEventRecord");
  }
  [[nodiscard]] Result<void> end(cudaStream_t stream) const {
    return check(cudaEventRecord(end_.get(), stream), "cudaEventRecord");
  }
  /// Requires that both events have run.
  [[nodiscard]] Result<std::int64_t> nanoseconds() const {
    float milliseconds = 0;
    MFSDP_TRY(check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()),
                    "cudaEventElapsedTime"));
    return static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

 private:
  OwnedEvent begin_;
  OwnedEvent end_;
};

}  // namespace

std::string to_string(const GemmShape& shape) {
  const auto scales = [](std::int64_t rows) { return fmt::format("{}x128", rows); };
  return fmt::format(
      "{}{}x{}x{} a{} b{} {}{} -> {}{}{}{}{}{}, aligned to {}",
      shape.batch > 1 ? fmt::format("{} of ", shape.batch) : "", shape.rows, shape.cols,
      shape.inner, shape.a_transposed ? "T" : "", shape.b_transposed ? "T" : "",
      to_string(shape.operands),
      shape.operands_b ? fmt::format(" x {}", to_string(*shape.operands_b)) : "",
      to_string(shape.result), shape.fast ? " fast" : "",
      shape.a_scale_rows == 0 ? ""
                              : fmt::format(" with scales {} by {}", scales(shape.a_scale_rows),
                                            scales(shape.b_scale_rows)),
      shape.bias ? " with bias" : "", shape.adds ? " added" : "",
      shape.c_row == 0 ? "" : fmt::format(" in rows of {}", shape.c_row), shape.alignment);
}

std::int64_t common_alignment(std::span<const std::uintptr_t> bytes) {
  std::uintptr_t all = kMostAlignment;
  for (const std::uintptr_t value : bytes) all |= value;
  return std::int64_t{1} << std::countr_zero(all);
}

Result<GemmPlanner> GemmPlanner::create(const GemmSettings& settings) {
  MFSDP_TRY(load_cublas_lt());
  cublasLtHandle_t handle = nullptr;
  MFSDP_TRY(check(cublas_lt().create(&handle), "cublasLtCreate"));
  return GemmPlanner(handle, settings);
}

void GemmPlanner::offer(std::span<const GemmAlgorithm> algorithms) {
  for (const GemmAlgorithm& algorithm : algorithms)
    offered_.insert_or_assign(algorithm.shape, algorithm);
}

Result<GemmPlanner::Product> GemmPlanner::describe(const GemmShape& shape) {
  const bool has_fp8 = is_fp8(shape.operands) || shape.operands_b;
  if (has_fp8) MFSDP_TRY(check_fp8_shape(shape));
  MFSDP_LET(type_a, data_type(shape.operands));
  MFSDP_LET(type_b, data_type(shape.operands_b.value_or(shape.operands)));
  MFSDP_LET(result, data_type(shape.result));
  const auto stored = [](cudaDataType_t type, bool transposed, std::int64_t rows, std::int64_t cols,
                         std::int64_t row) {
    return transposed ? layout(type, cols, rows, row) : layout(type, rows, cols, row);
  };
  MFSDP_LET(first, stored(type_b, shape.b_transposed, shape.inner, shape.cols, shape.b_row));
  MFSDP_LET(second, stored(type_a, shape.a_transposed, shape.rows, shape.inner, shape.a_row));
  MFSDP_LET(third,
            layout(result, shape.rows, shape.cols, shape.c_row == 0 ? shape.cols : shape.c_row));
  Product product{.operation = {}, .first = first, .second = second, .result = third};
  if (shape.batch > 1) {
    MFSDP_TRY(set_batch(product.first, shape.batch, shape.b_step));
    MFSDP_TRY(set_batch(product.second, shape.batch, shape.a_step));
    MFSDP_TRY(set_batch(product.result, shape.batch, shape.c_step));
  }
  MFSDP_TRY(check(cublas_lt().init_operation(&product.operation, sizeof product.operation,
                                             CUBLAS_COMPUTE_32F, CUDA_R_32F),
                  "cublasLtMatmulDescInit"));
  const auto transpose = [](bool yes) { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
  MFSDP_TRY(set(product.operation, CUBLASLT_MATMUL_DESC_TRANSA, transpose(shape.b_transposed)));
  MFSDP_TRY(set(product.operation, CUBLASLT_MATMUL_DESC_TRANSB, transpose(shape.a_transposed)));
  if (shape.bias) {
    MFSDP_TRY(set(product.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
    const cudaDataType_t beside_fp8 = result == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
    MFSDP_TRY(
        set(product.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, has_fp8 ? beside_fp8 : type_a));
  }
  if (has_fp8)
    MFSDP_TRY(set(product.operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM,
                  static_cast<std::int8_t>(shape.fast ? 1 : 0)));
  if (shape.a_scale_rows != 0) {
    MFSDP_LET(mode_of_a, scale_mode(shape.a_scale_rows));
    MFSDP_LET(mode_of_b, scale_mode(shape.b_scale_rows));
    MFSDP_TRY(set(product.operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of_b));
    MFSDP_TRY(set(product.operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of_a));
  }
  return product;
}

Result<std::vector<GemmAlgorithm>> GemmPlanner::candidates(const GemmShape& shape, Product& product,
                                                           std::size_t workspace_bytes,
                                                           int most) const {
  cublasLtMatmulPreferenceOpaque_t preference{};
  MFSDP_TRY(check(cublas_lt().init_preference(&preference, sizeof preference),
                  "cublasLtMatmulPreferenceInit"));
  MFSDP_TRY(set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                static_cast<std::uint64_t>(workspace_bytes)));
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    MFSDP_TRY(set(preference, name, static_cast<std::uint32_t>(shape.alignment)));
  if (settings_.deterministic)
    MFSDP_TRY(set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                  static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE)));

  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status = cublas_lt().heuristic(
      handle_.get(), &product.operation, &product.first, &product.second, &product.result,
      &product.result, &preference, most, found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return std::vector<GemmAlgorithm>{};
  MFSDP_TRY(check(status, fmt::format("cublasLtMatmulAlgoGetHeuristic {}", to_string(shape))));
  found.resize(static_cast<std::size_t>(count));
  std::vector<GemmAlgorithm> algorithms;
  for (const cublasLtMatmulHeuristicResult_t& result : found)
    if (result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes)
      algorithms.push_back({.shape = shape,
                            .bytes = std::bit_cast<std::array<std::uint64_t, 8>>(result.algo),
                            .workspace_bytes = static_cast<std::int64_t>(result.workspaceSize),
                            .nanoseconds = 0});
  return algorithms;
}

std::optional<std::size_t> GemmPlanner::workspace_of(const cublasLtMatmulAlgo_t& algorithm,
                                                     Product& product) const {
  cublasLtMatmulHeuristicResult_t result{};
  if (cublas_lt().check_algorithm(handle_.get(), &product.operation, &product.first,
                                  &product.second, &product.result, &product.result, &algorithm,
                                  &result) != CUBLAS_STATUS_SUCCESS ||
      result.state != CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  return result.workspaceSize;
}

std::vector<GemmAlgorithm> GemmPlanner::variants(const GemmAlgorithm& algorithm, Product& product,
                                                 std::size_t workspace_bytes) const {
  std::vector<GemmAlgorithm> made;
  for (std::uint32_t option = 0; option < kOptions; ++option) {
    cublasLtMatmulAlgo_t varied = opaque(algorithm);
    if (cublas_lt().set_attribute(&varied, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &option,
                                  sizeof option) != CUBLAS_STATUS_SUCCESS)
      continue;
    const std::optional<std::size_t> needed = workspace_of(varied, product);
    if (!needed || *needed > workspace_bytes) continue;
    made.push_back({.shape = algorithm.shape,
                    .bytes = std::bit_cast<std::array<std::uint64_t, 8>>(varied),
                    .workspace_bytes = static_cast<std::int64_t>(*needed),
                    .nanoseconds = 0});
  }
  return made;
}

bool GemmPlanner::fits(const GemmAlgorithm& offered, Product& product,
                       std::size_t workspace_bytes) const {
  if (settings_.timed_rounds > 0 && offered.nanoseconds == 0) return false;
  const cublasLtMatmulAlgo_t algorithm = opaque(offered);
  const std::optional<std::size_t> needed = workspace_of(algorithm, product);
  if (!needed || *needed > workspace_bytes) return false;
  if (!settings_.deterministic) return true;
  std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::size_t written = 0;
  return cublas_lt().attribute_of(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                  sizeof scheme, &written) == CUBLAS_STATUS_SUCCESS &&
         scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

Result<void> GemmPlanner::prepare(const GemmShape& shape, const GemmMemory& memory,
                                  cudaStream_t stream) {
  if (prepared_.contains(shape)) return {};
  if (is_fp8(shape.operands)) {
    MFSDP_TRY(shape.a_scale_rows == 0 ? check_fp8_device() : check_fp8_block_device());
    MFSDP_TRY(check_fp8_scales(shape, memory));
  }
  MFSDP_LET(product, describe(shape));
  // Without the addresses the heuristics refuse scales of blocks as an invalid value.
  if (shape.a_scale_rows != 0) MFSDP_TRY(set_scales(product.operation, memory));
  if (const auto offered = offered_.find(shape);
      offered != offered_.end() && fits(offered->second, product, memory.workspace.size())) {
    prepared_.emplace(shape, Prepared{product, offered->second});
    return {};
  }
  MFSDP_LET(algorithms,
            candidates(shape, product, memory.workspace.size(), std::max(settings_.candidates, 1)));
  if (settings_.timed_rounds > 0) MFSDP_TRY(time(algorithms, product, memory, stream));
  if (algorithms.empty()) {
    const std::size_t unbounded = std::numeric_limits<std::int64_t>::max();
    MFSDP_LET(others, candidates(shape, product, unbounded, 1));
    const std::string where = fmt::format("gemm {}", to_string(shape));
    if (others.empty())
      return fail(where, fmt::format("cuBLASLt {} has no algorithm", cublas_lt().version()),
                  Fault::environment);
    return fail(where,
                fmt::format("needs {} bytes of workspace, the plan has {}",
                            others.front().workspace_bytes, memory.workspace.size()),
                Fault::environment);
  }
  prepared_.emplace(shape, Prepared{product, algorithms.front()});
  return {};
}

/// Moves the chosen algorithm to the front and removes those that cannot run.
Result<void> GemmPlanner::time(std::vector<GemmAlgorithm>& algorithms, Product& product,
                               const GemmMemory& memory, cudaStream_t stream) const {
  std::erase_if(algorithms, [&](const GemmAlgorithm& algorithm) {
    return !launch(product, algorithm, memory, stream);
  });
  if (algorithms.empty()) return {};
  const auto favourite = algorithms.front().bytes;
  const auto place = [&] {
    return std::ranges::find(algorithms, favourite, &GemmAlgorithm::bytes);
  };
  MFSDP_TRY(time_in_turns(algorithms, settings_.timed_rounds, product, memory, stream));
  if (settings_.varies) MFSDP_TRY(add_variants(algorithms, product, memory, stream));
  if (settings_.sustained_milliseconds > 0) {
    const auto kept = std::min(settings_.varies ? kMoreFinalists : kFinalists, algorithms.size());
    if (const auto at = place(); at >= algorithms.begin() + static_cast<std::ptrdiff_t>(kept))
      std::swap(*at, algorithms[kept - 1]);
    algorithms.resize(kept);
    MFSDP_TRY(time_sustained(algorithms, product, memory, stream));
  }
  // Another algorithm replaces the heuristics' choice only if it is clearly faster.
  const std::int64_t clearly = settings_.varies ? kMoreClearly : kClearly;
  if (const auto at = place(); at->nanoseconds * 100 <= algorithms.front().nanoseconds * clearly)
    std::rotate(algorithms.begin(), at, at + 1);
  return {};
}

/// All algorithms are timed again, so that the variants run at the same temperature as the others.
Result<void> GemmPlanner::add_variants(std::vector<GemmAlgorithm>& algorithms, Product& product,
                                       const GemmMemory& memory, cudaStream_t stream) const {
  const std::size_t varied = std::min(kVaried, algorithms.size());
  for (std::size_t i = 0; i < varied; ++i)
    for (const GemmAlgorithm& variant : variants(algorithms[i], product, memory.workspace.size()))
      if (std::ranges::find(algorithms, variant.bytes, &GemmAlgorithm::bytes) == algorithms.end() &&
          launch(product, variant, memory, stream))
        algorithms.push_back(variant);
  return time_in_turns(algorithms, kVariedRounds, product, memory, stream);
}

/// Median time of each. Candidates alternate, so that all run at the same temperature.
Result<void> GemmPlanner::time_in_turns(std::vector<GemmAlgorithm>& algorithms, int rounds,
                                        const Product& product, const GemmMemory& memory,
                                        cudaStream_t stream) const {
  std::vector<std::vector<Stopwatch>> watches(algorithms.size());
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      MFSDP_LET(watch, Stopwatch::create());
      MFSDP_TRY(watch.begin(stream));
      MFSDP_TRY(launch(product, algorithms[i], memory, stream));
      MFSDP_TRY(watch.end(stream));
      watches[i].push_back(std::move(watch));
    }
  MFSDP_TRY(check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    std::vector<std::int64_t> times;
    for (const Stopwatch& watch : watches[i]) {
      MFSDP_LET(nanoseconds, watch.nanoseconds());
      times.push_back(nanoseconds);
    }
    algorithms[i].nanoseconds = median(std::move(times));
  }
  std::ranges::stable_sort(algorithms, {}, &GemmAlgorithm::nanoseconds);
  return {};
}

/// Median time of each over several passes, forward and backward, because the GPU warms up. In a
/// pass an algorithm runs without pause, and the second half is timed.
Result<void> GemmPlanner::time_sustained(std::vector<GemmAlgorithm>& algorithms,
                                         const Product& product, const GemmMemory& memory,
                                         cudaStream_t stream) const {
  constexpr std::int64_t kPasses = 6;
  const std::int64_t half = settings_.sustained_milliseconds * 1'000'000LL / (2 * kPasses);
  MFSDP_LET(watch, Stopwatch::create());
  const auto run_alone = [&](const GemmAlgorithm& algorithm) -> Result<std::int64_t> {
    const std::int64_t runs = std::max<std::int64_t>(half / algorithm.nanoseconds, 1);
    for (std::int64_t i = 0; i < 2 * runs; ++i) {
      if (i == runs) MFSDP_TRY(watch.begin(stream));
      MFSDP_TRY(launch(product, algorithm, memory, stream));
    }
    MFSDP_TRY(watch.end(stream));
    MFSDP_TRY(check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
    MFSDP_LET(nanoseconds, watch.nanoseconds());
    return nanoseconds / runs;
  };
  std::vector<std::vector<std::int64_t>> times(algorithms.size());
  for (std::int64_t pass = 0; pass < kPasses; ++pass)
    for (std::size_t i = 0; i < algorithms.size(); ++i) {
      const std::size_t at = pass % 2 == 0 ? i : algorithms.size() - 1 - i;
      MFSDP_LET(nanoseconds, run_alone(algorithms[at]));
      times[at].push_back(nanoseconds);
    }
  for (std::size_t i = 0; i < algorithms.size(); ++i)
    algorithms[i].nanoseconds = median(std::move(times[i]));
  std::ranges::stable_sort(algorithms, {}, &GemmAlgorithm::nanoseconds);
  return {};
}

Result<void> GemmPlanner::launch(const Product& product, const GemmAlgorithm& algorithm,
                                 const GemmMemory& memory, cudaStream_t stream) const {
  const float beta = algorithm.shape.adds ? 1 : 0;
  const cublasLtMatmulAlgo_t chosen = opaque(algorithm);
  cublasLtMatmulDescOpaque_t operation = product.operation;
  if (algorithm.shape.bias)
    MFSDP_TRY(set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, memory.bias));
  if (is_fp8(algorithm.shape.operands)) MFSDP_TRY(set_scales(operation, memory));
  // The library takes layouts as pointers to mutable memory, but only reads them.
  Product layouts = product;
  return check(cublas_lt().matmul(handle_.get(), &operation, &memory.scale, memory.b,
                                  &layouts.first, memory.a, &layouts.second, &beta, memory.c,
                                  &layouts.result, memory.c, &layouts.result, &chosen,
                                  memory.workspace.data(), memory.workspace.size(), stream),
               "cublasLtMatmul");
}

Result<void> GemmPlanner::run(const GemmShape& shape, const GemmMemory& memory,
                              cudaStream_t stream) const {
  const auto found = prepared_.find(shape);
  if (found == prepared_.end())
    return fail(fmt::format("gemm {}", to_string(shape)), "expected a shape that was prepared");
  const auto& [product, algorithm] = found->second;
  if (static_cast<std::size_t>(algorithm.workspace_bytes) > memory.workspace.size())
    return fail(fmt::format("gemm {}", to_string(shape)),
                fmt::format("was prepared for {} bytes of workspace, the call has {}",
                            algorithm.workspace_bytes, memory.workspace.size()));
  return launch(product, algorithm, memory, stream);
}

std::vector<GemmAlgorithm> GemmPlanner::chosen() const {
  std::vector<GemmAlgorithm> list;
  for (const auto& [shape, prepared] : prepared_) list.push_back(prepared.algorithm);
  return list;
}

}  // namespace mfsdp::cuda
