#include "sim/engines/compiled_graph.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace mfsdp {

CompiledGraph::Value CompiledGraph::make(std::string_view name, std::int64_t bytes,
                                         Category category) {
  const Value value{values_.size()};
  values_.push_back({.name = name, .bytes = bytes, .category = category, .place = value.number});
  tensors_.emplace_back();
  lines_.push_back({.kind = Kind::make, .value = value.number});
  return value;
}

CompiledGraph::Value CompiledGraph::given(Tensor tensor) {
  const Value value{values_.size()};
  values_.push_back(
      {.name = {}, .bytes = step_.bytes_of(tensor), .given = true, .place = value.number});
  tensors_.push_back(tensor);
  return value;
}

void CompiledGraph::drop(Value value) {
  lines_.push_back({.kind = Kind::drop, .value = value.number});
}

void CompiledGraph::drop(std::initializer_list<Value> values) {
  for (const Value value : values) drop(value);
}

void CompiledGraph::run(std::function<void()> work) {
  lines_.push_back({.kind = Kind::run, .work = std::move(work)});
}

void CompiledGraph::note(std::function<void()> work) {
  lines_.push_back({.kind = Kind::note, .work = std::move(work)});
}

/// Counts kernels, and the live bytes at each.
void CompiledGraph::measure() {
  std::int64_t live = 0;
  for (const Made& value : values_)
    if (value.given) live += value.bytes;
  std::size_t kernels = 0;
  for (Line& line : lines_) {
    line.kernel = kernels;
    if (line.kind == Kind::make) live += values_[line.value].bytes;
    if (line.kind == Kind::drop) live -= values_[line.value].bytes;
    if (line.kind != Kind::run) continue;
    ++kernels;
    live_.push_back(live);
    peak_ = std::max(peak_, live);
  }
}

bool CompiledGraph::may_take(const Line& dropped, const Line& made) const {
  std::int64_t between = 0;
  for (std::size_t kernel = dropped.kernel; kernel < made.kernel; ++kernel)
    between = std::max(between, live_[kernel]);
  return dropped.kernel == made.kernel || between + values_[dropped.value].bytes <= peak_;
}

void CompiledGraph::place_values() {
  measure();
  std::map<std::int64_t, std::vector<Line*>> dropped;  // by size
  for (Line& line : lines_) {
    if (line.kind != Kind::make && line.kind != Kind::drop) continue;
    Made& value = values_[line.value];
    auto& same_size = dropped[value.bytes];
    if (line.kind == Kind::drop) {
      if (!value.given) same_size.push_back(&line);
      continue;
    }
    if (same_size.empty() || !may_take(*same_size.back(), line)) continue;
    Line& last = *same_size.back();
    same_size.pop_back();
    last.skipped = true;
    value.place = values_[last.value].place;
  }
}

void CompiledGraph::emit() {
  place_values();
  step_.host_work(kGraphCall);
  step_.launch_by(Launcher::compiled);
  for (const Line& line : lines_) {
    if (line.kind == Kind::run || line.kind == Kind::note) {
      line.work();
      continue;
    }
    const Made& value = values_[line.value];
    Tensor& tensor = tensors_[line.value];
    if (line.kind == Kind::make) {
      tensor = value.place == line.value ? step_.allocate(value.name, value.bytes, value.category)
                                         : tensors_[value.place];
    } else if (!line.skipped) {
      step_.free(tensor);
    }
  }
  step_.launch_by(Launcher::operators);
}

}  // namespace mfsdp
