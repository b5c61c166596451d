// Tells ThreadSanitizer the bytes that an op declares, also those that its kernel passes over or
// that a library touches which is not instrumented. Empty in every other build.
#pragma once

#include "core/runtime/bound_plan.hpp"
#include "verify/cpu/machine/view_runs.hpp"

#ifdef __SANITIZE_THREAD__  // as g++ says it; the sanitizer has no header for these
extern "C" void __tsan_read_range(void* address, unsigned long size);
extern "C" void __tsan_write_range(void* address, unsigned long size);
#endif

namespace mfsdp {

#ifdef __SANITIZE_THREAD__

/// Operands as they are declared, scratch as written; of an acquire or release, the whole buffer.
/// Of a collective, the own rank's part. To be called by the thread that runs the op, before it.
inline void announce_ranges(const BoundOp& op) {
  for (const OperandView& view : op.operands) {
    const bool reads = view.access == Access::read;
    for_each_run(view, [&](std::byte* first, std::size_t bytes) {
      reads ? __tsan_read_range(first, bytes) : __tsan_write_range(first, bytes);
    });
    if (view.scale != nullptr) __tsan_read_range(const_cast<float*>(view.scale), sizeof(float));
  }
  if (!op.buffer.empty()) __tsan_write_range(op.buffer.data(), op.buffer.size());
}

#else

inline void announce_ranges(const BoundOp& /*op*/) {}

#endif

}  // namespace mfsdp
