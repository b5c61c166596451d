// Casts with a scale for each block on the CPU, and GEMMs of them (core/plan/kernels/fp8_blocks.hpp):
// the sums of a block are in fp32, times both scales, and added up in fp32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "core/plan/kernels/fp8_blocks.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/fp8.hpp"
#include "verify/cpu/kernels/product.hpp"

namespace mfsdp::kernels {

/// The scale with that number.
[[nodiscard]] inline float scale_at(TypedBytes<const BlockScale> scales, std::int64_t number) {
  switch (scales.dtype) {
    case DType::e8m0: return widen(E8m0{static_cast<std::uint8_t>(scales.data[number].first)});
    case DType::fp8_e4m3:
      return widen(Fp8E4m3{static_cast<std::uint8_t>(scales.data[number].first)});
    default: {
      float value = 0;
      std::memcpy(&value, scales.data + number * 4, sizeof value);
      return value;
    }
  }
}

/// Stores a scale, and returns what it is as stored.
inline float store_scale(TypedBytes<BlockScale> scales, std::int64_t number, float value) {
  switch (scales.dtype) {
    case DType::e8m0:
      scales.data[number].first = static_cast<std::byte>(narrow<E8m0>(value).bits);
      break;
    case DType::fp8_e4m3:
      scales.data[number].first = static_cast<std::byte>(narrow<Fp8E4m3>(value).bits);
      break;
    default: std::memcpy(static_cast<void*>(scales.data + number * 4), &value, sizeof value);
  }
  return scale_at({.data = scales.data, .dtype = scales.dtype}, number);
}

/// Returns the factor of a block's values, from its largest magnitude; stores the block's scale.
/// `tensor_factor`: of nvfp4, what its tensor's scale is 1 by.
[[nodiscard]] inline float block_factor(float amax, float tensor_factor, float largest_input,
                                        TypedBytes<BlockScale> scales, std::int64_t number) {
  constexpr float kMost = fp8_max<Fp8E4m3>;
  switch (scales.dtype) {
    case DType::e8m0: {
      const float stored = store_scale(scales, number, amax * (1 / kMost));
      // A block of zeros, or nearly, has the least scale and is not multiplied by its inverse.
      return stored <= 0x1p-127F ? 1 : 1 / stored;
    }
    case DType::fp8_e4m3: {
      const float stored = store_scale(scales, number, amax / fp8_max<Fp4E2m1> * tensor_factor);
      const float factor = tensor_factor / stored;
      return std::isinf(factor) ? std::numeric_limits<float>::max() : factor;
    }
    default: {
      const bool is_usual = amax != 0 && std::isfinite(amax);
      const float factor = is_usual ? std::min(kMost / amax, largest_input) : 1;
      store_scale(scales, number, 1 / factor);
      return factor;
    }
  }
}

/// Values as a matrix or as its transpose.
template <class T>
struct SourceMatrix {
  const T* data = nullptr;
  std::int64_t row = 0;  ///< elements to the next row of what is cast
  std::int64_t col = 0;  ///< and to the next column

  [[nodiscard]] float at(std::int64_t r, std::int64_t c) const {
    return static_cast<float>(widen(data[r * row + c * col]));
  }
};

/// The largest finite number of a type, as a float.
template <class T>
[[nodiscard]] float largest_of() {
  if constexpr (std::is_same_v<T, Fp16>) return 65504;
  if constexpr (std::is_same_v<T, Bf16>) return widen(Bf16{0x7f7f});
  return std::numeric_limits<float>::max();
}

/// Casts `rows` rows of `blocks` blocks.
template <class T>
void cast_blocks_to(const CastBlocks<T>& k, const SourceMatrix<T>& from, std::int64_t rows,
                    std::int64_t blocks, float tensor_factor, TypedBytes<BlockCode> codes,
                    TypedBytes<BlockScale> scales) {
  const std::int64_t tile = k.block / k.lines;  // rows of a block
  for (std::int64_t line = 0; line < rows / tile; ++line)
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t col = block * k.block;
      float most = 0;
      for (std::int64_t r = 0; r < tile; ++r)
        for (std::int64_t c = 0; c < k.block; ++c)
          most = larger_magnitude(most, std::fabs(from.at(line * tile + r, col + c)));
      const float factor =
          block_factor(most, tensor_factor, largest_of<T>(), scales, block * (rows / tile) + line);
      for (std::int64_t r = line * tile; r < (line + 1) * tile; ++r) {
        BlockCode* to = codes.data + (r * blocks + block) * k.codes;
        for (std::int64_t c = 0; c < k.block; ++c) {
          const float value = from.at(r, col + c) * factor;
          if (codes.dtype == DType::fp8_e4m3) {
            to[c].bits = narrow<Fp8E4m3>(value).bits;
          } else {
            const std::uint8_t code = narrow<Fp4E2m1>(value).bits;
            std::uint8_t& both = to[c / 2].bits;
            both = c % 2 == 0 ? code : static_cast<std::uint8_t>(both | (code << 4U));
          }
        }
      }
    }
}

