// Grouped GEMMs of experts: chooses the version of kernels/grouped.hpp before the first step, and
// prepares its descriptors.
#pragma once

#include <cuda_runtime.h>

#include <optional>

#include "core/base/error.hpp"
#include "core/plan/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/grouped.hpp"
#include "gpu_backend/cuda/launch.hpp"

namespace mfsdp::cuda {

/// The launch of a grouped GEMM, for the current device. The choice of the version depends on
/// types, n and k, addresses and the device, but never on rows: a row has the same bits for any
/// number of rows. `only`: requires that version; the error names what it does not support.
template <class T>
[[nodiscard]] Result<Launch> grouped_launch(const kernels::GroupedProduct<T>& p,
                                            cudaStream_t stream,
                                            std::optional<GroupedVersion> only = {});

/// --exact-sums requires `outlier`.
template <class T, class G>
[[nodiscard]] Result<Launch> grouped_launch(const kernels::GroupedWeightGradient<T, G>& p,
                                            cudaStream_t stream, ExactOutlier* outlier = nullptr,
                                            std::optional<GroupedVersion> only = {});

}  // namespace mfsdp::cuda
