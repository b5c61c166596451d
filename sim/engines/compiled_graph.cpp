#include "sim/engines/compiled_graph.hpp"

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
  values_.push_back({.name = {}, .given = true, .place = value.number});
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

void CompiledGraph::place_values() {
  std::map<std::int64_t, std::vector<Line*>> dropped;  // by size
  for (Line& line : lines_) {
    if (line.kind == Kind::run) continue;
    Made& value = values_[line.value];
    auto& same_size = dropped[value.bytes];
    if (line.kind == Kind::drop) {
      if (!value.given) same_size.push_back(&line);
      continue;
    }
    if (same_size.empty()) continue;
    Line& last = *same_size.back();
    same_size.pop_back();
    last.skipped = true;
    value.place = values_[last.value].place;
  }
}

void CompiledGraph::emit() {
  place_values();
  for (const Line& line : lines_) {
    if (line.kind == Kind::run) {
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
}

}  // namespace mfsdp
