#include "sim/tool/snapshot_file.hpp"

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "reports/trace/pickle.hpp"

namespace mfsdp {
namespace {

class PredictedSnapshot {
 public:
  explicit PredictedSnapshot(const MemorySnapshot& snapshot) : snapshot_(snapshot) {
    for (const NamedMemoryEvent& named : snapshot_.events)
      if (named.event.action == MemoryAction::allocate) last_[named.event.address] = &named;
  }

  std::string write() {
    out_.dict();
    out_.text("segments");
    out_.list();
    for (const CachingAllocator::Segment& segment : snapshot_.segments) write(segment);
    out_.set();
    out_.text("device_traces");
    out_.list();
    out_.list();
    for (const NamedMemoryEvent& named : snapshot_.events) write(named);
    out_.append();
    out_.set();
    out_.text("allocator_settings");
    out_.dict();
    field("PYTORCH_CUDA_ALLOC_CONF", std::string_view(snapshot_.settings));
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

  /// Viewers show what they take for a line of a stack.
  void frames(std::string_view name) {
    out_.text("frames");
    out_.list();
    if (!name.empty()) {
      out_.dict();
      field("filename", std::string_view("predicted"));
      field("line", std::int64_t{0});
      field("name", name);
      out_.append();
    }
    out_.set();
  }

  void write(const CachingAllocator::Segment& segment) {
    out_.dict();
    field("device", std::int64_t{0});
    field("address", segment.address);
    field("total_size", segment.size);
    field("allocated_size", segment.used());
    field("active_size", segment.used());
    field("requested_size", segment.used());
    field("stream", segment.stream);
    field("segment_type", std::string_view(segment.is_small ? "small" : "large"));
    out_.text("segment_pool_id");
    out_.integer(0);
    out_.integer(0);
    out_.pair();
    out_.set();
    out_.text("is_expandable");
    out_.boolean(segment.is_expandable);
    out_.set();
    frames({});
    out_.text("blocks");
    out_.list();
    for (const CachingAllocator::Segment::Part& part : segment.parts) write(part);
    out_.set();
    out_.append();
  }

  void write(const CachingAllocator::Segment::Part& part) {
    const auto made = last_.find(part.address);
    const bool is_named = part.is_used && made != last_.end();
    const std::int64_t used = part.is_used ? part.size : 0;
    out_.dict();
    field("address", part.address);
    field("size", part.size);
    field("requested_size", is_named ? made->second->event.size : used);
    field("state", std::string_view(part.is_used ? "active_allocated" : "inactive"));
    frames(is_named ? std::string_view(made->second->name) : std::string_view());
    out_.append();
  }

  void write(const NamedMemoryEvent& named) {
    const MemoryEvent& event = named.event;
    switch (event.action) {
      case MemoryAction::allocate: return write("alloc", named);
      case MemoryAction::free:
        write("free_requested", named);
        return write("free_completed", named);
      case MemoryAction::segment:
        return write(event.is_piece ? "segment_map" : "segment_alloc", named);
      case MemoryAction::release:
        return write(event.is_piece ? "segment_unmap" : "segment_free", named);
      case MemoryAction::out_of_memory: return write("oom", named);
    }
  }

  /// Times are not predicted one by one: they count the events.
  void write(std::string_view action, const NamedMemoryEvent& named) {
    out_.dict();
    field("action", action);
    if (named.event.action != MemoryAction::out_of_memory) field("addr", named.event.address);
    field("size", named.event.size);
    field("stream", named.event.stream);
    field("time_us", time_++);
    frames(named.name);
    out_.append();
  }

  const MemorySnapshot& snapshot_;
  PickleWriter out_;
  std::unordered_map<std::int64_t, const NamedMemoryEvent*> last_;  // by address
  std::int64_t time_ = 0;
};

}  // namespace

std::string to_pickle(const MemorySnapshot& snapshot) {
  return PredictedSnapshot(snapshot).write();
}

}  // namespace mfsdp
