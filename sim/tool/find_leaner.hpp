// What a search tries where nothing fits: flags that make a plan smaller and slower.
#pragma once

#include <vector>

#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {

/// --prefetch and --grad-slots, each with its default and with the least, but for what the command
/// line gives. None where an engine is asked for: others have no such choice.
[[nodiscard]] std::vector<SweepAxis> leaner_axes(const SimOptions& options);

/// Every combination of the sweep with every choice of these axes.
[[nodiscard]] Sweep leaner(const Sweep& sweep, const std::vector<SweepAxis>& axes);

}  // namespace mfsdp
