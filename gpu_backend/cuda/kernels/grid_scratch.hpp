// Device memory through which a whole grid adds up a number.
#pragma once

#include <cstddef>

namespace mfsdp::cuda {

/// Blocks that write a part of a sum each; given by the work alone, so that equal calls add in
/// one order on every GPU.
inline constexpr int kSumBlocks = 1024;

/// What kernels that end in one number take beside their operands: the plan gives them no scratch.
/// One for each stream that runs such kernels, zeroed once before the first; each leaves
/// `arrived` at 0.
struct GridScratch {
  double parts[kSumBlocks][2];
  unsigned arrived;
};

}  // namespace mfsdp::cuda
