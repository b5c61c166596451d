// What ThreadSanitizer is told of a run: the bytes that ops declare, and the order that the plan
// asks for, no more. Without it a kernel that skips bytes, or a lock inside the machine, would hide
// that a wait is missing. Empty in every other build.
//
//   the plan's order                      told as
//   host issues, stream runs              announce_before(the queue)  ...  announce_after(it)
//   record, wait                          announce_before(the event)  ...  announce_after(it)
//   stream drains, host synchronises      announce_before(the drain)  ...  announce_after(it)
//
// Members of a collective order each other by the lock under which they meet.
#pragma once

#include "core/runtime/bound_plan.hpp"
#include "verify/cpu/machine/view_runs.hpp"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1  // as g++ says it
#endif
#endif

#ifdef __SANITIZE_THREAD__
extern "C" {  // of the sanitizer's run-time library, which has no header for them
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long size);
void __tsan_write_range(void* address, unsigned long size);
void __tsan_ignore_thread_begin();
void __tsan_ignore_thread_end();
}
#endif

namespace mfsdp {

#ifdef __SANITIZE_THREAD__

/// What this thread did so far comes before what follows announce_after of the same object.
inline void announce_before(void* object) { __tsan_release(object); }
inline void announce_after(void* object) { __tsan_acquire(object); }

/// The thread's accesses and locks do not count while one lives: they are the machine's own.
class Unannounced {
 public:
  Unannounced() { __tsan_ignore_thread_begin(); }
  Unannounced(const Unannounced&) = delete;
  Unannounced& operator=(const Unannounced&) = delete;
  ~Unannounced() { __tsan_ignore_thread_end(); }
};

/// Operands as they are declared, scratch as written; of an acquire or release, the whole buffer.
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

inline void announce_before(void* /*object*/) {}
inline void announce_after(void* /*object*/) {}
struct Unannounced {
  Unannounced() {}  // not trivial, so that a variable of it counts as used
};
inline void announce_ranges(const BoundOp& /*op*/) {}

#endif

}  // namespace mfsdp
