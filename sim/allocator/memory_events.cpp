#include "sim/allocator/memory_events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/formats/read_pickle.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  ///< of an event, and at one time
constexpr std::size_t kMostStreams = 65'536;

Result<std::int64_t> integer(const PickleValue& event, std::string_view key,
                             const std::string& where) {
  const PickleValue* found = event.find(key);
  const std::int64_t* number = found != nullptr ? found->integer() : nullptr;
  if (number == nullptr || *number < 0)
    return fail(fmt::format("{}.{}", where, key), "expected an integer of at least 0");
  return *number;
}

std::string text_of(const PickleValue& value, std::string_view key) {
  const PickleValue* found = value.find(key);
  return found != nullptr && found->text() != nullptr ? *found->text() : "";
}

/// Nothing for what changes no memory: snapshots, requests to free, failures.
std::optional<MemoryEvent> kind_of(std::string_view action) {
  if (action == "alloc") return MemoryEvent{.action = MemoryAction::allocate};
  if (action == "free_completed") return MemoryEvent{.action = MemoryAction::free};
  if (action == "segment_alloc") return MemoryEvent{.action = MemoryAction::segment};
  if (action == "segment_free") return MemoryEvent{.action = MemoryAction::release};
  if (action == "segment_map")
    return MemoryEvent{.action = MemoryAction::segment, .is_piece = true};
  if (action == "segment_unmap")
    return MemoryEvent{.action = MemoryAction::release, .is_piece = true};
  return std::nullopt;
}

Result<std::vector<MemoryEvent>> read_trace(const PickleList& trace, const std::string& where) {
  std::vector<MemoryEvent> events;
  events.reserve(trace.items.size());
  for (std::size_t i = 0; i < trace.items.size(); ++i) {
    const PickleValue& entry = *trace.items[i];
    const std::string place = fmt::format("{}[{}]", where, i);
    const std::string action = text_of(entry, "action");
    if (action.empty()) return fail(place + ".action", "expected the name of what was done");
    auto event = kind_of(action);
    if (!event) continue;
    MFSDP_LET(address, integer(entry, "addr", place));
    MFSDP_LET(size, integer(entry, "size", place));
    if (size > kMostBytes) return fail(place + ".size", "expected at most 2^50 bytes");
    event->address = address;
    event->size = size;
    if (entry.find("stream") != nullptr) {
      MFSDP_LET(stream, integer(entry, "stream", place));
      event->stream = stream;
    }
    events.push_back(*event);
  }
  return events;
}

/// What a device's segments hold when the snapshot is taken.
struct HeldInTheEnd {
  Bytes reserved;
  std::vector<MemoryEvent> blocks;  ///< in use, as if they were allocated
};

Result<void> add_blocks(HeldInTheEnd& held, const PickleValue& segment, const std::string& where) {
  MFSDP_LET(total, integer(segment, "total_size", where));
  MFSDP_LET(address, integer(segment, "address", where));
  std::int64_t stream = 0;
  if (segment.find("stream") != nullptr) {
    MFSDP_LET(number, integer(segment, "stream", where));
    stream = number;
  }
  held.reserved += Bytes(total);
  const PickleValue* blocks = segment.find("blocks");
  if (blocks == nullptr || blocks->list() == nullptr)
    return fail(where + ".blocks", "expected a list");
  for (const PickleRef block : blocks->list()->items) {
    MFSDP_LET(size, integer(*block, "size", where + ".blocks"));
    if (text_of(*block, "state").starts_with("active"))
      held.blocks.push_back({.address = address, .size = size, .stream = stream});
    address = checked_add(address, size);
  }
  return {};
}

