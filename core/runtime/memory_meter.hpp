// Measures what a run takes of a rank's pools, by watching what is asked of its backend.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/plan/index.hpp"
#include "core/plan/peak_memory.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"

namespace mfsdp {

struct MeasuredMemory {
  std::vector<Bytes> pools;    ///< allocated, in the order of Program::pools
  CategoryBytes categories{};  ///< of device pools, each where it was fullest; and what persists
};

/// A backend that hands everything to another one and keeps count. A buffer is live from its
/// acquire until the acquiring stream learns of its release, through streams, events, the host's
/// waits and communicators: only then could other bytes take its place.
///
/// It shares nothing with core/plan/lifetimes, which works the same out of a plan: measured and
/// predicted memory can differ.
class MemoryMeter final : public Backend {
 public:
  /// Watches the plan of that name; others only allocate. `program` and `backend` outlive it.
  MemoryMeter(const Program& program, PlanRole plan, Backend& backend);

  [[nodiscard]] Result<std::byte*> allocate(const Pool& pool) override;
  [[nodiscard]] Result<void> upload(std::span<const std::byte> from, std::byte* device) override {
    return backend_.upload(from, device);
  }
  [[nodiscard]] Result<void> download(const std::byte* device, std::span<std::byte> to) override {
    return backend_.download(device, to);
  }
  [[nodiscard]] Result<void> prepare(const BoundPlan& plan) override {
    return backend_.prepare(plan);
  }
  [[nodiscard]] Result<void> issue(const BoundOp& op, std::int64_t step) override;
  [[nodiscard]] Result<void> record(const BoundOp& op, std::int64_t step,
                                    std::int64_t number) override;
  [[nodiscard]] Result<void> wait(const BoundOp& op, std::int64_t step,
                                  std::int64_t number) override;
  [[nodiscard]] Result<Nanos> host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                        std::int64_t number) override;
  [[nodiscard]] bool ran_whole(std::size_t event, std::int64_t number) const override {
    return backend_.ran_whole(event, number);
  }
  [[nodiscard]] Result<void> synchronise() override;
  [[nodiscard]] Nanos now() const override { return backend_.now(); }
  [[nodiscard]] std::vector<OpTiming> take_timings() override { return backend_.take_timings(); }

  [[nodiscard]] MeasuredMemory measured() const;

 private:
  /// Component s: ops of stream s that have surely run.
  using Clock = std::vector<std::int64_t>;

  /// A buffer that its acquiring stream holds.
  struct Held {
    std::size_t buffer = 0;
    const std::byte* data = nullptr;  ///< of the acquired instance
    std::size_t stream = 0;           ///< that acquired it
    struct Released {
      std::size_t stream = 0;
      std::int64_t position = 0;  ///< in that stream's order
    };
    std::optional<Released> released;
  };
  struct PoolUse {
    std::vector<Held> held;
    Bytes fullest;
    CategoryBytes categories{};  ///< at the fullest moment
  };

  [[nodiscard]] bool is_watched(const BoundOp& op) const { return watched_.contains(op.op); }
  /// Counts the op on its stream, after what it learns from `clock`, if anything.
  void pass(const BoundOp& op, const Clock* learned = nullptr);
  void acquire(const BoundOp& op);
  void release(const BoundOp& op);

  const Program& program_;
  Backend& backend_;
  std::unordered_set<const Op*> watched_;
  IdIndex<PoolId> pool_index_;
  IdIndex<BufferId> buffer_index_;
  std::vector<Bytes> allocated_;
  std::vector<Clock> streams_;       ///< what each stream knows, itself included
  std::vector<Clock> recorded_;      ///< by place in the event_list(): what the latest record knew
  std::vector<Clock> communicated_;  ///< by communicator: what its latest op knew
  Clock host_;
  std::vector<PoolUse> pools_;
};

}  // namespace mfsdp
