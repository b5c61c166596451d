// Differences of two checkpoints, of any formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/model.hpp"
#include "gpu_backend/convert/check_checkpoint.hpp"
#include "gpu_backend/convert/checkpoint.hpp"

namespace mfsdp {

/// A tensor that is not the same in both.
struct TensorDifference {
  std::string name;
  std::string what;                      ///< "is only in the first", "has dtype BF16 and F32", ...
  std::int64_t elements = 0;             ///< that differ
  double largest = 0;                    ///< difference of numbers; infinite beside NaN
  std::vector<std::int64_t> first = {};  ///< index of the first element that differs
};

struct CheckpointDifference {
  std::int64_t compared = 0;  ///< tensors that both have in one shape
  std::vector<TensorDifference> tensors;
};

/// Compares weights and states by parameter, whichever prefixes their writers gave them. With a
/// `model`, names of frameworks are translated first, and fused matrices are taken apart. Elements of
/// one dtype differ if their bits do, of two dtypes if their numbers do. Errors are those of reading,
/// also that a checkpoint has problems.
[[nodiscard]] Result<CheckpointDifference> diff_checkpoints(const Checkpoint& a,
                                                            const Checkpoint& b,
                                                            const std::optional<Model>& model,
                                                            const ReadProgress& progress = {});

}  // namespace mfsdp
