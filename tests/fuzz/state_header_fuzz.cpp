// Arbitrary bytes as the beginning of a rank's file in a save: an error of one line, or a header
// whose entries are contiguous and that reads back as it was written.
#include <cstdlib>
#include <span>
#include <string_view>

#include "gpu_backend/checkpoint/state_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  constexpr std::size_t kPrefix = 16;
  const auto check = [](const Result<StateHeader>& header) {
    if (!header) {
      const std::string message = header.error().message();
      if (!message.starts_with("f.state") || message.find('\n') != std::string::npos) std::abort();
      return;
    }
    std::int64_t end = 0;
    for (const StateEntry& entry : header->entries) {
      if (entry.offset != end || entry.elements.size() < 1) std::abort();
      if (std::ssize(entry.checksums) != pieces_of(entry.elements, header->piece_elements))
        std::abort();
      end += bytes_of(entry);
    }
    const auto back = state_header_from_json(to_json(*header), "f.state");
    if (!back || *back != *header) std::abort();
  };
  const auto bytes = std::as_bytes(std::span(data, size));
  check(parse_state_header(bytes, "f.state"));
  // The input follows a prefix, which random bytes hardly ever get right.
  if (size < kPrefix) return 0;
  check(state_header_from_json({reinterpret_cast<const char*>(data) + kPrefix, size - kPrefix},
                               "f.state"));
  return 0;
}
