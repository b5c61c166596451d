#include "gpu_backend/cuda/gemm_parts.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kGrain = 8;
/// Below this size a second launch may take longer than it saves.
constexpr std::int64_t kLeast = 1024;

const void* moved(const void* from, std::int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(from) + elements * size_of(dtype);
}

/// The size is that of a dimension whose elements are beside each other in an operand.
bool is_ragged(std::int64_t size) { return size >= kLeast && size % kGrain != 0; }

/// The rest's operands begin inside those of the whole.
GemmPart with_own_alignment(GemmPart part) {
  const auto address = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
  part.shape.alignment =
      std::min(part.shape.alignment,
               common_alignment(std::array{address(part.memory.a), address(part.memory.b),
                                           address(part.memory.c)}));
  return part;
}

}  // namespace

GemmParts aligned_parts(const GemmPart& whole) {
  const GemmShape& shape = whole.shape;
  const std::int64_t c_row = shape.c_row == 0 ? shape.cols : shape.c_row;
  const bool rows_are_aligned =
      shape.a_row % kGrain == 0 && shape.b_row % kGrain == 0 && c_row % kGrain == 0;
  if (size_of(shape.operands) != 2 || shape.batch != 1 || !rows_are_aligned)
    return GemmParts(whole);
  GemmPart first = whole;
  GemmPart rest = whole;
  if (is_ragged(shape.cols)) {
    const std::int64_t cols = shape.cols - shape.cols % kGrain;
    first.shape.cols = cols;
    first.shape.c_row = rest.shape.c_row = c_row;
    rest.shape.cols = shape.cols - cols;
    rest.memory.b =
        moved(rest.memory.b, shape.b_transposed ? cols * shape.b_row : cols, shape.operands);
    if (shape.bias) rest.memory.bias = moved(rest.memory.bias, cols, shape.operands);
    rest.memory.c = static_cast<std::byte*>(rest.memory.c) + cols * size_of(shape.result);
  } else if (shape.a_transposed && is_ragged(shape.rows)) {
    const std::int64_t rows = shape.rows - shape.rows % kGrain;
    first.shape.rows = rows;
    rest.shape.rows = shape.rows - rows;
    rest.memory.a = moved(rest.memory.a, rows, shape.operands);
    rest.memory.c = static_cast<std::byte*>(rest.memory.c) + rows * c_row * size_of(shape.result);
  } else if ((!shape.a_transposed || shape.b_transposed) && is_ragged(shape.inner)) {
    const std::int64_t inner = shape.inner - shape.inner % kGrain;
    first.shape.inner = inner;
    rest.shape.inner = shape.inner - inner;
    rest.shape.adds = true;
    rest.shape.bias = false;
    rest.memory.bias = nullptr;
    rest.memory.a =
        moved(rest.memory.a, shape.a_transposed ? inner * shape.a_row : inner, shape.operands);
    rest.memory.b =
        moved(rest.memory.b, shape.b_transposed ? inner : inner * shape.b_row, shape.operands);
  } else {
    return GemmParts(whole);
  }
  return {first, with_own_alignment(rest)};
}

}  // namespace mfsdp::cuda
