// What the kernels take that end a step: gradients into main gradients, loss, norm of all
// gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/plan/loss_scale.hpp"
#include "core/runtime/calls/pieces.hpp"

namespace mfsdp::kernels {

/// out = in, or out += in, rounded once. Also the cast from one dtype to another.
template <class In, class Out>
struct Accumulate {
  std::int64_t count = 0;
  const In* in = nullptr;
  bool adds = false;
  Out* out = nullptr;
  std::optional<GradientGrid> grid = {};
};

/// out = the parts of all ranks in their order, or out += that, rounded once.
template <class In, class Out>
struct SumRanks {
  std::int64_t ranks = 0;
  std::int64_t count = 0;
  const In* in = nullptr;  ///< [ranks, count]
  bool adds = false;
  Out* out = nullptr;  ///< [count]
  std::optional<GradientGrid> grid = {};
};

/// Bytes that become 0, which is zero in every dtype.
struct ZeroPadding {
  std::vector<std::span<std::byte>> gaps;
};

/// Mean loss and 1 / tokens.
template <class T>
struct LossFinish {
  std::span<const T> sums;                ///< loss and tokens of each rank, in rank order
  float* report = nullptr;                ///< [4], a LossReport
  const LossScaleState* scale = nullptr;  ///< of the gradients; null: they are not scaled
};

/// The sum of squares of one slice of gradients.
template <class T>
struct NormPartial {
  std::span<const T> values;
  float* partial = nullptr;
  /// Scratch; empty where a call has none, as not every machine needs it.
  std::span<std::byte> workspace = {};
};

/// The same under --exact-sums: values are multiples of 2^exponent within 24 bits, and the sum is
/// a whole number of squares of such steps.
struct ExactNormPartial {
  std::span<const float> values;
  std::int64_t exponent = 0;
  std::int64_t* partial = nullptr;
  std::span<std::byte> workspace = {};  ///< as of NormPartial
};

/// Norm, clip factor and whether the norm is finite.
struct NormFinish {
  std::span<const float> partials;               ///< empty under --exact-sums
  std::span<const std::int64_t> exact_partials;  ///< empty without
  std::int64_t exponent = 0;                     ///< of their steps
  const float* loss = nullptr;                   ///< [4], a LossReport
  double limit = 0;                              ///< of the norm; 0: no clipping
  float* report = nullptr;                       ///< [4], a NormReport
  LossScaleState* scale = nullptr;               ///< of the next step's loss; null: none
  std::int64_t scale_window = 0;                 ///< next_loss_scale()
};

}  // namespace mfsdp::kernels
