// Offsets for buffers with known lifetimes: the dynamic storage allocation problem.
//
//   offset
//     ^   +-----+        +---+       height: the highest byte used
//     |   |  b  |  +--+  | d |       lower bound: the largest sum of sizes that are live at once
//     |   +-----++ |c |  +---+
//     |   |  a   | +--+
//     +------------------------> time (positions in the acquiring stream)
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/quantity.hpp"
#include "core/base/vocabulary.hpp"
#include "core/plan/lifetimes.hpp"

namespace mfsdp {

/// A buffer to place. It keeps one offset over all its lifetimes, which are sorted and disjoint.
struct AllocationItem {
  Bytes size;
  std::vector<Lifetime> lifetimes;
  std::int64_t slot_class = 0;  ///< buffers of one class are interchangeable (double_buffer)

  friend bool operator==(const AllocationItem&, const AllocationItem&) = default;
};

struct AllocationProblem {
  std::vector<AllocationItem> items;  ///< in issue order of their first acquire
  std::int64_t alignment = 256;       ///< offsets are multiples of it, bytes

  friend bool operator==(const AllocationProblem&, const AllocationProblem&) = default;
};

struct Allocation {
  std::vector<Bytes> offsets;  ///< of each item, in input order
  Bytes height;                ///< of the pool, a multiple of the alignment
  Bytes lower_bound;           ///< largest sum of aligned sizes that are live at one position
};

/// Places all items under a policy:
///   temporary      first fit in issue order, quadratic where thousands of items are live at once;
///                  beyond kFirstFitBudget (packing.hpp) long-lived ones are placed first
///   double_buffer  slots that are reused in rotation, one slot size per slot_class
///   trace_pool     left edge: the first free slot, as large as the largest item in it
///   best_fit       lowest fitting gap, in several orders; the lowest height wins
[[nodiscard]] Allocation allocate(const AllocationProblem& problem, AllocatorPolicy policy);

}  // namespace mfsdp
