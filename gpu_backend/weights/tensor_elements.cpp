#include "gpu_backend/weights/tensor_elements.hpp"

#include <cstring>

#include "core/runtime/scalar.hpp"

namespace mfsdp {

void read_elements(const SafeTensor& tensor, std::int64_t begin, std::span<double> out) {
  with_floating(floating_dtype(tensor.dtype).value(), [&]<class T>(T element) {
    const std::byte* from = tensor.data.data() + begin * static_cast<std::int64_t>(sizeof(T));
    for (double& value : out) {
      std::memcpy(&element, from, sizeof(T));
      value = widen(element);
      from += sizeof(T);
    }
  });
}

void read_transposed_elements(const SafeTensor& tensor, std::int64_t begin, std::span<double> out) {
  const std::int64_t inputs = tensor.shape.at(tensor.shape.size() - 2);
  const std::int64_t outputs = tensor.shape.back();
  const std::int64_t matrix = inputs * outputs;
  with_floating(floating_dtype(tensor.dtype).value(), [&]<class T>(T element) {
    std::int64_t at = begin;
    for (double& value : out) {
      const std::int64_t within = at % matrix;
      const std::int64_t stored = at - within + within % inputs * outputs + within / inputs;
      std::memcpy(&element, tensor.data.data() + stored * static_cast<std::int64_t>(sizeof(T)),
                  sizeof(T));
      value = widen(element);
      ++at;
    }
  });
}

}  // namespace mfsdp
