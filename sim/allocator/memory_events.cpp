#include "sim/allocator/memory_events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/formats/read_pickle.hpp"
#include "sim/allocator/earlier_state.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostStreams = 65'536;

/// Inserts allocations for all blocks that were live before the record began.
void add_earlier(MemoryRecord& record, const std::vector<MemoryEvent>& live_in_the_end) {
  std::vector<MemoryEvent> earlier;
  std::unordered_map<std::int64_t, bool> is_live;  // of each address that was seen
  for (const MemoryEvent& event : record.events) {
    if (event.action == MemoryAction::allocate) is_live[event.address] = true;
    if (event.action != MemoryAction::free) continue;
    const auto [at, is_new] = is_live.try_emplace(event.address, false);
    if (is_new)
      earlier.push_back({.address = event.address, .size = event.size, .stream = event.stream});
    if (!std::exchange(at->second, false)) ++record.unknown_frees;
  }
  for (const MemoryEvent& block : live_in_the_end)
    if (is_live.try_emplace(block.address, true).second) earlier.push_back(block);
  std::ranges::stable_sort(earlier, {}, &MemoryEvent::address);
  record.earlier = std::ssize(earlier);
  record.events.insert(record.events.begin(), earlier.begin(), earlier.end());
}

/// Reserved bytes when the record began.
Bytes reserved_before(const MemoryRecord& record, Bytes in_the_end) {
  Bytes reserved = in_the_end;
  for (const MemoryEvent& event : record.events) {
    if (event.action == MemoryAction::segment) reserved -= Bytes(event.size);
    if (event.action == MemoryAction::release) reserved += Bytes(event.size);
  }
  return std::max(reserved, Bytes(0));
}

/// Finds releases by torch.cuda.empty_cache(), which records no event of its own. An allocation
/// that fails releases cached segments too, right before it reserves its own. Releases count as
/// empty_cache() if no such allocation follows, or if one follows that would have fitted under the
/// peak anyway.
void find_emptyings(MemoryRecord& record, Bytes reserved) {
  if (record.settings.garbage_collection_threshold > 0) return;  // releases segments at any time
  const auto& events = record.events;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Bytes before = reserved;
    const std::size_t begin = i;
    for (; i < events.size() && events[i].action == MemoryAction::release; ++i)
      reserved -= Bytes(events[i].size);
    if (i == events.size()) break;
    const bool wants_room = events[i].action == MemoryAction::segment ||
                            events[i].action == MemoryAction::out_of_memory;
    const bool had_room = before + Bytes(events[i].size) <= record.peak_reserved;
    if (i > begin && (!wants_room || had_room)) record.emptied.push_back(begin);
    if (events[i].action == MemoryAction::segment) reserved += Bytes(events[i].size);
  }
}

/// Computes the peaks.
Result<void> follow(MemoryRecord& record, Bytes reserved, const std::string& where) {
  std::unordered_set<std::int64_t> streams;
  std::unordered_map<std::int64_t, Bytes> live;  // by address
  Bytes allocated{};
  record.peak_reserved = reserved;
  for (const MemoryEvent& event : record.events) {
    switch (event.action) {
      case MemoryAction::allocate:
        live[event.address] = Bytes(event.size);
        allocated += Bytes(event.size);
        break;
      case MemoryAction::free: allocated -= std::exchange(live[event.address], Bytes(0)); break;
      case MemoryAction::segment: reserved += Bytes(event.size); break;
      case MemoryAction::release: reserved -= Bytes(event.size); break;
      case MemoryAction::out_of_memory: break;
    }
    streams.insert(event.stream);
    if (std::max(allocated, reserved) > Bytes(kMostSnapshotBytes))
      return fail(where, "expected at most 2^50 bytes at once");
    record.peak_requested = std::max(record.peak_requested, allocated);
    record.peak_reserved = std::max(record.peak_reserved, reserved);
  }
  if (streams.size() > kMostStreams)
    return fail(where, fmt::format("expected at most {} streams", kMostStreams));
  return {};
}

}  // namespace

Result<MemoryRecord> read_memory_events(std::string_view bytes, const std::string& where) {
  MFSDP_LET(document, read_pickle(bytes, where));
  MFSDP_LET(snapshot, parse_memory_snapshot(*document.root, where));
  return memory_record(std::move(snapshot), where);
}

Result<MemoryRecord> memory_record(RecordedSnapshot snapshot, const std::string& where) {
  const auto longest =
      std::ranges::max_element(snapshot.traces, {}, &std::vector<MemoryEvent>::size);
  if (longest == snapshot.traces.end() || longest->empty())
    return fail(where, "has no events: torch.cuda.memory._record_memory_history() records them");
  const auto device = static_cast<std::size_t>(longest - snapshot.traces.begin());
  MemoryRecord record;
  record.events = std::move(*longest);
  record.unknown_actions = snapshot.unknown_actions;
  record.settings_text = std::move(snapshot.settings);
  MFSDP_LET(settings,
            parse_allocator_settings(record.settings_text, where + ": PYTORCH_CUDA_ALLOC_CONF"));
  record.settings = settings;
  try {
    Bytes held;
    std::vector<MemoryEvent> live;
    std::erase_if(snapshot.segments,
                  [&](const SnapshotSegment& segment) { return segment.device != device; });
    for (const SnapshotSegment& segment : snapshot.segments) {
      held += Bytes(segment.size);
      live.insert(live.end(), segment.live.begin(), segment.live.end());
    }
    const Bytes before = reserved_before(record, held);
    if (auto state = state_before(record.events, snapshot.segments, record.settings))
      record.at_begin = std::move(*state);
    else
      record.contradiction = state.error().message();
    add_earlier(record, live);
    MFSDP_TRY(follow(record, before, where));
    find_emptyings(record, before);
  } catch (const OverflowError&) {
    return fail(where, "expected at most 2^50 bytes at once");
  }
  return record;
}

}  // namespace mfsdp
