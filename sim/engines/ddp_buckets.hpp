// Buckets of gradients in torch.nn.parallel.DistributedDataParallel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mfsdp {

/// Positions of tensors that are reduced together, in the order of `bytes`. A bucket ends with the
/// tensor that fills it: the first bucket has `first` bytes or more, the others `others` or more
/// (compute_bucket_assignment_by_size of PyTorch's reducer). Only the last may have less.
[[nodiscard]] std::vector<std::vector<std::size_t>> ddp_buckets(
    const std::vector<std::int64_t>& bytes, std::int64_t first, std::int64_t others);

}  // namespace mfsdp
