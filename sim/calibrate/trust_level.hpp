// Trust level of a figure, in one word.
#pragma once

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// Evidence for a predicted time, weakest first.
enum class TrustLevel {
  datasheet,   ///< efficiencies of another GPU, applied to a data sheet
  calibrated,  ///< kernels and collectives of this machine were measured one by one
  anchored,    ///< also scaled by the ratio of a measured run
};

constexpr auto value_names(TrustLevel) {
  return name_array("datasheet only", "calibrated by micro-benchmarks",
                    "anchored by a measured run");
}

}  // namespace mfsdp
