#include "sim/simulator/memory_ledger.hpp"

#include <fmt/format.h>

namespace mfsdp {

Result<MemoryLedger> MemoryLedger::open(const Program& program, const PlanIds& ids,
                                        const std::vector<std::uint32_t>& live_in) {
  MemoryLedger ledger;
  ledger.entries_.reserve(program.buffers.size());
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    MFSDP_LET(pool,
              ids.pools.resolve(buffer.pool, [&] { return fmt::format("buffers[{}].pool", i); }));
    Entry entry;
    entry.category = buffer.category;
    if (program.pools[pool].space == MemorySpace::device) entry.size = buffer.size;
    if (buffer.persistent) ledger.add(entry);
    ledger.entries_.insert(ledger.entries_.end(),
                           static_cast<std::size_t>(buffer.instances.value_or(1)), entry);
  }
  for (const std::uint32_t slot : live_in)
    if (!ledger.entries_[slot].live) ledger.add(ledger.entries_[slot]);
  ledger.begin_window(0);
  return ledger;
}

void MemoryLedger::add(Entry& entry) {
  entry.live = true;
  live_.at(static_cast<std::size_t>(entry.category)) += entry.size;
}

void MemoryLedger::begin_window(std::int64_t now) {
  points_.clear();
  points_.push_back({.at = Nanos(now), .categories = live_});
}

bool MemoryLedger::acquire(std::uint32_t slot, std::int64_t now, bool keep) {
  Entry& entry = entries_[slot];
  if (entry.live) return false;
  add(entry);
  if (keep && entry.size.value > 0) points_.push_back({.at = Nanos(now), .categories = live_});
  return true;
}

bool MemoryLedger::release(std::uint32_t slot, std::int64_t now, bool keep) {
  Entry& entry = entries_[slot];
  if (!entry.live) return false;
  entry.live = false;
  live_.at(static_cast<std::size_t>(entry.category)) -= entry.size;
  if (keep && entry.size.value > 0) points_.push_back({.at = Nanos(now), .categories = live_});
  return true;
}

}  // namespace mfsdp
