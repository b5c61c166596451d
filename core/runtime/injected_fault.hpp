// Faults that a test injects to see how a run ends.
#pragma once

#include <cstdint>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// A fault in one op of one rank in one step.
struct InjectedFault {
  enum class Kind {
    fail,      ///< the op fails
    stop,      ///< the op never ends
    miscount,  ///< a collective has one element less
    kill       ///< the rank's process dies (SIGKILL) as it is issued
  };
  Kind kind = Kind::fail;
  std::int64_t rank = 0;
  OpId op;
  std::int64_t step = 0;  ///< from 0
};

}  // namespace mfsdp
