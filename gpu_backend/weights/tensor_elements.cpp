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

}  // namespace mfsdp
