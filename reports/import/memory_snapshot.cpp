// Memory snapshots of PyTorch: torch.cuda.memory._dump_snapshot(), for memory_viz.
//
// The pickle is a dict (torch/cuda/memory.py, _snapshot()):
//   segments       list of {device, address, total_size, allocated_size, active_size, blocks: list
//                  of {size, state: "active_allocated" | "active_pending_free" | "inactive", ...}}
//   device_traces  a list for each device, of {action, addr, size, stream, time_us, ...}; actions
//                  are alloc, free_requested, free_completed, segment_alloc, segment_free,
//                  segment_map, segment_unmap, snapshot, oom
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/quantity.hpp"
#include "core/formats/read_pickle.hpp"
#include "reports/import/foreign_run.hpp"
#include "reports/record/origin.hpp"

namespace mfsdp {
namespace {

struct DeviceMemory {
  Bytes reserved;
  Bytes active;
  Bytes most_reserved;
  Bytes most_active;
};

Result<Bytes> size_at(const PickleValue& value, std::string_view key, const std::string& where) {
  const PickleValue* found = value.find(key);
  const std::int64_t* size = found != nullptr ? found->integer() : nullptr;
  if (size == nullptr || *size < 0)
    return fail(fmt::format("{}.{}", where, key), "expected a size in bytes");
  return Bytes(*size);
}

std::size_t device_of(const PickleValue& segment) {
  const PickleValue* device = segment.find("device");
  const std::int64_t* number = device != nullptr ? device->integer() : nullptr;
  return number != nullptr && *number > 0 && *number < 1024 ? static_cast<std::size_t>(*number) : 0;
}

Result<std::vector<DeviceMemory>> read_segments(const PickleList& segments,
                                                const std::string& where) {
  std::vector<DeviceMemory> devices;
  for (std::size_t i = 0; i < segments.items.size(); ++i) {
    const PickleValue& segment = *segments.items[i];
    const std::string place = fmt::format("{}: segments[{}]", where, i);
    MFSDP_LET(total, size_at(segment, "total_size", place));
    const std::size_t device = device_of(segment);
    if (devices.size() <= device) devices.resize(device + 1);
    devices[device].reserved += total;
    const PickleValue* blocks = segment.find("blocks");
    if (blocks == nullptr || blocks->list() == nullptr)
      return fail(place + ".blocks", "expected a list");
    for (const PickleRef block : blocks->list()->items) {
      MFSDP_LET(size, size_at(*block, "size", place + ".blocks"));
      const PickleValue* state = block->find("state");
      const std::string* text = state != nullptr ? state->text() : nullptr;
      if (text != nullptr && text->starts_with("active")) devices[device].active += size;
    }
  }
  for (DeviceMemory& device : devices) {
    device.most_reserved = device.reserved;
    device.most_active = device.active;
  }
  return devices;
}

/// Backwards from what is live now: before an allocation less was live, before a free more.
Result<void> follow_trace(const PickleList& trace, DeviceMemory& device, const std::string& where) {
  Bytes active = device.active;
  Bytes reserved = device.reserved;
  for (std::size_t i = trace.items.size(); i-- > 0;) {
    const PickleValue& event = *trace.items[i];
    const PickleValue* action = event.find("action");
    const std::string* name = action != nullptr ? action->text() : nullptr;
    if (name == nullptr) continue;
    const bool grows = *name == "alloc";
    const bool shrinks = *name == "free_completed";
    const bool grows_segments = *name == "segment_alloc" || *name == "segment_map";
    const bool shrinks_segments = *name == "segment_free" || *name == "segment_unmap";
    if (!grows && !shrinks && !grows_segments && !shrinks_segments) continue;
    MFSDP_LET(size, size_at(event, "size", fmt::format("{}[{}]", where, i)));
    if (grows) active -= size;
    if (shrinks) active += size;
    if (grows_segments) reserved -= size;
    if (shrinks_segments) reserved += size;
    device.most_active = std::max(device.most_active, active);
    device.most_reserved = std::max(device.most_reserved, reserved);
  }
  return {};
}

Result<void> follow_traces(const PickleValue& root, std::vector<DeviceMemory>& devices,
                           const std::string& where) {
  const PickleValue* traces = root.find("device_traces");
  const PickleList* list = traces != nullptr ? traces->list() : nullptr;
  if (list == nullptr) return {};
  for (std::size_t i = 0; i < std::min(list->items.size(), devices.size()); ++i)
    if (const PickleList* trace = list->items[i]->list())
      MFSDP_TRY(follow_trace(*trace, devices[i], fmt::format("{}: device_traces[{}]", where, i)));
  return {};
}

}  // namespace

Result<ForeignRun> read_memory_snapshot(std::string_view bytes, const std::string& where) {
  MFSDP_LET(document, read_pickle(bytes, where));
  const PickleValue& root = *document.root;
  const PickleValue* segments = root.find("segments");
  if (segments == nullptr || segments->list() == nullptr)
    return fail(where, "is a pickle but no memory snapshot: expected a dict with \"segments\"");
  try {
    MFSDP_LET(devices, read_segments(*segments->list(), where));
    MFSDP_TRY(follow_traces(root, devices, where));
    if (devices.empty()) return fail(where, "holds no segment");
    ForeignRun run{.engine = "pytorch", .format = "PyTorch memory snapshot"};
    for (const DeviceMemory& device : devices) {  // the largest device
      keep_largest(run.reserved, device.most_reserved);
      keep_largest(run.peak, device.most_active);
    }
    if (const PickleValue* mark = root.find(kOriginKey)) {
      const std::string place = fmt::format("{}: {}", where, kOriginKey);
      if (mark->text() == nullptr) return fail(place, "expected a text");
      MFSDP_LET(origin, parse_origin(*mark->text(), place));
      run.origin = std::move(origin);
    }
    run.fact("segments", static_cast<std::int64_t>(segments->list()->items.size()));
    run.fact("reserved_at_snapshot_bytes", devices.front().reserved.value);
    run.fact("active_at_snapshot_bytes", devices.front().active.value);
    return run;
  } catch (const OverflowError& error) {
    return fail(where, std::string("its sizes are too large: ") + error.what());
  }
}

}  // namespace mfsdp
