// What no plan of a configuration can beat, computed without building one. A search prunes by it.
//
// Memory: least_allocated(). Time: what one GPU must do one after another in a step.
//
//   step >= m W_s + fill_s                        for every stage s (of one: fill is 0)
//   W_s     kernels and unhidden collectives of its blocks in one microbatch, forward and backward
//   fill_s  forward of the first chunks of the stages before, until its first microbatch arrives,
//           and their backward, after its last gradient left: for equal stages the bubble,
//           (p - 1) / (m v) of the work
//
// Why it cannot err:
//   - W_s has ops of the very tables that emit the plan, on the compute stream, which runs them one
//     after another; each is priced by the cost model that simulates the plan. Contention, waits,
//     transfers between stages, gathers and the optimizer only add.
//   - The first op of stage s needs the forward of all chunks before its first one. Its last op is
//     a backward of that chunk, since others are followed by one on the same stage, and the gradient
//     then passes the same chunks. Where weight gradients wait (zb_h1) the last op may be one of
//     these, and only forward counts.
//   - Prices depend on the clock, and that on what else a step does: least_step() is the least over
//     all clocks, and the fill, which other GPUs compute, is at the highest clock.
//
// Jitter, and routing that is not balanced, change prices: then no bound of time is known.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "sim/cost/power_mix.hpp"
#include "sim/predict/prediction_request.hpp"

namespace mfsdp {

/// Caches prices of units, which many configurations share. Thread-safe.
class StepFloors {
 public:
  /// Nanoseconds that a step takes at least; 0 if no bound is known: of other engines, with jitter
  /// or routing, or where sizes overflow.
  [[nodiscard]] double of(const PredictionRequest& request);

  /// The figures of a run that no run of the request beats: its speed, memory and cluster.
  [[nodiscard]] RunFigures best_case(const PredictionRequest& request);

 private:
  /// What a GPU does one after another.
  struct Work {
    StepWork kernels;
    double collectives = 0;  ///< ns

    Work& operator+=(const Work& other);
    [[nodiscard]] Work times(double count) const;
    [[nodiscard]] double shortest() const { return at_highest_clock(kernels) + collectives; }
  };
  /// One microbatch of a unit.
  struct UnitTimes {
    Work forward;
    Work backward;
  };
  using Units = std::shared_ptr<const std::vector<UnitTimes>>;
  struct Known {
    PlanConfig config;
    const CostModel* costs = nullptr;
    std::shared_ptr<const CostModel> kept;  ///< so that the address stays its own
    Units units;
  };

  [[nodiscard]] Units units_of(const PredictionRequest& request);
  [[nodiscard]] static Units priced(const PredictionRequest& request, const PlanConfig& key);
  [[nodiscard]] static double floor_of(const PlanConfig& config,
                                       const std::vector<UnitTimes>& units, const Gpu& gpu);

  std::mutex mutex_;
  std::unordered_multimap<std::size_t, Known> known_;
};

}  // namespace mfsdp
