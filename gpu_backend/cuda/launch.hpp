// The launch of an op, prepared before the first step.
#pragma once

#include <functional>

#include "core/base/error.hpp"

namespace mfsdp::cuda {

/// Queues an op on its stream; allocates nothing and makes no choices.
using Launch = std::function<Result<void>()>;

}  // namespace mfsdp::cuda
