#include "gpu_backend/train/held_values.hpp"

#include <cassert>
#include <cstring>

namespace mfsdp {
namespace {

std::byte* address_of(const HeldElements& held, const Interval& elements, std::size_t bytes) {
  assert(held.elements.begin <= elements.begin && elements.end <= held.elements.end);
  assert(static_cast<std::int64_t>(bytes) == elements.size() * size_of(held.dtype));
  static_cast<void>(bytes);
  return held.data + (elements.begin - held.elements.begin) * size_of(held.dtype);
}

}  // namespace

Result<void> download_elements(Backend& backend, const HeldElements& held, const Interval& elements,
                               std::span<std::byte> bytes) {
  return backend.download(address_of(held, elements, bytes.size()), bytes);
}

Result<void> upload_elements(Backend& backend, const HeldElements& held, const Interval& elements,
                             std::span<const std::byte> bytes) {
  return backend.upload(bytes, address_of(held, elements, bytes.size()));
}

std::vector<std::byte> rounded(std::span<const double> values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(dtype)));
  with_floating(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = narrow<T>(static_cast<Real<T>>(values[i]));
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
  });
  return bytes;
}

Result<void> clear(Backend& backend, std::span<std::byte> device) {
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const std::vector<std::byte> zeros(std::min(kBytes, device.size()));
  for (std::size_t at = 0; at < device.size(); at += zeros.size())
    MFSDP_TRY(backend.upload(std::span(zeros).first(std::min(zeros.size(), device.size() - at)),
                             device.data() + at));
  return {};
}

}  // namespace mfsdp
