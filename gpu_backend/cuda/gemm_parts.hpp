// GEMMs whose number of columns, rows or terms is no multiple of 8, such as GPT-2's head with 50257
// columns. cuBLASLt's fast kernels take multiples alone, whatever the distance of rows.
#pragma once

#include <array>
#include <cstddef>

#include "gpu_backend/cuda/gemm.hpp"

namespace mfsdp::cuda {

struct GemmPart {
  GemmShape shape;
  GemmMemory memory;
};

/// One or two GEMMs, in this order, that are together the given one.
class GemmParts {
 public:
  explicit GemmParts(const GemmPart& whole) : parts_{whole, {}}, count_(1) {}
  GemmParts(const GemmPart& first, const GemmPart& second) : parts_{first, second}, count_(2) {}

  [[nodiscard]] const GemmPart* begin() const { return parts_.data(); }
  [[nodiscard]] const GemmPart* end() const { return parts_.data() + count_; }

 private:
  std::array<GemmPart, 2> parts_;
  std::size_t count_;
};

/// A large 16-bit GEMM is divided where the elements of a row are no multiple of 8, but rows begin
/// on one: the part with a multiple of 8, then the rest, at most 7 wide. A rest of terms is added
/// to a result that is rounded already. Any other GEMM stays whole.
[[nodiscard]] GemmParts aligned_parts(const GemmPart& whole);

}  // namespace mfsdp::cuda
