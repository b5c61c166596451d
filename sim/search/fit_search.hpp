// Finds the largest, or the first, of ordered candidates that fits.
//
// Every search is exact: its answer is that of trying every candidate. It saves work only where
// memory is known to grow with the candidate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/predict/prediction_request.hpp"

namespace mfsdp {

/// A candidate that was tried.
struct Tried {
  std::int64_t value = 0;           ///< micro-batch, sequence length or GPUs
  std::optional<Error> invalid;     ///< why there is no such configuration
  std::optional<Footprint> memory;  ///< of plans that were built
  bool can_fit = false;             ///< its lower bound fits
  bool fits = false;
};

/// The request of a candidate, or why it is invalid. Called on the searching thread alone.
using RequestFor = std::function<Result<PredictionRequest>(std::int64_t value)>;

/// Called after each candidate; false stops the search.
using Watch = std::function<bool(const Tried&)>;

struct Found {
  std::optional<std::int64_t> value;  ///< none if nothing fits, or the search was stopped
  std::vector<Tried> tried;           ///< in the order of trying
};

/// The largest of first, first + step, ... up to `last` whose plan fits. Requires that the lower
/// bound of memory grows with the value, as it does with micro-batch and sequence length at a fixed
/// number of microbatches: the search doubles, then bisects, on the lower bound, and steps down
/// from there to the first candidate whose packed pools fit. An invalid candidate ends the range;
/// it is an error if the first is invalid.
[[nodiscard]] Result<Found> find_largest(std::int64_t first, std::int64_t step, std::int64_t last,
                                         const RequestFor& request_for, const Watch& watch);

/// The first candidate that fits, in the order given, or the last one. Invalid ones are skipped; it
/// is an error if all are. Tries `threads` candidates at a time. If the lower bound of candidates
/// does not fit, only those closest to the answer are built and have `memory`.
enum class Pick { first, last };
[[nodiscard]] Result<Found> find_among(const std::vector<std::int64_t>& candidates, Pick pick,
                                       unsigned threads, const RequestFor& request_for,
                                       const Watch& watch);

/// Tries all candidates on `threads` threads, and appends them to `found.tried` in their order
/// until `watch` stops; `found.value` stays.
void try_all(const std::vector<std::int64_t>& candidates, unsigned threads,
             const RequestFor& request_for, const Watch& watch, Found& found);

/// A point of memory against speed and cost.
struct TradeOff {
  Bytes memory;      ///< less is better
  double speed = 0;  ///< more is better
  double cost = 0;   ///< less is better; equal where it does not matter
};

/// Indices of the points that are not dominated, by memory: no other point is better in one figure
/// and at least as good in the other. The first one of equal points stays.
[[nodiscard]] std::vector<std::size_t> pareto_front(const std::vector<TradeOff>& points);

}  // namespace mfsdp
