// Trust level of a figure, in one word.
#pragma once

#include <string_view>

namespace mfsdp {

/// Evidence for a predicted time, weakest first.
enum class TrustLevel {
  datasheet,   ///< efficiencies of another GPU, applied to a data sheet
  calibrated,  ///< kernels and collectives of this machine were measured one by one
  anchored,    ///< also scaled by the ratio of a measured run
};

[[nodiscard]] constexpr std::string_view trust_text(TrustLevel trust_level) {
  switch (trust_level) {
    case TrustLevel::datasheet: return "datasheet only";
    case TrustLevel::calibrated: return "calibrated by micro-benchmarks";
    case TrustLevel::anchored: return "anchored by a measured run";
  }
  return "";
}

}  // namespace mfsdp