template <class T>
void cast_blocks(const CastBlocks<T>& k) {
  const std::int64_t rows = k.blocks_t * k.block;
  const std::int64_t cols = k.blocks * k.block;
  float tensor_factor = 1;
  if (k.amax != nullptr) {
    tensor_factor = cast_factor(*k.amax, fp8_max<Fp8E4m3> * fp8_max<Fp4E2m1>);
    *k.tensor_scale = 1 / tensor_factor;
  }
  if (k.output.data != nullptr)
    cast_blocks_to(k, {.data = k.input, .row = cols, .col = 1}, rows, k.blocks, tensor_factor,
                   k.output, k.output_scale);
  if (k.output_t.data != nullptr)
    cast_blocks_to(k, {.data = k.input, .row = 1, .col = cols}, cols, k.blocks_t, tensor_factor,
                   k.output_t, k.output_t_scale);
}

/// Values of codes, without scales, of a block of some rows: [rows, block].
template <class C>
void widen_block(const BlockGemm<C>& g, TypedBytes<const BlockCode> matrix, std::int64_t first,
                 std::int64_t rows, std::int64_t block, std::vector<float>& to) {
  to.resize(static_cast<std::size_t>(rows * g.block));
  for (std::int64_t r = 0; r < rows; ++r) {
    const BlockCode* from = matrix.data + ((first + r) * g.blocks + block) * g.codes;
    float* out = to.data() + r * g.block;
    for (std::int64_t c = 0; c < g.block; ++c)
      if (matrix.dtype == DType::fp8_e4m3)
        out[c] = kFp8E4m3Values[from[c].bits];
      else
        out[c] = widen(Fp4E2m1{static_cast<std::uint8_t>(from[c / 2].bits >> (c % 2 * 4))});
  }
}

template <class C>
void block_gemm(const BlockGemm<C>& g) {
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kCols = 512;
  float scale = g.scale;
  if (g.a_tensor_scale != nullptr) scale *= *g.a_tensor_scale * *g.b_tensor_scale;
  const std::int64_t b_tile = g.cols / g.b_lines;  // rows of b with one scale
  std::vector<float> a, b, of_block(static_cast<std::size_t>(kRows * kCols)), sums(of_block.size());
  for (std::int64_t col = 0; col < g.cols; col += kCols) {
    const std::int64_t cols = std::min(kCols, g.cols - col);
    for (std::int64_t row = 0; row < g.rows; row += kRows) {
      const std::int64_t rows = std::min(kRows, g.rows - row);
      std::ranges::fill(sums, 0.0F);
      for (std::int64_t block = 0; block < g.blocks; ++block) {
        widen_block(g, g.a, row, rows, block, a);
        widen_block(g, g.b, col, cols, block, b);
        multiply(Matrix<const float>{.data = a.data(), .row = g.block},
                 Matrix<const float>{.data = b.data(), .row = g.block, .transposed = true},
                 Matrix<float>{.data = of_block.data(), .row = cols}, rows, cols, g.block);
        for (std::int64_t i = 0; i < rows; ++i) {
          const float a_scale = scale_at(g.a_scale, block * g.rows + row + i);
          for (std::int64_t j = 0; j < cols; ++j)
            sums[static_cast<std::size_t>(i * cols + j)] +=
                a_scale * scale_at(g.b_scale, block * g.b_lines + (col + j) / b_tile) *
                of_block[static_cast<std::size_t>(i * cols + j)];
        }
      }
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
          C& out = g.c[(row + i) * g.cols + col + j];
          auto sum = static_cast<Real<C>>(scale * sums[static_cast<std::size_t>(i * cols + j)]);
          if (g.adds) sum += widen(out);
          out = narrow<C>(sum);
        }
    }
  }
}

}  // namespace mfsdp::kernels
