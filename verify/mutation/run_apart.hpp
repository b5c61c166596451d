// Work in processes of its own, for what may crash or never end.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// How a process ended, and what it had told until then.
struct ApartEnd {
  std::string told;
  int signal = 0;     ///< that ended it; 0: none
  bool late = false;  ///< it was ended for taking longer than the limit
};

struct ApartSettings {
  std::size_t at_once = 1;
  std::chrono::milliseconds limit{30'000};  ///< for each
};

/// Runs work(i, tell) for each i below `count` in a process of its own, which ends when it returns;
/// what is given to `tell` arrives here. Calls done(i, end) for each, in the order in which they
/// end; once it says false no more are begun and those that run are ended. To be called while there
/// is one thread. Errors: no process can be started.
[[nodiscard]] Result<void> run_apart(
    std::size_t count, const ApartSettings& settings,
    const std::function<void(std::size_t, const std::function<void(std::string_view)>&)>& work,
    const std::function<bool(std::size_t, ApartEnd)>& done);

}  // namespace mfsdp
