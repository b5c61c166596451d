#include "reports/trace/memory_snapshot.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/plan/rotation.hpp"
#include "reports/record/origin.hpp"
#include "reports/trace/pickle.hpp"
#include "reports/trace/replay.hpp"
#include "reports/trace/whole_step.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kFirstAddress = std::int64_t{0x7f} << 40;  ///< where CUDA's usually lie
constexpr std::int64_t kSegmentUnit = std::int64_t{2} << 20;      ///< segments begin on multiples

/// Bytes with a name, at an address.
struct Block {
  std::int64_t address = 0;
  std::int64_t size = 0;
  std::string_view category;
  std::string_view name;
};

struct MemorySegment {
  std::int64_t address = 0;
  std::int64_t size = 0;
  std::vector<Block> blocks;  ///< live at the end of the step
};

struct AllocationEvent {
  Nanos at;
  bool is_free = false;
  Block block;
};

struct Snapshot {
  std::vector<MemorySegment> segments;
  std::vector<AllocationEvent> events;  ///< in their order
};

class SnapshotBuilder {
 public:
  SnapshotBuilder(const RunResult& run, const Program& program)
      : run_(run), program_(program), end_(end_of_step(run)) {}

  Snapshot build(const std::vector<BufferSpan>& spans) {
    std::int64_t address = kFirstAddress;
    for (const Pool& pool : program_.pools) {
      if (pool.space != MemorySpace::device) continue;
      places_[pool.id] = snapshot_.segments.size();
      snapshot_.segments.push_back({.address = address, .size = pool.height.value, .blocks = {}});
      address = round_up(address + pool.height.value, kSegmentUnit);
    }
    for (std::size_t i = 0; i < program_.buffers.size(); ++i)
      if (program_.buffers[i].persistent) live(i, 0, Nanos(0), end_);
    for (const BufferSpan& span : spans) live(span.buffer, span.slot, span.begin, span.end);
    add_runtime(address);
    // Frees come before allocations of the same time.
    std::ranges::stable_sort(snapshot_.events, {}, [](const AllocationEvent& event) {
      return std::tuple(event.at, !event.is_free);
    });
    return std::move(snapshot_);
  }

 private:
  void live(std::size_t position, std::int64_t slot, Nanos begin, Nanos end) {
    const Buffer& buffer = program_.buffers[position];
    const auto place = places_.find(buffer.pool);
    if (place == places_.end() || buffer.size == Bytes(0)) return;
    const auto pool = std::ranges::find(program_.pools, buffer.pool, &Pool::id);
    MemorySegment& segment = snapshot_.segments[place->second];
    const Block block{.address = segment.address + buffer.offset.value +
                                 instance_pitch(buffer, *pool).value * slot,
                      .size = buffer.size.value,
                      .category = to_string(buffer.category),
                      .name = buffer.name};
    snapshot_.events.push_back({.at = begin, .is_free = false, .block = block});
    if (end < end_)
      snapshot_.events.push_back({.at = end, .is_free = true, .block = block});
    else
      segment.blocks.push_back(block);
  }

  /// Memory outside PyTorch's allocator, shown beside it.
  void add_runtime(std::int64_t address) {
    const Bytes runtime = run_.memory.categories.at(static_cast<std::size_t>(Category::runtime));
    if (runtime <= Bytes(0)) return;
    const Block block{.address = address,
                      .size = runtime.value,
                      .category = to_string(Category::runtime),
                      .name = "context, libraries, communicators"};
    snapshot_.segments.push_back({.address = address, .size = runtime.value, .blocks = {block}});
    snapshot_.events.push_back({.at = Nanos(0), .is_free = false, .block = block});
  }

  const RunResult& run_;
  const Program& program_;
  Nanos end_;  ///< of the step
  std::map<PoolId, std::size_t> places_;
  Snapshot snapshot_;
};

