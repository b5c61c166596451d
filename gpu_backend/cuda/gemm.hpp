// GEMMs through cuBLASLt. A shape is prepared once: its descriptors, and one algorithm that fits
// the plan's workspace. A run only launches.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "gpu_backend/cuda/cublas_lt.hpp"

namespace mfsdp::cuda {

/// Properties on which the choice of an algorithm depends. Matrices are row-major:
/// c[rows, cols] = scale * op(a)[rows, inner] * op(b)[inner, cols] (+ bias[cols]) (+ c).
struct GemmShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t inner = 0;
  std::int64_t a_row = 0;  ///< distance of stored rows, in elements
  std::int64_t b_row = 0;
  std::int64_t c_row = 0;     ///< 0: c is contiguous
  bool a_transposed = false;  ///< stored as [inner, rows]
  bool b_transposed = false;  ///< stored as [cols, inner]
  bool bias = false;
  bool adds = false;
  DType operands = DType::bf16;  ///< of a, b and bias (16 bits beside FP8); computation is in fp32
  DType result = DType::bf16;
  std::int64_t alignment = 16;  ///< of a, b and c: a power of two, in bytes
  /// Number of equal GEMMs in one launch; the distances of their operands, in elements, follow.
  std::int64_t batch = 1;
  std::int64_t a_step = 0;
  std::int64_t b_step = 0;
  std::int64_t c_step = 0;
  /// FP8 (gemm_fp8.hpp): operands have scales. The type of b, if it is not that of a.
  std::optional<DType> operands_b = {};
  /// FP8: sums stay in the tensor cores, which keep fewer bits, instead of being added up in fp32
  /// at intervals.
  bool fast = false;
  /// FP8: rows of blocks of 128 terms that have one scale, 1 or 128; 0: the operand has one.
  std::int64_t a_scale_rows = 0;
  std::int64_t b_scale_rows = 0;

  friend auto operator<=>(const GemmShape&, const GemmShape&) = default;
};

/// "8192x6144x4096 a bT bf16 -> bf16", for messages.
[[nodiscard]] std::string to_string(const GemmShape& shape);

/// The largest power of two, at most 128, that divides all these addresses and distances.
[[nodiscard]] std::int64_t common_alignment(std::span<const std::uintptr_t> bytes);

/// Device memory of a GEMM.
struct GemmMemory {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  void* c = nullptr;
  float scale = 1;                 ///< factor of the result; no algorithm depends on it
  std::span<std::byte> workspace;  ///< begins on a multiple of 256 bytes
  /// FP8: factors of the operands, on the device. Those of blocks of a row [inner / 128, rows], those
  /// of 128 x 128 [rows / 128, inner / 128, padded to multiples of 4].
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
};

/// An algorithm in the format that ranks exchange and files store. It is valid only for its version
/// of cuBLASLt.
struct GemmAlgorithm {
  GemmShape shape;
  std::array<std::uint64_t, 8> bytes{};
  std::int64_t workspace_bytes = 0;
  std::int64_t nanoseconds = 0;  ///< time of a run when it was chosen; 0: not timed

  friend bool operator==(const GemmAlgorithm&, const GemmAlgorithm&) = default;
};

struct GemmSettings {
  int candidates = 1;    ///< algorithms requested from the heuristics
  int timed_rounds = 0;  ///< timed runs of each candidate; 0: takes the heuristics' first
  /// Time for which the fastest candidates then run without pause: at its power limit a GPU lowers
  /// its clock, for some algorithms more than for others. 0: skipped.
  int sustained_milliseconds = 0;
  /// Also times the fastest with other values of their options, which the heuristics omit.
  bool varies = false;
  /// Excludes algorithms in which several blocks compute parts of a sum.
  bool deterministic = false;
};

/// Measured to be enough: docs/lab/2026-11-21-gemms.md, and for the long search
/// 2026-11-26-many-h200.md.
inline constexpr GemmSettings kSearch{
    .candidates = 16, .timed_rounds = 7, .sustained_milliseconds = 300};
