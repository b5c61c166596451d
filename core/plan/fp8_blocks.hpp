// Scales of blocks: the formats of recipes in which some values, and not a whole tensor, have a scale.
//
//   recipe      values    block    of weights   scales                      scales of a tensor
//   blockwise   E4M3      1 x 128  128 x 128    fp32: amax / 448            -
//   mxfp8       E4M3      1 x 32   1 x 32       E8M0: amax / 448, up        -
//   nvfp4       E2M1      1 x 16   1 x 16       E4M3: amax / 6 / tensor's   fp32: amax / (448 * 6)
//
// A block lies along what a GEMM sums over, so that a matrix and its transpose have other blocks, and
// each cast is made of the values themselves.
#pragma once

#include <cstdint>
#include <optional>

#include "core/plan/config.hpp"

namespace mfsdp {

struct BlockFormat {
  DType codes = DType::fp8_e4m3;
  DType scales = DType::fp32;
  std::int64_t block = 0;        ///< values in a row of a block
  std::int64_t codes_of = 0;     ///< elements of `codes` that they are
  std::int64_t weight_rows = 1;  ///< rows of a block of weights
  bool has_tensor_scale = false;

  /// Lines of scales for each `block` rows of a matrix.
  [[nodiscard]] std::int64_t lines(bool of_weight) const {
    return of_weight ? block / weight_rows : block;
  }
};

/// None for recipes whose scales are of whole tensors.
[[nodiscard]] constexpr std::optional<BlockFormat> block_format(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::blockwise:
      return BlockFormat{.scales = DType::fp32, .block = 128, .codes_of = 128, .weight_rows = 128};
    case Fp8Recipe::mxfp8: return BlockFormat{.scales = DType::e8m0, .block = 32, .codes_of = 32};
    case Fp8Recipe::nvfp4:
      return BlockFormat{.codes = DType::fp4_e2m1x2,
                         .scales = DType::fp8_e4m3,
                         .block = 16,
                         .codes_of = 8,
                         .has_tensor_scale = true};
    case Fp8Recipe::off:
    case Fp8Recipe::current:
    case Fp8Recipe::delayed: break;
  }
  return std::nullopt;
}

/// Whether casts read the largest magnitude of the tensor itself.
[[nodiscard]] constexpr bool takes_amaxes(Fp8Recipe recipe) {
  return recipe == Fp8Recipe::current || recipe == Fp8Recipe::nvfp4;
}
/// Whether those of that block's layers do.
[[nodiscard]] inline bool takes_amaxes(const PlanConfig& config, std::int64_t block) {
  return config.has_fp8(block) && takes_amaxes(config.fp8);
}

}  // namespace mfsdp
