// Signals that end long work in order.
#pragma once

#include <atomic>
#include <initializer_list>

namespace mfsdp {

/// Set by the first of the signals caught, so that work can end with what it has.
[[nodiscard]] const std::atomic<bool>& interrupted();

/// From now on the first of each of these signals sets `interrupted`; the second ends the process.
void catch_interrupts(std::initializer_list<int> signals);

}  // namespace mfsdp
