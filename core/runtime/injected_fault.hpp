// What goes wrong on purpose, so that a test sees how a run ends.
#pragma once

#include <cstdint>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// What goes wrong with one op of one rank in one step.
struct InjectedFault {
  enum class Kind {
    fail,      ///< it fails
    stop,      ///< it never ends
    miscount,  ///< a collective comes with one element less
    kill       ///< the rank's process dies (SIGKILL) as it is issued
  };
  Kind kind = Kind::fail;
  std::int64_t rank = 0;
  OpId op;
  std::int64_t step = 0;  ///< from 0
};

}  // namespace mfsdp
