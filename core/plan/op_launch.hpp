// What a run did with one op of its plan: the record that is stored and held against the plan.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// One launch of an op on one rank. All times of a run are of one clock. A list of launches holds
/// each rank's in the order in which its host issued them.
struct OpLaunch {
  OpId op;
  std::int64_t rank = 0;
  std::int64_t step = 0;           ///< of the run, from 1
  std::optional<StreamId> stream;  ///< that ran it; none where the host waited itself
  std::int64_t drains = 0;         ///< how often the host had waited for all streams before
  Nanos issued;                    ///< not before this, when its host last looked at the clock
  /// What it does happens between these. Of a collective, `begin` is when its rank had come to it
  /// and those before it on the communicator had ended, `end` when it had for all ranks. What takes
  /// no time, as an acquire, may have the time from which on it can have happened.
  Nanos begin;
  Nanos end;

  friend bool operator==(const OpLaunch&, const OpLaunch&) = default;
};

}  // namespace mfsdp
