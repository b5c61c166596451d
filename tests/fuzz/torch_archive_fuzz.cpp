// Arbitrary bytes as an archive of torch.save: an error of one line, or tensors whose bytes lie in
// the archive, each of the size of its dtype and shape.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "core/formats/torch_archive.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const ByteSource source = memory_source(std::as_bytes(std::span(data, size)), "f");
  const auto archive = read_torch_archive(source, {.offset = 0, .size = size});
  if (!archive) {
    const std::string message = archive.error().message();
    if (!message.starts_with("f") || message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const TorchTensor& tensor : archive->tensors) {
    if (tensor.bytes.offset > size || tensor.bytes.size > size - tensor.bytes.offset) std::abort();
    const std::int64_t bytes = product_of(tensor.shape) * bytes_of(*tensor.type);
    if (bytes != static_cast<std::int64_t>(tensor.bytes.size)) std::abort();
  }
  return 0;
}
