// The record of one op in a run, which is stored and compared with the plan.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// One launch of an op on one rank. A run has one clock. In a list of launches, those of each rank
/// are in the order in which its host issued them.
struct OpLaunch {
  OpId op;
  std::int64_t rank = 0;
  std::int64_t step = 0;           ///< of the run, from 1
  std::optional<StreamId> stream;  ///< that ran it; none for a wait of the host
  std::int64_t drains = 0;         ///< how often the host had waited for all streams before
  Nanos issued;                    ///< the host's last clock reading before the launch
  /// The op ran between these. A collective begins when its rank has reached it and earlier ones of
  /// the communicator have ended, and ends when it has ended on all ranks. An op without duration,
  /// such as an acquire, may have the earliest time at which it can have happened.
  Nanos begin;
  Nanos end;

  friend bool operator==(const OpLaunch&, const OpLaunch&) = default;
};

}  // namespace mfsdp
