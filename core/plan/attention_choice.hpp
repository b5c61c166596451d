// Whose kernels compute attention on GPUs.
#pragma once

#include <array>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// Who computes attention in bf16 on GPUs: mfsdp-exec's own kernels where they take the call, else
/// cuDNN.
enum class AttentionChoice { warpgroups, cudnn };

template <>
struct Names<AttentionChoice> {
  static constexpr std::array<std::string_view, 2> values{"warpgroups", "cudnn"};
};

/// The fact of topic "software" by which a measured run says its AttentionChoice. Runs without it
/// had cuDNN's.
inline constexpr std::string_view kAttentionFact = "attention";

}  // namespace mfsdp
