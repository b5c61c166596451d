// A backend that counts what another one is asked for: what a run's memory really was.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "core/plan/index.hpp"
#include "core/runtime/backend.hpp"

namespace mfsdp {

/// One rank's memory, counted from the calls that its backend got. Device memory alone, as in
/// predictions; `runtime` lies outside all pools and stays 0.
struct MeteredMemory {
  std::vector<Bytes> allocations;  ///< of every pool, in the order in which they were made
  Bytes allocated;                 ///< of device pools, in sum
  /// Largest sum of the bytes of live buffers. Persistent ones always are; others from the acquire
  /// to the release as the host issues them, which is the order of a machine whose collectives take
  /// no time: a simulation of that machine peaks at the very same bytes. On a real one a reduction
  /// ends later than it is issued, and its gradient is live beside the next for a while.
  Bytes peak;
  std::array<Bytes, Names<Category>::values.size()> categories{};  ///< at the peak; sum to `peak`
  std::string peak_buffer;  ///< acquired at the first peak; empty where persistent ones are all
};

/// Passes every call on. `program` and `backend` outlive it.
class MeteredBackend final : public Backend {
 public:
  MeteredBackend(const Program& program, Backend& backend);

  [[nodiscard]] const MeteredMemory& memory() const { return memory_; }

  [[nodiscard]] Result<std::byte*> allocate(const Pool& pool) override;
  [[nodiscard]] Result<void> issue(const BoundOp& op, std::int64_t step) override;
  [[nodiscard]] Result<void> record(const BoundOp& op, std::int64_t step,
                                    std::int64_t number) override {
    return backend_.record(op, step, number);
  }
  [[nodiscard]] Result<void> wait(const BoundOp& op, std::int64_t step,
                                  std::int64_t number) override {
    return backend_.wait(op, step, number);
  }
  [[nodiscard]] Result<void> host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                       std::int64_t number) override {
    return backend_.host_wait(op, step, event, number);
  }
  [[nodiscard]] Result<void> synchronise() override { return backend_.synchronise(); }
  [[nodiscard]] std::vector<OpTiming> take_timings() override { return backend_.take_timings(); }

 private:
  [[nodiscard]] bool on_device(const Buffer& buffer) const;
  void acquire(const Buffer& buffer);
  void release(const Buffer& buffer);

  const Program& program_;
  Backend& backend_;
  IdIndex<BufferId> buffers_;
  IdIndex<PoolId> pools_;
  std::array<Bytes, Names<Category>::values.size()> live_{};
  Bytes total_;
  MeteredMemory memory_;
};

/// The most memory that this process ever had resident, as the kernel counts it (VmHWM of
/// /proc/self/status). Errors: a system that does not say.
[[nodiscard]] Result<Bytes> peak_resident_bytes();

}  // namespace mfsdp
