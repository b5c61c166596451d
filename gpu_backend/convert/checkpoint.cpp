#include "gpu_backend/convert/checkpoint.hpp"

#include <algorithm>

namespace mfsdp {

std::int64_t TensorBox::elements() const { return product_of(sizes); }

std::int64_t CheckpointTensor::elements() const { return product_of(shape); }

std::int64_t CheckpointTensor::bytes() const { return checked_mul(elements(), bytes_of(*type)); }

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto at = std::ranges::lower_bound(tensors, name, {}, &CheckpointTensor::name);
  return at == tensors.end() || at->name != name ? nullptr : &*at;
}

std::int64_t Checkpoint::bytes() const {
  std::int64_t sum = 0;
  for (const CheckpointTensor& tensor : tensors) sum = checked_add(sum, tensor.bytes());
  return sum;
}

}  // namespace mfsdp