class SnapshotWriter {
 public:
  std::string write(Snapshot snapshot, std::string_view origin) {
    out_.dict();
    field(kOriginKey, origin);
    out_.text("segments");
    out_.list();
    for (MemorySegment& segment : snapshot.segments) {
      write_segment(segment);
      out_.append();
    }
    out_.set();
    out_.text("device_traces");
    out_.list();
    write_trace(snapshot);
    out_.append();
    out_.set();
    return out_.finish();
  }

 private:
  void field(std::string_view key, std::int64_t value) {
    out_.text(key);
    out_.integer(value);
    out_.set();
  }
  void field(std::string_view key, std::string_view value) {
    out_.text(key);
    out_.text(value);
    out_.set();
  }

  void frames(const Block* block) {
    out_.text("frames");
    out_.list();
    if (block != nullptr) {
      out_.dict();
      field("filename", block->category);
      field("line", 0);
      field("name", block->name);
      out_.append();
    }
    out_.set();
  }

  void write_block(std::int64_t address, std::int64_t size, const Block* block) {
    out_.dict();
    field("address", address);
    field("size", size);
    field("requested_size", block != nullptr ? block->size : 0);
    field("state", block != nullptr ? "active_allocated" : "inactive");
    frames(block);
    out_.append();
  }

  /// Blocks fill a segment without gaps: readers add up their sizes to find them.
  void write_blocks(MemorySegment& segment) {
    std::ranges::sort(segment.blocks, {}, &Block::address);
    std::int64_t at = segment.address;
    out_.text("blocks");
    out_.list();
    for (const Block& block : segment.blocks) {
      if (block.address > at) write_block(at, block.address - at, nullptr);
      write_block(block.address, block.size, &block);
      at = block.address + block.size;
    }
    const std::int64_t end = segment.address + segment.size;
    if (end > at) write_block(at, end - at, nullptr);
    out_.set();
  }

  void write_segment(MemorySegment& segment) {
    std::int64_t live = 0;
    for (const Block& block : segment.blocks) live = checked_add(live, block.size);
    out_.dict();
    field("device", 0);
    field("address", segment.address);
    field("total_size", segment.size);
    field("allocated_size", live);
    field("active_size", live);
    field("requested_size", live);
    field("stream", 0);
    field("segment_type", "large");
    out_.text("segment_pool_id");
    out_.integer(0);
    out_.integer(0);
    out_.pair();
    out_.set();
    out_.text("is_expandable");
    out_.boolean(false);
    out_.set();
    frames(nullptr);
    write_blocks(segment);
  }

  void write_event(std::string_view action, std::int64_t address, std::int64_t size, Nanos at,
                   const Block* block) {
    out_.dict();
    field("action", action);
    field("addr", address);
    field("size", size);
    field("stream", 0);
    field("time_us", at.value / 1000);
    frames(block);
    out_.append();
  }

  void write_trace(const Snapshot& snapshot) {
    out_.list();
    for (const MemorySegment& segment : snapshot.segments)
      write_event("segment_alloc", segment.address, segment.size, Nanos(0), nullptr);
    for (const AllocationEvent& event : snapshot.events) {
      const Block& block = event.block;
      if (!event.is_free) {
        write_event("alloc", block.address, block.size, event.at, &block);
        continue;
      }
      write_event("free_requested", block.address, block.size, event.at, &block);
      write_event("free_completed", block.address, block.size, event.at, &block);
    }
  }

  PickleWriter out_;
};

}  // namespace

Result<void> write_memory_snapshot(const RunResult& run, const Program& program,
                                   const std::filesystem::path& path) {
  const Plan* plan = program.find_plan(PlanRole::train);
  if (run.timeline.empty() || plan == nullptr)
    return fail("run " + run.run_id,
                "no op times are stored, from which the lifetimes of buffers follow");
  const std::vector<TimedOp> whole = whole_step(run);
  const Replay replayed = replay(program, *plan, whole, end_of_step(run));
  return write_file_atomically(
      path, SnapshotWriter().write(SnapshotBuilder(run, program).build(replayed.buffers),
                                   origin_text(run)));
}

}  // namespace mfsdp
