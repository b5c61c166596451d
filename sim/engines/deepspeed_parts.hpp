// The layout of parameters in DeepSpeed's ZeRO-1 and ZeRO-2: one flat buffer in the order of modules,
// padded to a multiple of twice the ranks. Each rank's optimizer has an equal part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mfsdp {

/// Bytes of an element of the copies whose norm DeepSpeed computes: fp64.
inline constexpr std::int64_t kNormElement = 8;

// Thousandths of a copy's bandwidth that PyTorch's kernels reached on an H200 where they are slower
// than others (docs/lab/2026-11-30-engines-9.md): casts from bf16 to fp64, and the fused AdamW.
inline constexpr std::int64_t kShareOfWideCasts = 560;
inline constexpr std::int64_t kShareOfUpdate = 750;

class DeepSpeedParts {
 public:
  /// `sizes`: elements of the parameters, in the order of modules.
  DeepSpeedParts(const std::vector<std::int64_t>& sizes, std::int64_t ranks);

  [[nodiscard]] std::int64_t used() const { return begins_.back(); }
  [[nodiscard]] std::int64_t padded() const { return part_ * ranks_; }
  [[nodiscard]] std::int64_t part() const { return part_; }
  /// Whether the rank's part has an element of the parameter.
  [[nodiscard]] bool has(std::int64_t rank, std::size_t parameter) const;
  /// Elements of the parameter in the rank's part.
  [[nodiscard]] std::int64_t shared(std::int64_t rank, std::size_t parameter) const;

  /// Consecutive elements of a bucket that go to one rank.
  struct Slice {
    std::int64_t rank = 0;
    std::int64_t elements = 0;
  };
  /// The slices of parameters that follow each other in a bucket. Neighbours of one rank are one
  /// slice.
  [[nodiscard]] std::vector<Slice> slices(const std::vector<std::size_t>& parameters) const;

 private:
  std::int64_t ranks_;
  std::vector<std::int64_t> begins_;  ///< of parameters in the flat buffer, then its end
  std::int64_t part_;
};

}  // namespace mfsdp
