#include <algorithm>
#include <cctype>
#include <system_error>

#include "gpu_backend/launch/launch_environment.hpp"
#include "gpu_backend/launch/variables.hpp"

namespace mfsdp {
namespace {

bool is_gpu_file(std::string_view name) {
  constexpr std::string_view kPrefix = "nvidia";
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) return false;
  return std::ranges::all_of(name.substr(kPrefix.size()),
                             [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

std::int64_t count_visible_gpus(const Environment& environment,
                                const std::filesystem::path& devices) {
  std::int64_t gpus = 0;
  std::error_code ended;
  for (auto entry = std::filesystem::directory_iterator(devices, ended);
       !ended && entry != std::filesystem::directory_iterator(); entry.increment(ended))
    if (is_gpu_file(entry->path().filename().string())) ++gpus;

  const auto listed = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  if (!listed || gpus == 0) return gpus;
  std::int64_t visible = 0;
  for (std::string_view rest = *listed; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const std::string_view entry = rest.substr(0, comma);
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    const bool is_valid = entry.starts_with("GPU-") || entry.starts_with("MIG-") ||
                          parse_number(entry, 0, gpus - 1).has_value();
    if (!is_valid) break;
    ++visible;
  }
  return visible;
}

}  // namespace mfsdp
