// Tells ThreadSanitizer the bytes that an op declares, also those that its kernel passes over or
// that a library touches which is not instrumented. Empty in every other build.
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

/// Operands as they are declared; of an acquire or release, the whole buffer; of a collective, the
/// own rank's part. Scratch counts as written, and of a long one the beginning, where all that
/// share it meet: to tell of the 32 MiB at every GEMM would take longer than the GEMM.
/// To be called by the thread that runs the op, before it.
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
