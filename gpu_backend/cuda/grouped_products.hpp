// Products of experts with their rows: which version of kernels/grouped.hpp computes one, and what
// it needs, before the first step.
#pragma once

#include <cuda_runtime.h>

#include <optional>

#include "core/base/error.hpp"
#include "core/plan/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/grouped.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

/// The launch of a product, ready for the current device. Which version it takes depends on types,
/// n and k, on addresses and the device, never on rows: a row's bits are the same for however many
/// there are. `only`: that version; the error says what it cannot do.
template <class T>
[[nodiscard]] Result<Launch> grouped_launch(const kernels::GroupedProduct<T>& p,
                                            cudaStream_t stream,
                                            std::optional<GroupedVersion> only = {});

/// `outlier` is needed under --exact-sums.
template <class T, class G>
[[nodiscard]] Result<Launch> grouped_launch(const kernels::GroupedWeightGradient<T, G>& p,
                                            cudaStream_t stream, ExactOutlier* outlier = nullptr,
                                            std::optional<GroupedVersion> only = {});

}  // namespace mfsdp::cuda
