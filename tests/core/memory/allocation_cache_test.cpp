#include "core/memory/allocation_cache.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

AllocationProblem problem(std::int64_t size) {
  return {.items = {{.size = Bytes(size), .lifetimes = {{0, 4}}},
                    {.size = Bytes(2 * size), .lifetimes = {{2, 6}}},
                    {.size = Bytes(size), .lifetimes = {{5, 8}}}},
          .alignment = 256};
}

void expect_same(const Allocation& a, const Allocation& b) {
  EXPECT_EQ(a.offsets, b.offsets);
  EXPECT_EQ(a.height, b.height);
  EXPECT_EQ(a.lower_bound, b.lower_bound);
}

TEST(AllocationCache, AnswersAsAllocateDoes) {
  AllocationCache cache;
  // More problems than are kept, each asked twice.
  for (std::int64_t size = 1; size <= 300; ++size)
    for (int again = 0; again < 2; ++again)
      for (const AllocatorPolicy policy : {AllocatorPolicy::best_fit, AllocatorPolicy::temporary})
        expect_same(cache.allocate(problem(size), policy), allocate(problem(size), policy));
}

}  // namespace
}  // namespace mfsdp