Result<HeldInTheEnd> held_in_the_end(const PickleValue& root, std::size_t device,
                                     const std::string& where) {
  HeldInTheEnd held;
  const PickleValue* segments = root.find("segments");
  if (segments == nullptr) return held;
  if (segments->list() == nullptr) return fail(where + ": segments", "expected a list");
  for (std::size_t i = 0; i < segments->list()->items.size(); ++i) {
    const PickleValue& segment = *segments->list()->items[i];
    const std::string place = fmt::format("{}: segments[{}]", where, i);
    std::int64_t number = 0;
    if (segment.find("device") != nullptr) {
      MFSDP_LET(of_segment, integer(segment, "device", place));
      number = of_segment;
    }
    if (std::cmp_equal(number, device)) MFSDP_TRY(add_blocks(held, segment, place));
  }
  return held;
}

/// Puts what was allocated before the record began in front of its events.
void add_earlier(MemoryRecord& record, const HeldInTheEnd& held) {
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
  for (const MemoryEvent& block : held.blocks)
    if (is_live.try_emplace(block.address, true).second) earlier.push_back(block);
  std::ranges::stable_sort(earlier, {}, &MemoryEvent::address);
  record.earlier = std::ssize(earlier);
  record.events.insert(record.events.begin(), earlier.begin(), earlier.end());
}

/// What was reserved when the record began.
Bytes reserved_before(const MemoryRecord& record, Bytes in_the_end) {
  Bytes reserved = in_the_end;
  for (const MemoryEvent& event : record.events) {
    if (event.action == MemoryAction::segment) reserved -= Bytes(event.size);
    if (event.action == MemoryAction::release) reserved += Bytes(event.size);
  }
  return std::max(reserved, Bytes(0));
}

/// The peaks.
Result<void> follow(MemoryRecord& record, Bytes reserved, const std::string& where) {
  std::set<std::int64_t> streams;
  std::unordered_set<std::int64_t> live;
  Bytes allocated{};
  record.peak_reserved = reserved;
  for (const MemoryEvent& event : record.events) {
    switch (event.action) {
      case MemoryAction::allocate:
        live.insert(event.address);
        allocated += Bytes(event.size);
        break;
      case MemoryAction::free:
        if (live.erase(event.address) > 0) allocated -= Bytes(event.size);
        break;
      case MemoryAction::segment: reserved += Bytes(event.size); break;
      case MemoryAction::release: reserved -= Bytes(event.size); break;
    }
    streams.insert(event.stream);
    if (std::max(allocated, reserved) > Bytes(kMostBytes))
      return fail(where, "expected at most 2^50 bytes at one time");
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
  const PickleValue* traces = document.root->find("device_traces");
  if (traces == nullptr || traces->list() == nullptr)
    return fail(where,
                "is a pickle but no memory snapshot: expected a dict with \"device_traces\"");
  const PickleList* longest = nullptr;
  std::size_t device = 0;
  for (std::size_t i = 0; i < traces->list()->items.size(); ++i) {
    const PickleList* trace = traces->list()->items[i]->list();
    if (trace == nullptr)
      return fail(fmt::format("{}: device_traces[{}]", where, i), "expected a list");
    if (longest != nullptr && trace->items.size() <= longest->items.size()) continue;
    longest = trace;
    device = i;
  }
  if (longest == nullptr || longest->items.empty())
    return fail(where, "has no events: torch.cuda.memory._record_memory_history() records them");
  MemoryRecord record;
  MFSDP_LET(events, read_trace(*longest, fmt::format("{}: device_traces[{}]", where, device)));
  record.events = std::move(events);
  if (const PickleValue* settings = document.root->find("allocator_settings")) {
    record.settings_text = text_of(*settings, "PYTORCH_CUDA_ALLOC_CONF");
    MFSDP_LET(parsed,
              parse_allocator_settings(record.settings_text, where + ": PYTORCH_CUDA_ALLOC_CONF"));
    record.settings = parsed;
  }
  try {
    MFSDP_LET(held, held_in_the_end(*document.root, device, where));
    const Bytes before = reserved_before(record, held.reserved);
    add_earlier(record, held);
    MFSDP_TRY(follow(record, before, where));
  } catch (const OverflowError&) {
    return fail(where, "expected at most 2^50 bytes at one time");
  }
  return record;
}

}  // namespace mfsdp
