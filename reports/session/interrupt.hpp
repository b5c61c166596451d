// Signals that end long work in order.
#pragma once

#include <atomic>
#include <string_view>

namespace mfsdp {

/// Set by the first of the signals caught, so that work can end with what it has.
[[nodiscard]] const std::atomic<bool>& interrupted();

/// From now on the first SIGINT, SIGTERM or SIGHUP (unless that is ignored, as under nohup) sets
/// `interrupted` and writes `says` with an end of line to standard error, at once; nothing where it
/// is empty. Further ones within a second are the same request, which shells and launchers send
/// more than once; a later one ends the process. To be called once, while there is one thread.
void catch_interrupts(std::string_view says);

}  // namespace mfsdp
