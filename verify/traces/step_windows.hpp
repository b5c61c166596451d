// The steps of a trace as consecutive windows. Private to the analysis.
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

/// Windows from the annotations of `device`, or of the host if it is none, by begin. Each window
/// ends where the next one begins, so no time counts twice. The last one ends with its annotation.
[[nodiscard]] std::vector<StepWindow> step_windows(const std::vector<StepMark>& marks,
                                                   std::optional<std::int32_t> device);

}  // namespace mfsdp::traces
