// What runs on one rank at one moment, and how fast kernels are beside collectives. All integers;
// an op that runs undisturbed takes exactly its price.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "sim/simulator/lowered_plan.hpp"
#include "sim/simulator/timetable.hpp"

namespace mfsdp {

/// The slowest that kernels run beside collectives: a quarter of their speed alone.
inline constexpr std::int64_t kSlowestKernel = std::int64_t{1} << 18;

/// What a kernel of compute loses beside one of another stream, by its class. That one, whose
/// stream has priority, loses nothing: parts of the norm beside products on two H200 took what they
/// take alone (docs/lab/2026-11-28-cache-beside-gemms.md).
inline constexpr PerKernelClass<std::int64_t> kLostBesideKernel{
    {kOne / 2, kOne / 2, kOne / 2, kOne - kOne / 8}};

/// An op on a stream that takes time. A collective is there from when its launch comes up on its
/// stream. It waits until a kernel that holds the SMs then has ended and those that are to begin
/// before it have, and until its launches on all ranks of its group have come as far. A kernel of a
/// stream that does not compute waits until a product or attention that runs then has ended.
struct Running {
  bool is_there = false;      ///< false: the stream runs nothing
  bool computes = false;      ///< a kernel or copy on a stream of role compute
  bool waits = false;         ///< of collectives: for SMs, their turn or other ranks
  bool queued = false;        ///< for SMs or, of collectives, those before it
  std::uint32_t group = 0;    ///< of collectives: whose ranks meet in it
  std::uint32_t segment = 0;  ///< position among the lowered segments
  const Entry* entry = nullptr;
  const Launch* launch = nullptr;       ///< of collectives
  const LinkShare* transfer = nullptr;  ///< of copies
  std::int64_t step = 0;
  std::int64_t instance = 0;
  std::int64_t order = kNoOrder;  ///< of collectives: how many have to have begun
  std::int64_t start = 0;         ///< ns; waiting is part of it
  std::int64_t came = 0;          ///< ns, since when it is not queued

  Int128 remaining = 0;      ///< when its rate was set; 2^-20 ns at full speed
  std::int64_t rate_at = 0;  ///< when its rate was set, ns
  std::int64_t rate = 0;
  std::int64_t end = kNever;  ///< at its present rate, rounded up, ns

  /// Goes on at that rate. Throws OverflowError where the time left is beyond 2^63 - 1 ns.
  void set_rate(std::int64_t now, std::int64_t new_rate) {
    if (new_rate != rate) change_rate(now, new_rate);
  }
  [[nodiscard]] bool is_collective() const { return is_there && launch != nullptr; }
  [[nodiscard]] bool is_kernel() const {
    return launch == nullptr && entry->action == Action::kernel;
  }
  /// Whether it is a kernel that lets no collective begin that comes up now.
  [[nodiscard]] bool holds(std::int64_t now) const {
    if (!is_there || queued || entry->action != Action::kernel) return false;
    const HoldsSms holds = holds_sms(entry->kind);
    return holds == HoldsSms::always || (holds == HoldsSms::once_running && came < now);
  }
  /// Whether it is a kernel that lets none of another stream begin that comes up now: one of
  /// compute that began before and keeps the SMs.
  [[nodiscard]] bool holds_kernels(std::int64_t now) const {
    return computes && came < now && holds(now);
  }
  /// Whether it takes bandwidth of that link.
  [[nodiscard]] bool is_on(int link) const {
    return is_collective() && !waits && launch->link == link;
  }

 private:
  void change_rate(std::int64_t now, std::int64_t new_rate);
};

/// Which classes of kernels run on compute streams; copies count as bound by memory.
using ComputingClasses = std::bitset<kKernelClasses>;

/// What a rank does until its next op begins or ends, or a rate changes.
struct Doing {
  bool computes = false;
  bool communicates = false;
  bool waits = false;              ///< a collective does, for SMs, its turn or other ranks
  std::int64_t lost = 0;           ///< speed of ops that compute, of kOne each
  std::int64_t next_end = kNever;  ///< ns
};

/// At most one op per stream.
class RunningOps {
 public:
  explicit RunningOps(std::size_t streams) : ops_(streams) {}

  /// The stream's op, to be filled in; it was not there.
  Running& start(std::uint32_t stream);
  /// Share of the link that the collectives on it want together, of kOne.
  [[nodiscard]] std::int64_t demand(int link) const;
  /// The collective of that group, which is there.
  [[nodiscard]] Running& of_group(std::uint32_t group);
  /// Whether a kernel is there that lets no collective begin that comes up now.
  [[nodiscard]] bool holds(std::int64_t now) const;
  /// Takes out of the queue what nothing holds up any more, and appends the groups of collectives.
  void take_queued(std::int64_t now, std::vector<std::uint32_t>& groups);
  /// The classes of ops that compute.
  [[nodiscard]] ComputingClasses computes() const;
  /// How many times as long that collective takes beside them, of kOne.
  [[nodiscard]] std::int64_t drag(const Launch& launch) const;
  /// Sets the rates of kernels and copies after a start, an end or another rate of a collective.
  void share(std::int64_t now);
  /// The rate of a copy: its part of the link where copies want more than there is.
  [[nodiscard]] std::int64_t copy_rate(const Running& op) const;
  /// Removes those that end by then and returns their streams, ascending.
  [[nodiscard]] const std::vector<std::uint32_t>& take_ended(std::int64_t now);

  /// By stream. An op that was removed stays as it was until the stream's next one.
  [[nodiscard]] const std::vector<Running>& ops() const { return ops_; }
  /// As of the latest share().
  [[nodiscard]] const Doing& doing() const { return doing_; }

 private:
  /// Whether a kernel runs on a stream that does not compute.
  [[nodiscard]] bool runs_beside_compute() const;

  std::vector<Running> ops_;
  std::int64_t begun_ = 0;  ///< collectives that begin in order
  std::vector<std::uint32_t> ended_;
  Doing doing_;
};

}  // namespace mfsdp
