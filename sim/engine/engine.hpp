// The event loop: streams, host and tracks, from the first step to the end of the second.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/lowered_plan.hpp"
#include "sim/engine/memory_ledger.hpp"
#include "sim/engine/running.hpp"
#include "sim/engine/simulation.hpp"

namespace mfsdp {

/// Where an op of the plan stands: positions of segment and op.
struct OpPlace {
  std::uint32_t segment = 0;
  std::uint32_t op = 0;
};

/// What the second step took. Times are absolute.
struct StepRecord {
  std::int64_t begin = 0;  ///< C(1)
  std::int64_t end = 0;    ///< C(2)
  std::int64_t compute = 0;
  std::int64_t communication = 0;
  std::int64_t exposed = 0;
  Int128 lost = 0;                            ///< by kernels to contention, 2^-20 ns
  std::vector<std::int64_t> exposed_by_unit;  ///< and without unit, last
  std::vector<OpSpan> spans;                  ///< by end
  std::optional<OpPlace> peak;                ///< the acquire; none when it was at the beginning
};

class Engine {
 public:
  Engine(const Program& program, const Plan& plan, const LoweredPlan& lowered,
         MemoryLedger& memory);

  /// Runs to the end of the second step. Throws OverflowError when time leaves 63 bits.
  Result<StepRecord> run();

 private:
  /// The next entry of a stream.
  struct Cursor {
    std::int64_t step = 0;
    std::uint32_t segment = 0;
    std::int64_t instance = 0;
    std::uint32_t index = 0;
    std::int64_t position =
        0;  ///< of the instance's first op in host order, from the first step on
    bool done = false;
  };
  /// Where the host waits next.
  struct HostCursor {
    std::int64_t step = 0;
    std::uint32_t segment = 0;
    std::int64_t instance = 0;
    std::uint32_t index = 0;
  };
  struct Waiter {
    std::int64_t count = 0;
    std::uint32_t who = 0;  ///< stream, or the number of streams for the host
  };

  void settle(Cursor& cursor) const;
  [[nodiscard]] const Entry& entry_at(std::uint32_t stream) const;
  Result<void> advance(std::uint32_t stream);
  [[nodiscard]] bool reached(const Target& target, std::int64_t count, std::uint32_t who);
  void reach(std::uint32_t track);
  void advance_host();
  void wake(std::uint32_t stream);
  Result<void> use_buffer(const Cursor& cursor, const Entry& entry);
  void begin(std::uint32_t stream, const Entry& entry);
  void pass(std::uint32_t stream);
  void pass_time();
  void account(std::int64_t time);
  [[nodiscard]] std::uint32_t exposed_unit() const;
  void keep_spans(const Running& op);
  [[nodiscard]] Error stalled() const;

  const Program& program_;
  const Plan& plan_;
  const LoweredPlan& lowered_;
  MemoryLedger& memory_;
  std::uint32_t host_;  // as a waiter: the number of streams
  std::vector<bool> is_compute_;

  std::int64_t now_ = 0;
  std::int64_t issued_ = 0;  // ops that the host has issued, in host order
  HostCursor host_cursor_;
  std::vector<Cursor> cursors_;
  std::vector<std::int64_t> counts_;          // by track
  std::vector<std::vector<Waiter>> waiters_;  // by track
  std::vector<std::int64_t> blocked_on_;      // by stream: a track, or kNothing or kHost
  std::vector<std::uint32_t> ready_;          // streams to advance at this time
  RunningOps running_;
  std::vector<std::int64_t> completed_;  // entries by step
  StepRecord record_;
};

}  // namespace mfsdp
