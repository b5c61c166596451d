#include "sim/hardware/matmul_formats.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ranges>

#include "sim/hardware/gpu.hpp"

namespace mfsdp {
namespace {

std::optional<MatmulFormat> format_of(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::off: return std::nullopt;
    case Fp8Recipe::current:
    case Fp8Recipe::delayed: return MatmulFormat::fp8;
    case Fp8Recipe::blockwise: return MatmulFormat::fp8_blocks;
    case Fp8Recipe::mxfp8: return MatmulFormat::mxfp8;
    case Fp8Recipe::nvfp4: return MatmulFormat::nvfp4;
  }
  return std::nullopt;
}

}  // namespace

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

Result<void> check_format(Fp8Recipe recipe, const Gpu& gpu) {
  const std::optional<MatmulFormat> format = format_of(recipe);
  if (!format || gpu.multiplies(*format)) return {};
  const std::string has = gpu.formats.empty()
                              ? fmt::format(
                                    "the file of {} does not state what its matrix units multiply "
                                    "(compute.matmul_formats)",
                                    gpu.name)
                              : fmt::format("{} multiplies {}", gpu.name, format_list(gpu.formats));
  return fail("--fp8", fmt::format("expected a recipe whose numbers the GPU multiplies, got {}, "
                                   "which needs {}: {}",
                                   to_string(recipe), to_string(*format), has));
}

std::string format_list(const std::vector<MatmulFormat>& formats) {
  return fmt::format("{}", fmt::join(formats | std::views::transform([](MatmulFormat format) {
                                       return to_string(format);
                                     }),
                                     ", "));
}

}  // namespace mfsdp
