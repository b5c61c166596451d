// Waits as counts.
//
// A track counts events of one order: the records of one event on one stream, or the launches on
// one communicator. Every condition of a wait is "track t has reached n". n is linear in step and
// instance, so repeated segments need no unrolled copy:
//
//   n = step * (counts in a step) + instance * (counts in the segment) + base
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/rotation.hpp"
#include "sim/simulator/plan_ids.hpp"

namespace mfsdp {

/// A count of a track, as a function of the waiting op's step and instance.
struct Target {
  std::uint32_t track = 0;
  std::int64_t per_step = 0;
  std::int64_t per_instance = 0;
  std::int64_t base = 0;

  /// At most 0 if the wait is satisfied from the start, as in a run's first step.
  [[nodiscard]] std::int64_t count(std::int64_t step, std::int64_t instance) const {
    return step * per_step + instance * per_instance + base;
  }
};

/// The n-th count (from 0) of a track within a segment.
struct TrackPlace {
  std::uint32_t track = 0;
  std::int64_t n = 0;
};

class TrackTable {
 public:
  explicit TrackTable(std::size_t streams) : streams_(static_cast<std::uint32_t>(streams)) {}

  /// Counts the records and launches of a segment, which runs `repeat` times in each step; called
  /// for each segment in order. Errors: unknown ids, groups that are not closed, or that contain
  /// ops other than collectives.
  Result<void> add_segment(const Plan& plan, std::size_t segment, const PlanIds& ids,
                           const std::vector<Event>& events);
  /// Called once, after the last segment.
  void finish();

  [[nodiscard]] std::size_t size() const { return track_stream_.size(); }
  /// The stream of a record track; for a launch track, the number of streams.
  [[nodiscard]] const std::vector<std::uint32_t>& streams() const { return track_stream_; }
  [[nodiscard]] std::uint32_t of_record(std::uint32_t event, std::uint32_t stream) const {
    return records_.at({event, stream});
  }
  [[nodiscard]] std::uint32_t of_launch(std::uint32_t communicator) const {
    return launches_.at(communicator);
  }

  /// Reached when that record or launch has run in the waiting op's own instance. Segments are
  /// numbered in the order of add_segment().
  [[nodiscard]] Target same_instance(std::size_t segment, TrackPlace place) const;
  /// Reached when the event's last record has run in the previous instance; nothing if the segment
  /// has no record.
  [[nodiscard]] std::optional<Target> instance_before(std::size_t segment,
                                                      std::uint32_t event) const;

  struct Latest {
    Target target;
    bool step_before = false;
  };
  /// The event's last record that the host issues before instance 0 of the segment.
  [[nodiscard]] std::optional<Latest> latest_before(std::size_t segment, std::uint32_t event) const;

  /// A wait for an event with several instances.
  struct TurnWait {
    std::size_t segment = 0;
    std::size_t op = 0;  ///< position in the segment
    std::uint32_t event = 0;
    std::int64_t lag = 0;
    std::int64_t instances = 1;
  };
  /// The target in instance `k` of the segment: reached when the event's instance of that turn
  /// (core/plan/rotation.hpp) has its latest record that the host issues before the wait. Nothing
  /// if no op records it. From k = TurnWait::instances on, a target that is in the segment itself
  /// is the same function of k for each k with the same turn.
  [[nodiscard]] std::optional<Target> of_turn(const TurnWait& wait, std::int64_t k) const;

 private:
  struct PlacedRecord {
    std::size_t op = 0;  ///< position in the segment
    TrackPlace place;
    std::int64_t lag = 0;
  };
  struct Counts {
    std::int64_t repeat = 1;
    std::int64_t microbatches = 0;
    std::int64_t begun = 0;  ///< microbatches of the step's earlier segments
    std::map<std::uint32_t, std::vector<PlacedRecord>> turning;  // by event, those with instances

    [[nodiscard]] std::int64_t turn(std::int64_t k, std::int64_t lag,
                                    std::int64_t instances) const {
      return instance_of(begun + (k + 1) * microbatches, lag, instances);
    }
    std::vector<std::int64_t> in_segment;                // by track
    std::vector<std::int64_t> before;                    // by track: in the step's earlier segments
    std::vector<std::optional<TrackPlace>> last_record;  // by event
  };

  std::uint32_t intern(auto& tracks, const auto& key, std::uint32_t stream);
  /// The last record of that turn in instances `last` down to `first` of a segment; in the last one
  /// only before op `end`.
  [[nodiscard]] std::optional<Target> find_turn(std::size_t segment, const TurnWait& wait,
                                                std::int64_t turn, std::int64_t last,
                                                std::size_t end) const;

  std::uint32_t streams_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> records_;
  std::map<std::uint32_t, std::uint32_t> launches_;
  std::vector<std::uint32_t> track_stream_;
  std::vector<Counts> counts_;
  std::vector<std::int64_t> per_step_;  // by track
};

/// The name of an op in errors: "train.middle.ops[17] 'layers.3.qkv'".
[[nodiscard]] std::string place_of(const Plan& plan, std::size_t segment, std::size_t op);

}  // namespace mfsdp
