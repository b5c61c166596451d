// Arbitrary bytes as the manifest of a save: an error of one line, or a manifest that reads back as
// it was written.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "gpu_backend/checkpoint/format.hpp"
#include "tests/fuzz/json_mutator.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto manifest = manifest_from_json(text, "manifest.json");
  if (!manifest) {
    const std::string message = manifest.error().message();
    if (!message.starts_with("manifest.json") || message.find('\n') != std::string::npos)
      std::abort();
    return 0;
  }
  const std::string written = to_json(*manifest);
  const auto back = manifest_from_json(written, "manifest.json");
  if (!back || to_json(*back) != written) std::abort();
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return mfsdp::fuzz::mutate_json(data, size, most, seed);
}
