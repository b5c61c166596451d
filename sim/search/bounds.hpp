// Bounds that no plan of a configuration beats, computed without building one. A search prunes by
// them.
//
// Memory: least_allocated(). Time: what one GPU must do one after another in a step.
//
//   step >= m W_s + fill_s        for every stage s (of one: fill is 0)
//   step >= m G                   where ranks of several nodes share weights
//   W_s     kernels and unhidden collectives of its blocks in one microbatch, forward and backward
//   fill_s  forward of the first chunks of the stages before, until its first microbatch arrives,
//           and their backward, after its last gradient left: for equal stages the bubble,
//           (p - 1) / (m v) of the work
//   G       gathers of the weights of a stage's units in one microbatch, without latencies
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
//   - One stream does all gathers. Those inside a node are not counted, since a refinement of the
//     search may do them otherwise.
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
  /// Ops that a GPU does one after another.
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
  template <class Value>
  struct Cached {
    PlanConfig config;
    std::shared_ptr<const CostModel> costs;  ///< kept, so that its address stays its own
    Value value;
  };
  template <class Value>
  using Table = std::unordered_multimap<std::size_t, Cached<Value>>;

  /// The table's value of that configuration at the request's prices; works it out if it is new.
  template <class Value>
  [[nodiscard]] Value known(Table<Value>& table, const PredictionRequest& request,
                            const PlanConfig& key,
                            Value (*work_out)(const PredictionRequest&, const PlanConfig&));
  [[nodiscard]] static Units priced(const PredictionRequest& request, const PlanConfig& key);
  [[nodiscard]] static double gathered(const PredictionRequest& request, const PlanConfig& key);
  [[nodiscard]] static double floor_of(const PlanConfig& config,
                                       const std::vector<UnitTimes>& units, const Gpu& gpu);

  std::mutex mutex_;
  Table<Units> units_;
  Table<double> gathers_;
};

}  // namespace mfsdp
