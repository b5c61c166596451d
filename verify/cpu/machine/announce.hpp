// Announces to ThreadSanitizer the bytes that an op declares, including those that its kernel skips
// or that a library without instrumentation accesses. Does nothing in other builds.
#pragma once

#include <algorithm>

#include "core/runtime/bound_plan.hpp"
#include "verify/cpu/machine/view_runs.hpp"

#ifdef MFSDP_THREAD_SANITIZED  // the sanitizer has no header for these
extern "C" void __tsan_read_range(void* address, unsigned long size);
extern "C" void __tsan_write_range(void* address, unsigned long size);
#endif

namespace mfsdp {

#ifdef MFSDP_THREAD_SANITIZED

/// Announces the declared operands; for an acquire or release the full buffer; for a collective the
/// operands of this rank. Scratch counts as written. Only the beginning of a long scratch buffer is
/// announced, because all its users overlap there and 32 MiB would take longer than a GEMM.
/// Call it on the thread that runs the op, before the op.
inline void announce_ranges(const BoundOp& op) {
  constexpr std::size_t kMostScratch = std::size_t{64} << 10U;
  for (const OperandView& view : op.operands) {
    for_each_run(view, [&](std::byte* first, std::size_t bytes) {
      if (view.access == Access::read) return __tsan_read_range(first, bytes);
      if (view.access == Access::scratch) bytes = std::min(bytes, kMostScratch);
      __tsan_write_range(first, bytes);
    });
  }
  if (!op.buffer.empty()) __tsan_write_range(op.buffer.data(), op.buffer.size());
}

#else

inline void announce_ranges(const BoundOp& /*op*/) {}

#endif

}  // namespace mfsdp
