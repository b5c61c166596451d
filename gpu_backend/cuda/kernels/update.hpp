// An optimizer's step on CUDA: one launch over a rank's shard of a group.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <type_traits>

#include "core/base/error.hpp"
#include "core/runtime/calls/update.hpp"

namespace mfsdp::cuda {

/// Combinations of types with kernels: main weights in fp32, or as compute weights in bf16. bf16
/// gradients with fp16 compute weights are Muon's directions.
template <class G, class W, class C>
inline constexpr bool kHasUpdate =
    std::is_same_v<C, Fp16> ? !std::is_same_v<G, Fp16> && std::is_same_v<W, float>
                            : !std::is_same_v<G, Fp16> && !std::is_same_v<W, Fp16> &&
                                  (std::is_same_v<W, float> || std::is_same_v<C, Bf16>);

/// Elements of one tensor in a shard, whose largest magnitude is amax[slot].
struct AmaxRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t slot = 0;
};

/// Where the largest magnitudes of the main weights go, as they are stored after the step, or as
/// they stay if it is skipped: each becomes at least that. Runs are ascending and cover all
/// elements; they are in device memory. No `amax`: not wanted.
struct AmaxOfWeights {
  const AmaxRun* runs = nullptr;
  std::int64_t count = 0;
  float* amax = nullptr;
};

/// `runs`: those of take_decay_runs, in device memory; they are the same in every step. Learning
/// rate, scale and the decision to skip the step are read on the device. G, W and C: those of
/// kHasUpdate. S: fp32, bf16, or bytes. For bytes a warp processes a block of kStateBlock, and all
/// pointers are multiples of 16 bytes, and `amax` is not supported.
template <class G, class W, class C, class S>
[[nodiscard]] Result<void> update(const kernels::Update<G, W, C, S>& k, Optimizer optimizer,
                                  const OptimizerSettings& settings,
                                  std::span<const kernels::DecayRun> runs, cudaStream_t stream,
                                  const AmaxOfWeights& amax = {});

/// Muon's momentum and the directions, which are k.weights. `run`: a single one, of all elements.
/// D: bf16 or fp32, as G.
template <class G, class D, class S>
[[nodiscard]] Result<void> momentum(const kernels::Update<G, D, D, S>& k,
                                    const OptimizerSettings& settings,
                                    std::span<const kernels::DecayRun> run, cudaStream_t stream);

}  // namespace mfsdp::cuda
