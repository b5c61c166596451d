// The frozen base of QLoRA (Dettmers et al. 2023, arXiv:2305.14314, section 3) in the 4-bit
// NormalFloat of bitsandbytes (functional.py, quantize_4bit with compress_statistics):
//
//   64 elements       4 bits each, the number of one of 16 values, and one scale (their largest
//                     absolute value), which has 8 bits
//   256 such scales   one fp32 scale of theirs: they are quantised again, less their mean
//   a parameter       one fp32, the mean of its scales
//
// That is 4.127 bits an element: 8452 bytes for 64 * 256 elements. The group's flat layout decides
// where these begin. Its shards are multiples of them, so that scales are sharded with their
// elements and every gather moves both. bitsandbytes under FSDP keeps the scales of all weights on
// each rank instead.
//
// Linear layers of blocks are quantised, as `load_in_4bit` of transformers does: not the embedding,
// not the head, no norms, no biases. Before its GEMMs a unit's weights are gathered in 4 bits and
// made into the compute dtype, all at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/quantity.hpp"
#include "core/model/lora.hpp"

namespace mfsdp {

inline constexpr std::int64_t kNf4Block = 64;        ///< elements that share a scale
inline constexpr std::int64_t kNf4ScaleBlock = 256;  ///< scales that share one
inline constexpr std::int64_t kNf4Elements = kNf4Block * kNf4ScaleBlock;
inline constexpr std::int64_t kNf4Bytes = kNf4Elements / 2 + kNf4ScaleBlock + 4;

/// Bytes of n elements, a multiple of kNf4Elements.
[[nodiscard]] inline std::int64_t nf4_bytes(std::int64_t elements) {
  return checked_mul(elements / kNf4Elements, kNf4Bytes);
}

/// Whether a parameter is a matrix of the linear layers that QLoRA quantises.
[[nodiscard]] inline bool is_linear_of_block(const ModelShape& model, ParameterRole role) {
  return std::ranges::any_of(lora_targets(model),
                             [&](const LoraTarget& target) { return target.matrix == role; });
}

}  // namespace mfsdp
