#include "core/memory/allocation_cache.hpp"

#include <cstdint>
#include <utility>

namespace mfsdp {
namespace {

/// Entries take some hundred kilobytes each. The cache is cleared when there would be more.
constexpr std::size_t kMostEntries = 256;

std::size_t hash_of(const AllocationProblem& problem, AllocatorPolicy policy) {
  auto hash = static_cast<std::uint64_t>(policy);
  const auto mix = [&](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29;
  };
  mix(problem.alignment);
  for (const AllocationItem& item : problem.items) {
    mix(item.size.value);
    mix(item.slot_class);
    for (const Lifetime& life : item.lifetimes) {
      mix(life.begin);
      mix(life.end);
    }
  }
  return hash;
}

}  // namespace

Allocation AllocationCache::allocate(const AllocationProblem& problem, AllocatorPolicy policy) {
  const std::size_t hash = hash_of(problem, policy);
  {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = entries_.equal_range(hash);
    for (auto it = first; it != last; ++it)
      if (it->second.policy == policy && it->second.problem == problem)
        return it->second.allocation;
  }
  Allocation allocation = mfsdp::allocate(problem, policy);
  Entry entry{.problem = problem, .policy = policy, .allocation = allocation};
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= kMostEntries) entries_.clear();
  entries_.emplace(hash, std::move(entry));
  return allocation;
}

}  // namespace mfsdp
