// Which configuration is the largest, smallest or best that fits.
//
// Every search is exact: it returns what trying every candidate would return. It saves work only
// where memory is known to grow with the candidate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/search/question.hpp"

namespace mfsdp {

/// A candidate that was looked at.
struct Tried {
  std::int64_t value = 0;           ///< micro-batch, sequence length or GPUs
  std::optional<Error> impossible;  ///< why there is no such configuration
  std::optional<Footprint> memory;  ///< where it is possible and the plan was built
  bool can_fit = false;             ///< its lower bound does
  bool fits = false;
};

/// The question for a candidate, or why there is none. Called on the searching thread alone.
using AskFor = std::function<Result<Question>(std::int64_t value)>;

/// Told after each candidate; false stops the search.
using Watch = std::function<bool(const Tried&)>;

struct Found {
  std::optional<std::int64_t> value;  ///< none where nothing fits, or the search was stopped
  std::vector<Tried> tried;           ///< in the order of trying
};

/// The largest of first, first + step, ... up to `last` whose plan fits. Requires that the lower
/// bound of memory grows with the value, as it does with micro-batch and sequence length at a fixed
/// number of microbatches: the search gallops and bisects on the lower bound, then goes down from
/// there to the first candidate whose packed pools fit. A candidate that is impossible ends the
/// range; an error where the first is.
[[nodiscard]] Result<Found> find_largest(std::int64_t first, std::int64_t step, std::int64_t last,
                                         const AskFor& ask, const Watch& watch);

/// The first candidate that fits, in the order given, or the last one. Impossible ones are passed
/// over; an error where all are. Looks at `threads` candidates at a time. Of those that surely do
/// not fit only the closest to the answer are built and have `memory`.
enum class Pick { first, last };
[[nodiscard]] Result<Found> find_among(const std::vector<std::int64_t>& candidates, Pick pick,
                                       unsigned threads, const AskFor& ask, const Watch& watch);

/// Looks at all candidates at once, on `threads` threads, and appends them to `found.tried` in that
/// order, as far as `watch` wants them; `found.value` stays.
void look_at_all(const std::vector<std::int64_t>& candidates, unsigned threads, const AskFor& ask,
                 const Watch& watch, Found& found);

/// A point of memory against speed.
struct TradeOff {
  Bytes memory;      ///< less is better
  double speed = 0;  ///< more is better
};

/// Positions of the points that no other beats in one and equals or beats in the other, by memory.
/// Of equal points the first stays.
[[nodiscard]] std::vector<std::size_t> pareto_front(const std::vector<TradeOff>& points);

}  // namespace mfsdp
