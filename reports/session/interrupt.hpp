// Signals that end long work in order.
#pragma once

#include <atomic>
#include <string_view>

namespace mfsdp {

/// Set by the first of the signals caught, so that work can end with what it has.
[[nodiscard]] const std::atomic<bool>& interrupted();

/// From now on the first SIGINT, SIGTERM or SIGHUP sets `interrupted`; a signal that is ignored, as
/// under nohup, stays ignored. It also writes the text `says` with a line end to standard error, at
/// once; nothing if it is empty. Further ones within a second count as the same request, because
/// shells and launchers send them repeatedly. A later one ends the process. Call it once, while
/// there is one thread.
void catch_interrupts(std::string_view says);

}  // namespace mfsdp
