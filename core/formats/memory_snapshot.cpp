#include "core/formats/memory_snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

namespace mfsdp {
namespace {

constexpr std::int64_t kMostDevices = 1024;
/// PyTorch's kSmallBuffer: segments of this size are of the pool of small blocks, where the file
/// does not state the pool.
constexpr std::int64_t kSmallSegment = std::int64_t{2} << 20;
/// An address above it plus the sizes of a segment's blocks could exceed the largest integer.
constexpr std::int64_t kMostAddress = std::int64_t{1} << 62;

Result<std::int64_t> integer(const PickleValue& object, std::string_view key,
                             const std::string& where) {
  const PickleValue* found = object.find(key);
  const std::int64_t* number = found != nullptr ? found->integer() : nullptr;
  if (number == nullptr || *number < 0)
    return fail(fmt::format("{}.{}", where, key), "expected an integer of at least 0");
  return *number;
}

/// 0 if it is missing.
Result<std::int64_t> optional_integer(const PickleValue& object, std::string_view key,
                                      const std::string& where) {
  if (object.find(key) == nullptr) return 0;
  return integer(object, key, where);
}

Result<std::int64_t> size_of(const PickleValue& object, std::string_view key,
                             const std::string& where) {
  MFSDP_LET(size, integer(object, key, where));
  if (size > kMostSnapshotBytes)
    return fail(fmt::format("{}.{}", where, key), "expected at most 2^50 bytes");
  return size;
}

Result<std::string> text(const PickleValue& object, std::string_view key, const std::string& where,
                         std::string_view expected) {
  const PickleValue* found = object.find(key);
  if (found == nullptr || found->text() == nullptr)
    return fail(fmt::format("{}.{}", where, key), std::string(expected));
  return *found->text();
}

/// The list of that key; null if it is missing.
Result<const PickleList*> list(const PickleValue& object, std::string_view key,
                               const std::string& where) {
  const PickleValue* found = object.find(key);
  if (found == nullptr) return nullptr;
  if (found->list() == nullptr) return fail(fmt::format("{}{}", where, key), "expected a list");
  return found->list();
}

Result<std::int64_t> address_of(const PickleValue& object, const std::string& where) {
  MFSDP_LET(address, integer(object, "address", where));
  if (address > kMostAddress)
    return fail(where + ".address", "expected an address of at most 2^62");
  return address;
}

Result<SnapshotSegment> parse_segment(const PickleValue& object, const std::string& where) {
  SnapshotSegment segment;
  MFSDP_LET(device, optional_integer(object, "device", where));
  if (device >= kMostDevices)
    return fail(where + ".device", fmt::format("expected a device below {}", kMostDevices));
  segment.device = static_cast<std::size_t>(device);
  MFSDP_SET(segment.size, size_of(object, "total_size", where));
  MFSDP_SET(segment.address, address_of(object, where));
  MFSDP_SET(segment.stream, optional_integer(object, "stream", where));
  const PickleValue* type = object.find("segment_type");
  const std::string* pool = type == nullptr ? nullptr : type->text();
  segment.is_small = pool != nullptr ? *pool == "small" : segment.size == kSmallSegment;
  if (const PickleValue* expandable = object.find("is_expandable"); expandable != nullptr) {
    const bool* said = std::get_if<bool>(&expandable->value);
    segment.is_expandable = said != nullptr && *said;
  }
  MFSDP_LET(blocks, list(object, "blocks", where + "."));
  if (blocks == nullptr) return fail(where + ".blocks", "expected a list");
  std::int64_t seen = 0;  // bytes of the blocks so far
  std::int64_t next = segment.address;
  for (std::size_t i = 0; i < blocks->items.size(); ++i) {
    const PickleValue& block = *blocks->items[i];
    const std::string place = fmt::format("{}.blocks[{}]", where, i);
    MFSDP_LET(bytes, size_of(block, "size", place));
    MFSDP_LET(state, text(block, "state", place, "expected a block's state"));
    if (bytes > segment.size - seen)
      return fail(place + ".size",
                  fmt::format("expected at most the segment's {} bytes", segment.size));
    // Snapshots before PyTorch 2.1 have no addresses of blocks.
    std::int64_t at = next;
    if (block.find("address") != nullptr) MFSDP_SET(at, address_of(block, place));
    if (state.starts_with("active"))
      segment.live.push_back({.address = at, .size = bytes, .stream = segment.stream});
    seen += bytes;
    next = at + bytes;
  }
  return segment;
}

struct KnownAction {
  std::string_view name;
  std::optional<MemoryEvent> event;  ///< none for an action that changes no memory
};
constexpr std::array<KnownAction, 10> kActions{{
    {"alloc", MemoryEvent{.action = MemoryAction::allocate}},
    {"free_completed", MemoryEvent{.action = MemoryAction::free}},
    {"free_requested", std::nullopt},
    {"segment_alloc", MemoryEvent{.action = MemoryAction::segment}},
    {"segment_free", MemoryEvent{.action = MemoryAction::release}},
    {"segment_map", MemoryEvent{.action = MemoryAction::segment, .is_piece = true}},
    {"segment_unmap", MemoryEvent{.action = MemoryAction::release, .is_piece = true}},
    {"snapshot", std::nullopt},
    {"oom", MemoryEvent{.action = MemoryAction::out_of_memory}},
    {"user_defined", std::nullopt},
}};

/// Tracks allocations, to refuse files that no allocator can have written.
class LiveBlocks {
 public:
  Result<void> follow(const MemoryEvent& event, const std::string& where) {
    if (event.action == MemoryAction::allocate) return allocate(event, where);
    if (event.action != MemoryAction::free) return {};
    if (!free_.insert(event.address).second)
      return fail(where, fmt::format("frees address {}, which is free", event.address));
    live_.erase(event.address);
    return {};
  }

