// Steps of a trace side by side. Private to the analysis.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/formats/kineto.hpp"

namespace mfsdp::traces {

struct StepWindow {
  std::int64_t step = 0;
  Nanos begin;
  Nanos end;
};

/// Those of a device's annotations, or of the host's without one, by begin: each ends where the
/// next begins, so that no time counts twice; the last one ends with its own span.
[[nodiscard]] std::vector<StepWindow> step_windows(const std::vector<StepMark>& marks,
                                                   std::optional<std::int32_t> device);

}  // namespace mfsdp::traces
