// A plan prepared for simulation: ids resolved, ops priced, waits converted to counts
// (track_table.hpp), and one list of entries for each segment and stream.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/rotation.hpp"
#include "sim/simulator/awaited.hpp"
#include "sim/simulator/plan_ids.hpp"
#include "sim/simulator/prices.hpp"
#include "sim/simulator/track_table.hpp"

namespace mfsdp {

/// The latest record before the wait, in host order. It has a target for each of the segment's
/// first instances. From then on the last `period` targets take turns.
struct LoweredWait {
  std::uint32_t first = 0;  ///< position in LoweredPlan::targets
  std::uint32_t count = 1;
  std::uint32_t period = 1;  ///< at most `count`

  /// The position of the target in an instance of the segment.
  [[nodiscard]] std::size_t at(std::int64_t instance) const {
    const std::int64_t beyond = instance - count;
    if (beyond < 0) return first + static_cast<std::size_t>(instance);
    const std::int64_t turn = period == 1 ? 0 : beyond % period;
    return first + count - period + static_cast<std::size_t>(turn);
  }
};

/// Messages from or to one peer on one communicator; the n-th that is sent is the n-th received.
struct PeerChannel {
  std::uint32_t communicator = 0;  ///< position in the program
  PeerStep peer;
  bool sends = true;

  friend bool operator==(const PeerChannel&, const PeerChannel&) = default;
};

/// A send or a recv of a launch.
struct Message {
  std::uint32_t channel = 0;  ///< position in LoweredPlan::channels
  std::int64_t duration = 0;  ///< ns alone; only the launch's first of its channel has a latency
  std::int64_t demand = 0;    ///< share of the link; kOne is 1
  int link = 0;
  Bytes bytes;
};

/// An acquire or release.
struct BufferUse {
  std::uint32_t buffer = 0;    ///< position in the program
  std::uint32_t slot = 0;      ///< of the buffer's first instance (rotation.hpp)
  std::int64_t instances = 1;  ///< of the buffer
  std::int64_t lag = 0;
};

inline constexpr std::int64_t kNoOrder = -1;

/// One collective, or a group of collectives. A group's launch has the sum of their bandwidth parts
/// and one latency. Or one or several sends and receives: each moves when its peer's launch is
/// there too, and the launch ends with its last message.
struct Launch {
  Target turn;                     ///< launches of one communicator run in host order
  std::uint32_t communicator = 0;  ///< position in the program
  std::int64_t occupancy = 0;      ///< as CollectivePrice has it; of a group, its members' largest
  PerKernelClass<std::int64_t> weight{};   ///< of a group, its members' largest
  PerKernelClass<std::int64_t> traffic{};  ///< likewise
  PerKernelClass<std::int64_t> drag{{kOne, kOne, kOne, kOne}};  ///< likewise
  /// For launches that begin in order: the number of earlier ones in the instance; else kNoOrder.
  std::int64_t order = kNoOrder;
  std::int64_t demand = 0;  ///< demand: share of the link; kOne is 1
  int link = 0;
  std::uint32_t unit = 0;              ///< position in the program's units, or their number
  Awaited brings = Awaited::others;    ///< of a group: that of its last member
  Bytes bytes;                         ///< of all members, as they count them
  std::vector<std::uint32_t> members;  ///< collectives, positions in the segment
  std::vector<Message> messages;       ///< of sends and receives, in their order; else empty

  [[nodiscard]] bool is_point_to_point() const { return !messages.empty(); }
};

/// A copy's demand on a link. Each link has only one kind of ops.
struct LinkShare {
  std::int64_t demand = 0;  ///< demand: share of the link; kOne is 1
  int link = 0;
};

enum class Action : std::uint8_t { acquire, copy, kernel, launch, record, release, wait };

/// One action of a stream.
struct Entry {
  Action action = Action::kernel;
  KernelClass kind = KernelClass::memory;  ///< of kernels
  std::uint32_t op = 0;                    ///< position in the segment; of a group, its end
  std::uint32_t detail = 0;  ///< position of the launch, transfer, wait or use; a record's track
  std::int64_t duration = 0;
  std::int64_t ragged_loss = 0;  ///< as KernelPrice has it
};

/// A wait of the host.
struct HostEntry {
  std::uint32_t op = 0;
  std::uint32_t wait = 0;
};

struct LoweredSegment {
  std::uint32_t source = 0;  ///< position in the plan
  std::int64_t repeat = 1;
  std::int64_t length = 0;         ///< ops
  std::int64_t begin = 0;          ///< of its first instance, in ops from the step's start
  std::int64_t microbatches = 0;   ///< that begin in an instance
  std::int64_t begun = 0;          ///< those of the step before its first instance
  std::int64_t ordered = 0;        ///< launches of an instance that begin in order
  std::int64_t ordered_begin = 0;  ///< those of the step before its first instance
  std::vector<std::vector<Entry>> streams;
  std::vector<HostEntry> host;
  /// By op: when the host has issued it, ns from the instance's begin if the host never waits.
  /// Empty if issuing takes no time.
  std::vector<std::int64_t> issued;
  std::int64_t host_begin = 0;  ///< of its first instance, ns of the host from the step's start

  [[nodiscard]] std::int64_t host_length() const { return issued.empty() ? 0 : issued.back(); }
  /// The number of a thing with several instances that an op with that lag uses.
  [[nodiscard]] std::int64_t turn(std::int64_t instance, std::int64_t lag,
                                  std::int64_t instances) const {
    return instance_of(begun + (instance + 1) * microbatches, lag, instances);
  }
};

struct LoweredPlan {
  std::vector<LoweredSegment> segments;     ///< those that run at least once
  std::int64_t length = 0;                  ///< ops in a step
  std::int64_t host_length = 0;             ///< ns that the host takes to issue a step
  std::int64_t ordered = 0;                 ///< launches of a step that begin in order
  std::int64_t entries = 0;                 ///< entries of all streams in a step
  std::int64_t spans = 0;                   ///< kernels, collectives and copies in a step
  bool leaves_sms = false;                  ///< as Prices has it
  std::vector<std::uint32_t> track_stream;  ///< of a record track; the number of streams otherwise
  std::vector<LoweredWait> waits;
  std::vector<Target> targets;  ///< of all waits
  std::vector<BufferUse> uses;
  std::vector<PeerChannel> channels;
  std::vector<Launch> launches;
  std::vector<LinkShare> transfers{{}};  ///< of copies; the first is that of one without a link
  std::vector<std::uint32_t> live_in;    ///< slots live before the first op

  [[nodiscard]] const Target& target(std::uint32_t wait, std::int64_t instance) const {
    return targets[waits[wait].at(instance)];
  }
};

/// Largest number of ops in a step that is simulated; more is an error.
inline constexpr std::int64_t kMostOps = std::int64_t{1} << 27;

/// Resolves, prices and orders a plan. Errors name the op, as documented at simulate().
[[nodiscard]] Result<LoweredPlan> lower(const Program& program, const Plan& plan,
                                        const PlanIds& ids, const Prices& prices);

}  // namespace mfsdp
