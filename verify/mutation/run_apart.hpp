// Runs work that may crash or never end, each item in a separate process.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// How a process ended, and the output that it sent before.
struct ApartEnd {
  std::string told;
  int signal = 0;     ///< signal that ended it; 0: none
  bool late = false;  ///< it exceeded the limit and was ended
};

struct ApartSettings {
  std::size_t at_once = 1;
  std::chrono::milliseconds limit{30'000};  ///< for each process
};

/// Runs work(i, tell) for each i below `count` in a separate process, which ends when `work`
/// returns. `tell` sends text to this process. Calls done(i, end) for each, in the order in which
/// they end; if it returns false, no more processes are started and the running ones are ended.
/// Call it only while the program has one thread. Errors: a process cannot be started.
[[nodiscard]] Result<void> run_apart(
    std::size_t count, const ApartSettings& settings,
    const std::function<void(std::size_t, const std::function<void(std::string_view)>&)>& work,
    const std::function<bool(std::size_t, ApartEnd)>& done);

}  // namespace mfsdp
