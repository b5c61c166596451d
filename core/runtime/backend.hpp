// The interface between interpreter and machine: one object for each rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/bound_plan.hpp"

namespace mfsdp {

/// How an op was run, on the backend's clock. core/plan/op_launch.hpp states what the times mean.
struct OpTiming {
  const BoundOp* op = nullptr;
  std::int64_t step = 0;
  std::optional<std::size_t> stream{};  ///< position in Program::streams; none: the host waited
  std::int64_t drains = 0;              ///< calls of synchronise() before it was issued
  Nanos issued;
  Nanos begin;
  Nanos end;
};

/// One rank's device. Ops are issued in host order and run in stream order; `issue`, `record` and
/// `wait` only queue. `host_wait` and `synchronise` are the only calls that block the host.
///
/// Any call may report that the run has failed, here or on another rank; nothing more can be
/// issued then.
class Backend {
 public:
  virtual ~Backend() = default;

  /// One allocation of exactly the pool's height at its alignment, kept until the backend goes.
  /// A pool of no bytes may be null.
  [[nodiscard]] virtual Result<std::byte*> allocate(const Pool& pool) = 0;

  /// Copies the host's bytes to `device`, inside a pool, and returns when they are there. To be
  /// called only when everything issued has run. Pools of the host's memory space are the host's to
  /// read and write directly; others may be memory that it cannot see.
  [[nodiscard]] virtual Result<void> upload(std::span<const std::byte> from, std::byte* device) = 0;
  /// The same in the other direction.
  [[nodiscard]] virtual Result<void> download(const std::byte* device, std::span<std::byte> to) = 0;

  /// Called once for each plan, in the program's order, after all pools are allocated and before
  /// the first upload and the first op. It chooses and compiles kernels, so that a step only
  /// launches them. The contents of pools are undefined afterwards. `plan` stays valid while ops
  /// are issued.
  [[nodiscard]] virtual Result<void> prepare(const BoundPlan& plan) {
    static_cast<void>(plan);
    return {};
  }

  /// Queues a kernel, collective, copy, acquire, release, group_begin or group_end on its stream.
  /// `op` stays where it is until the backend has synchronised.
  [[nodiscard]] virtual Result<void> issue(const BoundOp& op, std::int64_t step) = 0;

  /// Queues record number `number` (from 1, over the whole run) of the op's event.
  [[nodiscard]] virtual Result<void> record(const BoundOp& op, std::int64_t step,
                                            std::int64_t number) = 0;
  /// Queues a wait for that record, which is the latest one issued: an event that a record
  /// overwrites, as CUDA's, may ignore the number.
  [[nodiscard]] virtual Result<void> wait(const BoundOp& op, std::int64_t step,
                                          std::int64_t number) = 0;

  /// Returns when record `number` of the event has run. The result is that time on the backend's
  /// clock. `op` is the op for which the host waits.
  [[nodiscard]] virtual Result<Nanos> host_wait(const BoundOp& op, std::int64_t step,
                                                std::size_t event, std::int64_t number) = 0;
  /// After a failure: whether record `number` of the event, its latest, ran before the failure.
  /// Data that a later record guards may come from an aborted collective. True for a backend that
  /// runs nothing after a failure.
  [[nodiscard]] virtual bool ran_whole(std::size_t event, std::int64_t number) const {
    static_cast<void>(event), static_cast<void>(number);
    return true;
  }

  /// Returns when everything issued has run.
  [[nodiscard]] virtual Result<void> synchronise() = 0;

  /// The time on the backend's clock.
  [[nodiscard]] virtual Nanos now() const = 0;

  /// Every op that ran since the last call, in the order of issue. Empty unless timing is enabled.
  /// Call it after synchronise().
  [[nodiscard]] virtual std::vector<OpTiming> take_timings() = 0;
};

}  // namespace mfsdp
