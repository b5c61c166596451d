#include "core/formats/memory_snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <string_view>
#include <vector>

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

std::vector<DeviceMemory> devices_of(const RecordedSnapshot& snapshot) {
  std::vector<DeviceMemory> devices;
  for (const SnapshotSegment& segment : snapshot.segments) {
    if (devices.size() <= segment.device) devices.resize(segment.device + 1);
    devices[segment.device].reserved += Bytes(segment.size);
    for (const MemoryEvent& block : segment.live)
      devices[segment.device].active += Bytes(block.size);
  }
  return devices;
}

/// Backwards from what is live now: before an allocation less was live, before a free more.
void follow_trace(const std::vector<MemoryEvent>& trace, DeviceMemory& device) {
  Bytes active = device.most_active = device.active;
  Bytes reserved = device.most_reserved = device.reserved;
  for (const MemoryEvent& event : trace | std::views::reverse) {
    const Bytes size(event.size);
    switch (event.action) {
      case MemoryAction::allocate: active -= size; break;
      case MemoryAction::free: active += size; break;
      case MemoryAction::segment: reserved -= size; break;
      case MemoryAction::release: reserved += size; break;
      case MemoryAction::out_of_memory: break;
    }
    device.most_active = std::max(device.most_active, active);
    device.most_reserved = std::max(device.most_reserved, reserved);
  }
}

}  // namespace

Result<ForeignRun> read_memory_snapshot(std::string_view bytes, const std::string& where) {
  MFSDP_LET(document, read_pickle(bytes, where));
  const PickleValue& root = *document.root;
  MFSDP_LET(snapshot, parse_memory_snapshot(root, where));
  if (snapshot.segments.empty()) return fail(where, "holds no segment");
  try {
    std::vector<DeviceMemory> devices = devices_of(snapshot);
    snapshot.traces.resize(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) follow_trace(snapshot.traces[i], devices[i]);
    ForeignRun run{.engine = "pytorch", .format = "PyTorch memory snapshot"};
    const DeviceMemory& largest =
        *std::ranges::max_element(devices, {}, &DeviceMemory::most_reserved);
    run.reserved = largest.most_reserved;
    run.peak = largest.most_active;
    if (const PickleValue* mark = root.find(kOriginKey)) {
      const std::string place = fmt::format("{}: {}", where, kOriginKey);
      if (mark->text() == nullptr) return fail(place, "expected a text");
      MFSDP_SET(run.origin, parse_origin(*mark->text(), place));
    }
    run.fact("segments", std::ssize(snapshot.segments));
    run.fact("reserved_at_snapshot_bytes", largest.reserved.value);
    run.fact("active_at_snapshot_bytes", largest.active.value);
    return run;
  } catch (const OverflowError& error) {
    return fail(where, std::string("its sizes are too large: ") + error.what());
  }
}

}  // namespace mfsdp
