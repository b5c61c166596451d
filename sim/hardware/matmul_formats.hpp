// The numbers that matrix units multiply, beside those of 16 bits.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// fp8: E4M3 (up to 448) and E5M2 of the OCP with a scale a tensor; fp8_fnuz: other types of 8 bits,
/// whose E4M3 goes up to 240; fp8_blocks: fp8 with scales of 1 x 128 and 128 x 128 elements; mxfp8:
/// E4M3 in blocks of 32 with E8M0 scales; nvfp4: E2M1 in blocks of 16 with E4M3 scales.
enum class MatmulFormat { bf16, fp16, fp8, fp8_fnuz, fp8_blocks, mxfp8, nvfp4 };

constexpr auto value_names(MatmulFormat) {
  return name_array("bf16", "fp16", "fp8", "fp8_fnuz", "fp8_blocks", "mxfp8", "nvfp4");
}

/// "bf16, fp16, fp8"; none where a word is not a format.
[[nodiscard]] std::optional<std::vector<MatmulFormat>> parse_formats(std::string_view list);

/// The reverse of parse_formats().
[[nodiscard]] std::string format_list(const std::vector<MatmulFormat>& formats);

struct Gpu;

/// Whether the GPU's matrix units multiply what --fp8 asks for; the error names the flag.
[[nodiscard]] Result<void> check_format(Fp8Recipe recipe, const Gpu& gpu);

}  // namespace mfsdp
