// One rank: its streams, host, tracks, buffers and time accounts, from the first step to the third.
// The engine has the state that ranks share: time, and the begin and rate of collectives.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/simulator/jitter.hpp"
#include "sim/simulator/lowered_plan.hpp"
#include "sim/simulator/memory_ledger.hpp"
#include "sim/simulator/running.hpp"
#include "sim/simulator/simulation.hpp"

namespace mfsdp {

/// The first step, the reported step, and one that runs ahead in it.
inline constexpr std::int64_t kSteps = 3;
inline constexpr std::int64_t kReported = 1;

/// Exposed communication by what compute waits for, ns.
using ExposedTimes = std::array<std::int64_t, Names<Awaited>::values.size()>;

/// Measurements of the second step on a rank. Times are absolute.
struct StepRecord {
  std::int64_t begin = 0;  ///< C(1)
  std::int64_t end = 0;    ///< C(2)
  std::int64_t compute = 0;
  std::int64_t communication = 0;
  std::int64_t exposed = 0;
  std::int64_t waiting = 0;                           ///< part of `exposed`: waits for other ranks
  std::int64_t host_bound = 0;                        ///< idle until the host issues an op
  Int128 lost = 0;                                    ///< by kernels to contention, 2^-20 ns
  std::vector<ExposedTimes> exposed_by_unit;          ///< the last one: ops without unit
  std::vector<std::int64_t> exposed_by_communicator;  ///< by position in the program
  std::vector<OpSpan> spans;                          ///< by end; empty where times are not kept
};

/// Data that all ranks of one class share.
struct RankPlan {
  const Program& program;
  const Plan& plan;
  LoweredPlan lowered;
  MemoryLedger memory;  ///< before the first op
};

class Rank {
 public:
  /// `groups`: the group of each communicator. `keeps_times`: record spans and memory points.
  Rank(const RankPlan& common, const std::vector<std::uint32_t>& groups, const KernelTimes& kernels,
       bool keeps_times);

  /// Ends the ops that are due, then advances each stream to its next op that takes time or must
  /// wait. Appends the groups of collectives that became ready, and of those whose rate may change:
  /// a collective on their link has ended, or the rank began or stopped to compute. If there are
  /// none, continues with the next ends before `until`.
  Result<void> run(std::int64_t now, std::int64_t until, std::vector<std::uint32_t>& arrived,
                   std::vector<std::uint32_t>& affected);
  /// All ranks of the group have arrived: its collective begins, with that work (2^-20 ns at full
  /// speed). Appends the groups on its link, its own included.
  void meet(std::uint32_t group, Int128 work, std::int64_t now,
            std::vector<std::uint32_t>& affected);
  void set_rate(std::uint32_t group, std::int64_t now, std::int64_t rate);
  /// Streams whose sends and receives became ready; the caller clears the list.
  [[nodiscard]] std::vector<std::uint32_t>& posted() { return running_.posted(); }
  /// The launch of sends and receives on a stream.
  [[nodiscard]] const Running& on_stream(std::uint32_t stream) {
    return running_.of_stream(stream);
  }
  /// A message of the stream's launch begins or ends. Appends the groups of collectives on its
  /// link.
  void begin_message(std::uint32_t stream, const MovingMessage& message, std::int64_t now,
                     std::vector<std::uint32_t>& affected);
  void end_message(std::uint32_t stream, const MovingMessage& message, std::int64_t now,
                   std::vector<std::uint32_t>& affected);
  /// Updates the rates of kernels after any of the above; returns when the next op ends.
  std::int64_t share();

  /// The group's collective; it must be present.
  [[nodiscard]] const Running& collective(std::uint32_t group) { return running_.of_group(group); }
  [[nodiscard]] bool runs_group(std::uint32_t group) const { return running_.runs_group(group); }
  [[nodiscard]] std::int64_t demand(int link) const { return running_.demand(link); }
  [[nodiscard]] std::int64_t demand(const MovingMessage& message) const {
    return running_.demand(message.link, message.sends);
  }
  /// Slowdown of that collective by the ops on compute streams; kOne is 1.
  [[nodiscard]] std::int64_t drag(const Launch& launch) const { return running_.drag(launch); }
  /// Whether nothing that other ranks do can affect it before it launches something itself.
  [[nodiscard]] bool is_independent() const {
    return std::ranges::none_of(running_.ops(), &Running::is_collective);
  }
  /// Whether an op runs that does not wait for other ranks.
  [[nodiscard]] bool runs() const;
  [[nodiscard]] std::int64_t now() const { return now_; }
  /// Whether its second step is complete.
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] Error stalled() const;
  /// An error at one of its ops.
  [[nodiscard]] Error at_fault(const Running& op, std::string what) const;

