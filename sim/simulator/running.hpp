// Ops that run on one rank at a given time, and the rates of kernels beside collectives. Integers
// only; an op that runs alone takes exactly its price.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <limits>
#include <vector>

#include "sim/simulator/lowered_plan.hpp"
#include "sim/simulator/timetable.hpp"

namespace mfsdp {

/// Lower bound of a kernel's rate beside collectives: a quarter of its speed alone.
inline constexpr std::int64_t kSlowestKernel = std::int64_t{1} << 18;

/// Loss of a compute kernel beside a kernel of another stream, by class. The other kernel, whose
/// stream has priority, loses nothing: on two H200, parts of the norm took the same time beside
/// GEMMs as alone (docs/lab/2026-11-28-cache-beside-gemms.md).
inline constexpr PerKernelClass<std::int64_t> kLostBesideKernel{
    {kOne / 2, kOne / 2, kOne / 2, kOne - kOne / 8}};

/// The time for `work` (2^-20 ns at full speed) at `rate`, rounded up, ns. Throws OverflowError
/// beyond 2^63 - 1.
[[nodiscard]] std::int64_t time_for(Int128 work, std::int64_t rate);

/// An op on a stream that takes time. A collective is present from the time at which its launch is
/// ready on its stream. It waits for a kernel that holds the SMs at that time, and for collectives
/// that must begin before it. It also waits until its launches on all ranks of its group are ready.
/// Sends and receives wait whenever none of their messages moves. A kernel on a non-compute stream
/// waits for a running GEMM or attention kernel.
struct Running {
  bool is_there = false;      ///< false: the stream runs nothing
  bool computes = false;      ///< a kernel or copy on a stream of role compute
  bool waits = false;         ///< collectives: for SMs, earlier collectives or other ranks
  bool queued = false;        ///< waits for SMs, or for earlier collectives
  std::uint32_t group = 0;    ///< of collectives; kNoGroup for sends and receives
  std::uint32_t segment = 0;  ///< position among the lowered segments
  const Entry* entry = nullptr;
  const Launch* launch = nullptr;       ///< of collectives
  const LinkShare* transfer = nullptr;  ///< of copies
  std::int64_t step = 0;
  std::int64_t instance = 0;
  std::int64_t order = kNoOrder;    ///< collectives that must have begun before it
  std::uint32_t messages_left = 0;  ///< of sends and receives: messages that have not ended
  std::uint32_t moving = 0;         ///< those of them that have begun
  std::int64_t start = 0;           ///< ns; waiting is part of it
  std::int64_t came = 0;            ///< ns, when it left the queue

  Int128 remaining = 0;      ///< when its rate was set; 2^-20 ns at full speed
  std::int64_t rate_at = 0;  ///< when its rate was set, ns
  std::int64_t rate = 0;
  std::int64_t end = kNever;  ///< at its present rate, rounded up, ns

  /// Continues at that rate. Throws OverflowError if the remaining time exceeds 2^63 - 1 ns.
  void set_rate(std::int64_t now, std::int64_t new_rate) {
    if (new_rate != rate) change_rate(now, new_rate);
  }
  [[nodiscard]] bool is_collective() const { return is_there && launch != nullptr; }
  [[nodiscard]] bool is_point_to_point() const {
    return is_collective() && launch->is_point_to_point();
  }
  /// Whether it counts as communication. Sends and receives that wait for their peer do not: the
  /// rank is idle.
  [[nodiscard]] bool communicates() const {
    return is_collective() && !(waits && launch->is_point_to_point());
  }
  [[nodiscard]] bool is_kernel() const {
    return launch == nullptr && entry->action == Action::kernel;
  }
  /// Whether this is a kernel that delays collectives that become ready now.
  [[nodiscard]] bool holds(std::int64_t now) const {
    if (!is_there || queued || entry->action != Action::kernel) return false;
    const HoldsSms holds = holds_sms(entry->kind);
    return holds == HoldsSms::always || (holds == HoldsSms::once_running && came < now);
  }
  /// Whether this is a kernel that delays kernels of other streams that become ready now: a compute
  /// kernel that began earlier and holds the SMs.
  [[nodiscard]] bool holds_kernels(std::int64_t now) const {
    return computes && came < now && holds(now);
  }
  /// Whether it is a collective that uses bandwidth of that link.
  [[nodiscard]] bool is_on(int link) const {
    return is_collective() && !waits && launch->link == link && !launch->is_point_to_point();
  }
  /// Continues as a launch of sends and receives: a message of it has begun or ended.
  void set_moving(std::int64_t now, std::uint32_t messages, std::uint32_t not_ended) {
    moving = messages;
    messages_left = not_ended;
    waits = moving == 0;
    rate = waits ? 0 : kOne;
    if (messages_left == 0) end = now;
  }

