// Arbitrary bytes as a GPU file: an error of one line, or a GPU that clusters can be made of.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/hardware/topology.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mfsdp;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto gpu = parse_gpu(text, "gpu.toml");
  if (!gpu) {
    const std::string message = gpu.error().message();
    if (!message.starts_with("gpu.toml")) std::abort();
    if (message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const auto cluster = make_cluster(*gpu, 4 * gpu->domain, gpu->domain);
  if (!cluster) std::abort();
  if (!(gpu->copy_bandwidth() > 0 && gpu->runtime < gpu->capacity)) std::abort();
  const bool alone = gpu->domain == 1;
  if (!alone && !(find_routes(*cluster).domain.bandwidth > 0)) std::abort();
  return 0;
}
