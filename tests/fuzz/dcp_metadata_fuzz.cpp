// Arbitrary bytes as the .metadata of a distributed checkpoint: an error of one line, or chunks
// inside their tensors, in files of the same folder.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "gpu_backend/convert/readers.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const auto read = read_dcp_metadata({reinterpret_cast<const char*>(data), size}, "f");
  if (!read) {
    const std::string message = read.error().message();
    if (!message.starts_with("f") || message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  for (const DcpEntry& entry : read->entries)
    for (const DcpChunk& chunk : entry.chunks) {
      if (chunk.item.size != 0 && !is_plain_file_name(chunk.file)) std::abort();
      for (std::size_t i = 0; i < chunk.box.sizes.size(); ++i)
        if (chunk.box.offsets[i] + chunk.box.sizes[i] > entry.shape.at(i)) std::abort();
    }
  return 0;
}
