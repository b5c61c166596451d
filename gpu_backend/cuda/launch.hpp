// What an op of the plan becomes before the first step.
#pragma once

#include <functional>

#include "core/base/error.hpp"

namespace mfsdp::cuda {

/// Queues an op on its stream; allocates and decides nothing.
using Launch = std::function<Result<void>()>;

}  // namespace mfsdp::cuda