inline constexpr GemmSettings kLongSearch{
    .candidates = 16, .timed_rounds = 7, .sustained_milliseconds = 700, .varies = true};

class GemmPlanner {
 public:
  [[nodiscard]] static Result<GemmPlanner> create(const GemmSettings& settings);

  /// Algorithms from another rank or an earlier run. prepare() uses one for its shape if it still
  /// fits the device, the workspace and the settings.
  void offer(std::span<const GemmAlgorithm> algorithms);

  /// Chooses an algorithm for a shape; no effect if the shape is prepared. With timed rounds it
  /// runs the candidates on `memory` and waits for them. Then results are overwritten, and operands
  /// should not be all zero, because a GPU multiplies zeros faster. Without timed rounds only the
  /// workspace's size matters. The error names the required and the available workspace.
  [[nodiscard]] Result<void> prepare(const GemmShape& shape, const GemmMemory& memory,
                                     cudaStream_t stream);

  /// Queues the GEMM of a prepared shape.
  [[nodiscard]] Result<void> run(const GemmShape& shape, const GemmMemory& memory,
                                 cudaStream_t stream) const;

  /// The chosen algorithms, ordered by shape.
  [[nodiscard]] std::vector<GemmAlgorithm> chosen() const;

 private:
  struct Destroy {
    void operator()(cublasLtContext* handle) const { cublas_lt().destroy(handle); }
  };
  /// cuBLASLt's description of a shape. cuBLASLt computes column-major matrices, so the row-major c
  /// = a b is its c^T = b^T a^T: b is its first operand.
  struct Product {
    cublasLtMatmulDescOpaque_t operation;
    cublasLtMatrixLayoutOpaque_t first;
    cublasLtMatrixLayoutOpaque_t second;
    cublasLtMatrixLayoutOpaque_t result;
  };
  struct Prepared {
    Product product;
    GemmAlgorithm algorithm;
  };

  GemmPlanner(cublasLtHandle_t handle, const GemmSettings& settings)
      : handle_(handle), settings_(settings) {}
  [[nodiscard]] static Result<Product> describe(const GemmShape& shape);
  [[nodiscard]] Result<std::vector<GemmAlgorithm>> candidates(const GemmShape& shape,
                                                              Product& product,
                                                              std::size_t workspace_bytes,
                                                              int most) const;
  /// The algorithm's workspace for a GEMM, in bytes; none if it does not support it.
  [[nodiscard]] std::optional<std::size_t> workspace_of(const cublasLtMatmulAlgo_t& algorithm,
                                                        Product& product) const;
  /// The algorithm with each value of its options that cuBLASLt accepts.
  [[nodiscard]] std::vector<GemmAlgorithm> variants(const GemmAlgorithm& algorithm,
                                                    Product& product,
                                                    std::size_t workspace_bytes) const;
  [[nodiscard]] bool fits(const GemmAlgorithm& offered, Product& product,
                          std::size_t workspace_bytes) const;
  [[nodiscard]] Result<void> time(std::vector<GemmAlgorithm>& algorithms, Product& product,
                                  const GemmMemory& memory, cudaStream_t stream) const;
  [[nodiscard]] Result<void> time_in_turns(std::vector<GemmAlgorithm>& algorithms, int rounds,
                                           const Product& product, const GemmMemory& memory,
                                           cudaStream_t stream) const;
  [[nodiscard]] Result<void> add_variants(std::vector<GemmAlgorithm>& algorithms, Product& product,
                                          const GemmMemory& memory, cudaStream_t stream) const;
  [[nodiscard]] Result<void> time_sustained(std::vector<GemmAlgorithm>& algorithms,
                                            const Product& product, const GemmMemory& memory,
                                            cudaStream_t stream) const;
  [[nodiscard]] Result<void> launch(const Product& product, const GemmAlgorithm& algorithm,
                                    const GemmMemory& memory, cudaStream_t stream) const;

  std::unique_ptr<cublasLtContext, Destroy> handle_;
  GemmSettings settings_;
  std::map<GemmShape, GemmAlgorithm> offered_;
  std::map<GemmShape, Prepared> prepared_;
};

}  // namespace mfsdp::cuda
