// The learning rate after the warm-up.
#pragma once

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// `cosine`: half a cosine down to the minimum. `linear`: a line down to it. `constant`: at the
/// peak. `wsd`: at the peak, then a line down to the minimum (warm-up, stable, decay).
enum class RateSchedule { cosine, linear, constant, wsd };

constexpr auto value_names(RateSchedule) {
  return name_array("cosine", "linear", "constant", "wsd");
}

}  // namespace mfsdp