 private:
  void change_rate(std::int64_t now, std::int64_t new_rate);
};

/// The group of an op that is in none.
inline constexpr std::uint32_t kNoGroup = std::numeric_limits<std::uint32_t>::max();

/// A message in transit, on one of its two ranks.
struct MovingMessage {
  int link = 0;
  bool sends = true;
  std::int64_t demand = 0;

  friend bool operator==(const MovingMessage&, const MovingMessage&) = default;
};

/// Classes of kernels that run on compute streams; copies count as memory-bound.
using ComputingClasses = std::bitset<kKernelClasses>;

/// Activity of a rank until its next op begins or ends, or a rate changes.
struct Doing {
  bool computes = false;
  bool communicates = false;
  bool waits = false;              ///< a collective does, as Running::waits
  std::int64_t lost = 0;           ///< speed lost by all computing ops; kOne is one op
  std::int64_t next_end = kNever;  ///< ns
};

/// At most one op per stream.
class RunningOps {
 public:
  /// `leaves_sms`: kernels delay no collectives.
  RunningOps(std::size_t streams, bool leaves_sms) : ops_(streams), leaves_sms_(leaves_sms) {}

  /// The stream's op, for the caller to fill in. The stream must have no op.
  Running& start(std::uint32_t stream);
  /// Total demand of the collectives on the link, and of the messages in one direction, that with
  /// the larger demand; kOne is 1.
  [[nodiscard]] std::int64_t demand(int link) const;
  /// Total demand of the collectives on the link, and of the messages in that direction.
  [[nodiscard]] std::int64_t demand(int link, bool sends) const;
  void add_message(const MovingMessage& message) { messages_.push_back(message); }
  void remove_message(const MovingMessage& message) {
    messages_.erase(std::ranges::find(messages_, message));
  }
  /// The collective of that group; it must be present.
  [[nodiscard]] Running& of_group(std::uint32_t group);
  /// Whether a collective of the group has begun and not ended.
  [[nodiscard]] bool runs_group(std::uint32_t group) const;
  /// Whether one kernel or copy of a compute stream runs at full rate, and nothing else is there.
  [[nodiscard]] bool computes_alone() const {
    return std::ranges::count(ops_, true, &Running::is_there) == 1 && ops_[first()].computes &&
           ops_[first()].rate == kOne;
  }
  /// The first stream with an op; there must be one.
  [[nodiscard]] std::uint32_t first() const {
    return static_cast<std::uint32_t>(std::ranges::find(ops_, true, &Running::is_there) -
                                      ops_.begin());
  }
  void remove(std::uint32_t stream) {
    ops_[stream].is_there = false;
    ops_[stream].end = kNever;
  }
  /// Whether a kernel delays collectives that become ready now.
  [[nodiscard]] bool holds(std::int64_t now) const;
  /// Removes ops from the queue that nothing delays any more, and appends the groups of
  /// collectives. Those of sends and receives are in posted().
  void take_queued(std::int64_t now, std::vector<std::uint32_t>& groups);
  /// Streams whose launches of sends and receives left the queue; the caller clears the list.
  [[nodiscard]] std::vector<std::uint32_t>& posted() { return posted_; }
  /// The stream's op, a launch of sends and receives.
  [[nodiscard]] Running& of_stream(std::uint32_t stream) { return ops_[stream]; }
  /// The classes of ops that compute.
  [[nodiscard]] ComputingClasses computes() const;
  /// Slowdown of that collective by those ops; kOne is 1.
  [[nodiscard]] std::int64_t drag(const Launch& launch) const;
  /// Updates the rates of kernels and copies after an op began or ended, or a collective's rate
  /// changed.
  void share(std::int64_t now);
  /// The rate of a copy: its proportional share of the link if the demand exceeds it.
  [[nodiscard]] std::int64_t copy_rate(const Running& op) const;
  /// Removes the ops that end by then and returns their streams, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& take_ended(std::int64_t now);

  /// Ops by stream. A removed op is unchanged until the stream's next one.
  [[nodiscard]] const std::vector<Running>& ops() const { return ops_; }
  /// State at the latest share().
  [[nodiscard]] const Doing& doing() const { return doing_; }

 private:
  [[nodiscard]] std::int64_t collective_demand(int link) const;
  /// Whether a kernel runs on a stream that does not compute.
  [[nodiscard]] bool runs_beside_compute() const;

  std::vector<Running> ops_;
  bool leaves_sms_ = false;
  std::int64_t begun_ = 0;  ///< collectives that begin in order
  std::vector<std::uint32_t> ended_;
  std::vector<std::uint32_t> posted_;
  std::vector<MovingMessage> messages_;
  Doing doing_;
};

}  // namespace mfsdp
