#include "sim/hardware/matmul_formats.hpp"

namespace mfsdp {

std::optional<std::vector<MatmulFormat>> parse_formats(std::string_view list) {
  constexpr std::string_view kBetween = ", ";
  std::vector<MatmulFormat> formats;
  for (;;) {
    const std::size_t end = list.find(kBetween);
    const auto format = parse<MatmulFormat>(list.substr(0, end));
    if (!format) return std::nullopt;
    formats.push_back(*format);
    if (end == std::string_view::npos) return formats;
    list.remove_prefix(end + kBetween.size());
  }
}

std::string format_list(const std::vector<MatmulFormat>& formats) {
  std::string list;
  for (const MatmulFormat format : formats) {
    if (!list.empty()) list += ", ";
    list += to_string(format);
  }
  return list;
}

}  // namespace mfsdp
