// Reads tensors that are made from parts of a checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/convert/data_file.hpp"
#include "gpu_backend/convert/model_names.hpp"

namespace mfsdp {

class MappedReader {
 public:
  explicit MappedReader(const Checkpoint& checkpoint) : reader_(checkpoint) {}

  /// Fills `bytes` with elements from `begin` on, in the tensor's own dtype: sources of another one
  /// are rounded to it. Elements without a copy are zero.
  [[nodiscard]] Result<void> read(const MappedTensor& tensor, std::int64_t begin,
                                  std::span<std::byte> bytes);

 private:
  TensorReader reader_;
  std::vector<std::byte> piece_;  ///< of a source with another dtype
};

/// Every tensor of a checkpoint as it is.
[[nodiscard]] std::vector<MappedTensor> unchanged_tensors(const std::vector<NamedTensor>& named);

}  // namespace mfsdp