  [[nodiscard]] StepRecord& record() { return record_; }
  [[nodiscard]] MemoryLedger& memory() { return memory_; }

 private:
  /// The next entry of a stream.
  struct Cursor {
    const Entry* next = nullptr;
    const Entry* last = nullptr;  ///< end of the entries of this instance
    std::int64_t step = 0;
    std::uint32_t segment = 0;
    std::int64_t instance = 0;
    std::int64_t position = 0;  ///< of the instance in host order, counted in ops
    bool done = false;
  };
  /// The host's next wait.
  struct HostCursor {
    std::int64_t step = 0;
    std::uint32_t segment = 0;
    std::int64_t instance = 0;
    std::uint32_t index = 0;
  };
  struct Waiter {
    std::uint32_t track = 0;
    std::int64_t count = 0;
    std::uint32_t who = 0;  ///< stream, or the number of streams for the host
  };

  [[nodiscard]] const std::vector<Entry>& entries(std::uint32_t stream) const;
  void next_instance(std::uint32_t stream);
  Result<void> advance_stream(std::uint32_t stream);
  [[nodiscard]] bool reached(const Target& target, std::int64_t count, std::uint32_t who);
  void reach(std::uint32_t track);
  void advance_host();
  [[nodiscard]] std::int64_t host_time(const HostCursor& at, std::uint32_t op) const;
  [[nodiscard]] std::int64_t issue_time(const Cursor& cursor) const;
  void wake_issued();
  void wake(std::uint32_t stream);
  [[nodiscard]] bool use_buffer(const Cursor& cursor);
  /// Whether the times of that instance of a segment are kept.
  [[nodiscard]] bool keeps_instance(std::int64_t instance) const;
  [[nodiscard]] Error misused_buffer(const Cursor& cursor) const;
  Running& begin(std::uint32_t stream);
  void run_alone();
  [[nodiscard]] bool passes_alone(std::uint32_t stream);
  Result<void> step(std::vector<std::uint32_t>& arrived, std::vector<std::uint32_t>& affected);
  void end_ops(std::vector<std::uint32_t>& arrived, std::vector<std::uint32_t>& affected);
  void pass(std::uint32_t stream);
  void pass_time(std::int64_t now);
  void affect(int link, std::vector<std::uint32_t>& affected) const;
  void note_computing(std::vector<std::uint32_t>& affected);
  void account(std::int64_t time);
  [[nodiscard]] const Launch& awaited_launch() const;
  void keep_spans(const Running& op);
  void finish();

  const RankPlan& common_;
  const LoweredPlan& lowered_;
  const std::vector<std::uint32_t>& groups_;
  KernelTimes kernels_;
  MemoryLedger memory_;
  bool keeps_times_;
  std::uint32_t host_;  // as a waiter: the number of streams
  std::vector<bool> is_compute_;

  std::int64_t now_ = 0;
  std::int64_t issued_ = 0;  // ops that the host has issued, in host order
  HostCursor host_cursor_;
  std::int64_t host_late_ = 0;        // ns of delay by the host's waits
  std::int64_t next_issue_ = kNever;  // minimum of issue_at_
  std::vector<Cursor> cursors_;
  std::vector<std::int64_t> counts_;      // by track
  std::vector<Waiter> waiters_;           // in order of arrival
  std::vector<std::int64_t> blocked_on_;  // by stream: a track, or kNothing, kHost or kIssue
  std::vector<std::int64_t> issue_at_;    // by stream: when its next op is issued, if kIssue
  std::vector<std::uint32_t> ready_;      // streams to advance at this time
  bool come_up_ = false;                  // whether queued ops may begin at this time
  RunningOps running_;
  std::vector<std::int64_t> completed_;  // entries by step
  ComputingClasses computes_;
  bool finished_ = false;
  StepRecord record_;
};

}  // namespace mfsdp