 private:
  Result<void> allocate(const MemoryEvent& event, const std::string& where) {
    const auto next = live_.lower_bound(event.address);
    const bool overlaps_next = next != live_.end() && next->first - event.address < event.size;
    const bool is_taken = next != live_.end() && next->first == event.address;
    if (overlaps_next || is_taken || reaches(next, event.address))
      return fail(where, fmt::format("allocates {} bytes at address {}, some of which are in use",
                                     event.size, event.address));
    live_.emplace_hint(next, event.address, event.size);
    free_.erase(event.address);
    return {};
  }

  /// Whether the block before `next` contains that address.
  bool reaches(std::map<std::int64_t, std::int64_t>::iterator next, std::int64_t address) {
    if (next == live_.begin()) return false;
    --next;
    return address - next->first < next->second;
  }

  std::map<std::int64_t, std::int64_t> live_;  ///< bytes by address
  std::unordered_set<std::int64_t> free_;      ///< addresses that were freed since
};

/// Adds the events of one device.
Result<void> parse_trace(const PickleList& entries, RecordedSnapshot& snapshot,
                         const std::string& where) {
  std::vector<MemoryEvent>& events = snapshot.traces.emplace_back();
  LiveBlocks blocks;
  for (std::size_t i = 0; i < entries.items.size(); ++i) {
    const PickleValue& entry = *entries.items[i];
    const std::string place = fmt::format("{}[{}]", where, i);
    MFSDP_LET(action, text(entry, "action", place, "expected the name of what was done"));
    const auto* const known = std::ranges::find(kActions, action, &KnownAction::name);
    if (known == kActions.end()) ++snapshot.unknown_actions;
    if (known == kActions.end() || !known->event) continue;
    MemoryEvent event = *known->event;
    if (event.action != MemoryAction::out_of_memory)
      MFSDP_SET(event.address, integer(entry, "addr", place));
    MFSDP_SET(event.size, size_of(entry, "size", place));
    MFSDP_SET(event.stream, optional_integer(entry, "stream", place));
    MFSDP_TRY(blocks.follow(event, place));
    events.push_back(event);
  }
  return {};
}

Result<std::string> parse_settings(const PickleValue& root, const std::string& where) {
  constexpr std::string_view key = "PYTORCH_CUDA_ALLOC_CONF";
  const PickleValue* settings = root.find("allocator_settings");
  if (settings == nullptr) return std::string();
  if (settings->dict() == nullptr) return fail(where + "allocator_settings", "expected a dict");
  if (settings->find(key) == nullptr) return std::string();
  return text(*settings, key, where + "allocator_settings", "expected a text");
}

}  // namespace

Result<RecordedSnapshot> parse_memory_snapshot(const PickleValue& root, const std::string& where) {
  const std::string inside = where + ": ";
  MFSDP_LET(segments, list(root, "segments", inside));
  MFSDP_LET(traces, list(root, "device_traces", inside));
  if (segments == nullptr && traces == nullptr)
    return fail(where,
                "is a pickle but no memory snapshot: expected a dict with \"segments\" and "
                "\"device_traces\"");
  RecordedSnapshot snapshot;
  for (std::size_t i = 0; segments != nullptr && i < segments->items.size(); ++i) {
    MFSDP_LET(segment,
              parse_segment(*segments->items[i], fmt::format("{}segments[{}]", inside, i)));
    snapshot.segments.push_back(std::move(segment));
  }
  for (std::size_t i = 0; traces != nullptr && i < traces->items.size(); ++i) {
    const std::string place = fmt::format("{}device_traces[{}]", inside, i);
    const PickleList* trace = traces->items[i]->list();
    if (trace == nullptr) return fail(place, "expected a list");
    MFSDP_TRY(parse_trace(*trace, snapshot, place));
  }
  MFSDP_SET(snapshot.settings, parse_settings(root, inside));
  return snapshot;
}

}  // namespace mfsdp
