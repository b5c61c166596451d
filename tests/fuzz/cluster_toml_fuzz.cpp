// Arbitrary bytes as a cluster file: an error of one line, or a file whose values are in range.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/hardware/cluster_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = parse_cluster_file(text, "cluster.toml");
  if (!file) {
    const std::string message = file.error().message();
    if (!message.starts_with("cluster.toml")) std::abort();
    if (message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  if (file->gpu.empty()) std::abort();
  for (const SlowPart& part : file->slow)
    if (!(part.node >= 0 && part.fraction > 0 && part.fraction <= 1)) std::abort();
  return 0;
}
