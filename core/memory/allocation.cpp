#include "core/memory/allocation.hpp"

#include <algorithm>
#include <map>

#include "core/memory/packing.hpp"

namespace mfsdp {
namespace {

/// A range of bytes that holds one block at a time.
struct Slot {
  std::int64_t size = 0;
  std::vector<Lifetime> taken{};      ///< sorted, disjoint
  std::vector<std::size_t> blocks{};  ///< that are placed in it

  [[nodiscard]] bool free_for(const Block& block) const {
    if (taken.empty() || taken.back().end <= block.begin) return true;
    return !overlap(taken, block.lifetimes);
  }

  void serve(std::size_t index, const Block& block) {
    size = std::max(size, block.size);
    blocks.push_back(index);
    const bool after = taken.empty() || taken.back().end <= block.begin;
    taken.insert(taken.end(), block.lifetimes.begin(), block.lifetimes.end());
    if (!after) std::ranges::sort(taken, {}, &Lifetime::begin);
  }
};

/// Blocks without lifetimes get offset 0, as they conflict with nothing.
Packing stack_slots(std::span<const Block> blocks, std::span<const Slot> slots) {
  Packing packing{.offsets = std::vector<std::int64_t>(blocks.size())};
  for (const Slot& slot : slots) {
    for (const std::size_t index : slot.blocks) packing.offsets[index] = packing.height;
    packing.height = checked_add(packing.height, slot.size);
  }
  for (const Block& block : blocks) packing.height = std::max(packing.height, block.size);
  return packing;
}

Packing left_edge(std::span<const Block> blocks) {
  std::vector<Slot> slots;
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    const Block& block = blocks[index];
    if (block.lifetimes.empty()) continue;
    auto slot = std::ranges::find_if(slots, [&](const Slot& s) { return s.free_for(block); });
    if (slot == slots.end()) slot = slots.insert(slots.end(), Slot{});
    slot->serve(index, block);
  }
  return stack_slots(blocks, slots);
}

/// Slots of one class, used in rotation.
struct Ring {
  std::vector<std::size_t> blocks;
  std::vector<Slot> slots;
  std::size_t next = 0;

  void open(std::span<const Block> all) {
    std::int64_t largest = 0;
    std::vector<Block> ones;  // of size 1: their lower bound is the number that is live at once
    for (const std::size_t index : blocks) {
      largest = std::max(largest, all[index].size);
      ones.push_back(all[index]);
      ones.back().size = 1;
    }
    slots.assign(static_cast<std::size_t>(lower_bound_of(ones)), Slot{.size = largest});
  }

  /// Takes the next free slot in rotation. Blocks with several lifetimes can need more slots than
  /// are ever live at once; the ring grows then.
  void serve(std::size_t index, const Block& block) {
    for (std::size_t tried = 0; tried < slots.size(); ++tried) {
      const std::size_t at = (next + tried) % slots.size();
      if (!slots[at].free_for(block)) continue;
      slots[at].serve(index, block);
      next = (at + 1) % slots.size();
      return;
    }
    slots.push_back(Slot{.size = slots.front().size});
    slots.back().serve(index, block);
    next = 0;
  }
};

Packing rotate(const AllocationProblem& problem, std::span<const Block> blocks) {
  std::map<std::int64_t, Ring> rings;
  for (std::size_t index = 0; index < blocks.size(); ++index)
    if (!blocks[index].lifetimes.empty())
      rings[problem.items[index].slot_class].blocks.push_back(index);
  std::vector<Slot> slots;
  for (auto& [slot_class, ring] : rings) {
    ring.open(blocks);
    for (const std::size_t index : ring.blocks) ring.serve(index, blocks[index]);
    std::ranges::move(ring.slots, std::back_inserter(slots));
  }
  return stack_slots(blocks, slots);
}

}  // namespace

Allocation allocate(const AllocationProblem& problem, AllocatorPolicy policy) {
  const std::vector<Block> blocks = blocks_of(problem);
  const std::int64_t lower_bound = lower_bound_of(blocks);
  Packing packing;
  switch (policy) {
    case AllocatorPolicy::temporary: packing = first_fit(blocks); break;
    case AllocatorPolicy::double_buffer: packing = rotate(problem, blocks); break;
    case AllocatorPolicy::trace_pool: packing = left_edge(blocks); break;
    case AllocatorPolicy::best_fit: packing = pack_best(blocks, lower_bound); break;
  }
  Allocation allocation;
  allocation.height = Bytes(packing.height);
  allocation.lower_bound = Bytes(lower_bound);
  allocation.offsets.reserve(packing.offsets.size());
  for (const std::int64_t offset : packing.offsets) allocation.offsets.emplace_back(offset);
  return allocation;
}

}  // namespace mfsdp
