// Arbitrary bytes as a safetensors file: an error of one line, or tensors that fill the data
// without a gap, each of the size of its dtype and shape. Changes keep the header JSON.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/formats/safetensors.hpp"
#include "gpu_backend/weights/tensor_elements.hpp"
#include "tests/fuzz/json_mutator.hpp"

namespace {

constexpr std::size_t kLength = sizeof(std::uint64_t);

/// Bytes of the header, or 0 if the file is shorter than the length that it states.
std::size_t header_size(const std::uint8_t* data, std::size_t size) {
  std::uint64_t length = 0;
  if (size < kLength) return 0;
  std::memcpy(&length, data, kLength);
  return length <= size - kLength ? static_cast<std::size_t>(length) : 0;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  const std::size_t header = header_size(data, size);
  if (header == 0 || seed % 4 == 0) return LLVMFuzzerMutate(data, size, most);
  const std::vector<std::uint8_t> tail(data + kLength + header, data + size);
  const std::uint64_t changed =
      mfsdp::fuzz::mutate_json(data + kLength, header, most - kLength - tail.size(), seed);
  std::memcpy(data, &changed, kLength);
  std::ranges::copy(tail, data + kLength + changed);
  return kLength + changed + tail.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const auto file = parse_safetensors(std::as_bytes(std::span(data, size)), "f");
  if (!file) {
    const std::string message = file.error().message();
    if (!message.starts_with("f") || message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const std::byte* end = reinterpret_cast<const std::byte*>(data) + size;
  std::size_t covered = kLength + header_size(data, size);
  for (const SafeTensor& tensor : file->tensors) {
    if (tensor.data.data() + tensor.data.size() > end) std::abort();
    covered += tensor.data.size();
    const auto dtype = floating_dtype(tensor.dtype);
    if (!dtype) continue;
    if (bytes_of(product_of(tensor.shape), *dtype) != Bytes(std::ssize(tensor.data))) std::abort();
    std::vector<double> elements(tensor.data.size() / static_cast<std::size_t>(size_of(*dtype)));
    read_elements(tensor, 0, elements);
  }
  if (covered != size) std::abort();
  return 0;
}
