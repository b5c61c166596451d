#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "verify/checker/json.hpp"

namespace mfsdp::checker {
namespace {

constexpr std::array<std::string_view, 10> kKinds{"acquire",   "collective", "copy",   "group_begin",
                                                  "group_end", "host_wait",  "kernel", "record",
                                                  "release",   "wait"};

std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > kMost)
    throw Refusal{"", "a size is too large"};
  return product;
}

std::int64_t plus(std::int64_t a, std::int64_t b) {
  if (a + b > kMost) throw Refusal{"", "a size is too large"};
  return a + b;
}

std::int64_t size_of(const std::string& dtype) {
  static const std::map<std::string, std::int64_t> sizes{
      {"bf16", 2}, {"fp16", 2}, {"fp32", 4}, {"fp64", 8}, {"int32", 4}, {"int64", 8}, {"uint8", 1}};
  const auto found = sizes.find(dtype);
  if (found == sizes.end()) throw Refusal{"dtype", fmt::format("'{}' is not known", dtype)};
  return found->second;
}

/// Positions by id.
class Ids {
 public:
  Ids(const Json& list, const char* what) : what_(what) {
    for (const Json& entry : list)
      if (!ids_.emplace(integer(entry, "id"), static_cast<int>(ids_.size())).second)
        throw Refusal{what, fmt::format("id {} appears twice", integer(entry, "id"))};
  }
  [[nodiscard]] int at(const Json& id) const {
    const auto found = ids_.find(as_integer(id, what_));
    if (found != ids_.end()) return found->second;
    throw Refusal{what_, fmt::format("there is none with id {}", as_integer(id, what_))};
  }

 private:
  const char* what_;
  std::map<std::int64_t, int> ids_;
};

class Reader {
 public:
  explicit Reader(const Json& document)
      : document_(document),
        streams_(list(document, "streams"), "streams"),
        communicators_(list(document, "communicators"), "communicators"),
        events_(list(document, "events"), "events"),
        units_(list(document, "units"), "units"),
        pools_(list(document, "pools"), "pools"),
        buffers_(list(document, "buffers"), "buffers") {}

  PlanView read() {
    const Json& mesh = field(field(document_, "config"), "mesh");
    plan_.mesh = {integer(mesh, "dp_outer", 1 << 30), integer(mesh, "dp_shard", 1 << 30)};
    if (std::ranges::min(plan_.mesh) < 1) throw Refusal{"config.mesh", "expected at least a rank"};
    plan_.streams = static_cast<int>(list(document_, "streams").size());
    if (plan_.streams > 63) throw Refusal{"streams", "expected at most 63"};
    plan_.events = static_cast<int>(list(document_, "events").size());
    for (const Json& communicator : list(document_, "communicators")) read(communicator);
    for (const Json& pool : list(document_, "pools")) {
      plan_.pools.push_back(integer(pool, "height"));
      if (pool.contains("registered")) throw Refusal{"pools", "peers' accesses are not re-checked"};
    }
    for (const Json& buffer : list(document_, "buffers")) plan_.buffers.push_back(buffer_of(buffer));
    for (const Json& plan : list(document_, "plans")) {
      plan_.plans.push_back({text(plan, "name"), {}});
      for (const Json& segment : list(plan, "segments"))
        plan_.plans.back().segments.push_back(segment_of(segment));
    }
    return std::move(plan_);
  }

 private:
  void read(const Json& communicator) {
    Communicator made;
    for (const Json& axis : list(communicator, "axes")) made.axes.push_back(axis_of(axis));
    std::int64_t size = 1;
    for (const int axis : made.axes) size = times(size, plan_.mesh.at(axis));
    made.size = integer(communicator, "size");
    if (made.size != size)
      throw Refusal{"communicators", fmt::format("one of {} ranks is on axes of {}", made.size, size)};
    plan_.communicators.push_back(std::move(made));
  }
  static int axis_of(const Json& axis) {
    if (axis != "dp_outer" && axis != "dp_shard") throw Refusal{"axes", "one is not known"};
    return axis == "dp_shard" ? 1 : 0;
  }

  Buffer buffer_of(const Json& buffer) const {
    Buffer made{.name = text(buffer, "name"),
                .category = text(buffer, "category"),
                .dtype = text(buffer, "dtype"),
                .pool = pools_.at(field(buffer, "pool")),
                .unit = buffer.contains("unit") ? units_.at(buffer["unit"]) : -1,
                .begin = integer(buffer, "offset"),
                .end = plus(integer(buffer, "offset"), integer(buffer, "size")),
                .persistent = buffer.contains("persistent") && buffer["persistent"] == true};
    if (made.end > plan_.pools.at(made.pool)) throw Refusal{made.name, "leaves its pool"};
    return made;
  }

  Segment segment_of(const Json& segment) {
    Segment made{.name = text(segment, "name"),
                 .repeat = integer(segment, "repeat"),
                 .ops = {},
                 .live_in = live(segment, "live_in"),
                 .live_out = live(segment, "live_out")};
    if (made.repeat < 1) throw Refusal{made.name, "expected at least one repetition"};
    for (const Json& op : list(segment, "ops")) {
      try {
        made.ops.push_back(op_of(op));
      } catch (const Refusal& refusal) {
        throw Refusal{fmt::format("segment '{}', op {}: {}", made.name, made.ops.size(), refusal.where),
                      refusal.what};
      }
    }
    return made;
  }
  std::vector<int> live(const Json& segment, const char* key) const {
    std::vector<int> made;
    for (const Json& id : list(segment, key)) made.push_back(buffers_.at(id));
    std::ranges::sort(made);
    return made;
  }

  Op op_of(const Json& op) {
    const Json& body = field(op, "body");
    if (!body.is_object() || body.size() != 1) throw Refusal{"body", "expected one kind"};
    const auto kind = std::ranges::find(kKinds, body.begin().key());
    if (kind == kKinds.end()) throw Refusal{"body", "its kind is not known"};
    const Json& what = body.begin().value();
    Op made;
    made.kind = static_cast<Kind>(kind - kKinds.begin());
    made.id = integer(op, "id");
    made.name = text(op, "name");
    made.stream = streams_.at(field(op, "stream"));
    made.unit = op.contains("unit") ? units_.at(op["unit"]) : -1;
    made.recomputes = text(op, "phase") == "recompute";
    if (!ops_.emplace(made.id).second) throw Refusal{"id", fmt::format("{} appears twice", made.id)};
    switch (made.kind) {
      case Kind::acquire:
      case Kind::release: made.operands = {whole(buffers_.at(field(what, "buffer")))}; break;
      case Kind::collective:
        made.count = integer(what, "count");
        made.dtype = text(what, "dtype");
        made.reduction = text(what, "reduction");
        [[fallthrough]];
      case Kind::group_begin:
      case Kind::group_end: made.communicator = communicators_.at(field(what, "communicator")); break;
      case Kind::host_wait:
      case Kind::wait:
        for (const Json& binding : list(what, "bindings"))
          made.bindings.emplace_back(integer(binding, "record"), integer(binding, "distance", 1));
        [[fallthrough]];
      case Kind::record: made.event = events_.at(field(what, "event")); break;
      case Kind::kernel:
        for (const Json& operand : list(what, "operands")) add(made, operand);
        for (const Json& attribute : list(what, "attributes"))
          made.attributes.emplace_back(text(attribute, "name"), integer(attribute, "value"));
        break;
      case Kind::copy: break;
    }
    if (made.kind == Kind::copy || made.kind == Kind::collective) {
      for (const char* role : {"input", "output"}) {
        const std::size_t at = made.operands.size();
        add(made, field(what, role));
        made.operands[at].role = role;
      }
    }
    if (what.contains("kind")) made.does = text(what, "kind");
    return made;
  }

  Operand whole(int buffer) const {
    const Buffer& b = plan_.buffers.at(buffer);
    if (b.persistent) throw Refusal{b.name, "is persistent"};
    return {.writes = true, .buffer = buffer, .begin = b.begin, .end = b.end};
  }

  void add(Op& op, const Json& json) const {
    Operand made{.role = text(json, "role"), .buffer = buffers_.at(field(json, "buffer"))};
    const Buffer& buffer = plan_.buffers.at(made.buffer);
    const std::string access = text(json, "access");
    made.reads = access == "read" || access == "read_write";
    made.writes = access != "read";
    made.dtype = text(json, "dtype");
    const Json& shape = list(json, "shape");
    const Json& strides = list(json, "strides");
    if (!strides.empty() && strides.size() != shape.size()) throw Refusal{"strides", "not one a dim"};
    made.elements = 1;
    std::int64_t last = 0;  // element
    for (std::size_t d = shape.size(); d-- > 0;) {
      const std::int64_t dim = as_integer(shape[d], "shape");
      const std::int64_t stride =
          strides.empty() ? made.elements : as_integer(strides[d], "strides");
      made.dense = made.dense && (dim == 1 || stride == made.elements);
      if (dim > 0) last = plus(last, times(dim - 1, stride));
      made.elements = times(made.elements, dim);
    }
    made.offset = integer(json, "offset");
    std::int64_t span = made.elements == 0 ? 0 : times(last + 1, size_of(made.dtype));
    made.plain = made.dense && made.dtype == buffer.dtype;
    for (const Json& stride : list(json, "rank_strides")) {
      const int axis = axis_of(field(stride, "axis"));
      const std::int64_t bytes = integer(stride, "bytes");
      if (plan_.mesh.at(axis) > 1) made.strides.at(axis) = plus(made.strides.at(axis), bytes);
      if (span > 0) span = plus(span, times(bytes, plan_.mesh.at(axis) - 1));
    }
    if (made.elements > 0 && span > buffer.end - buffer.begin - made.offset)
      throw Refusal{made.role, fmt::format("leaves buffer '{}'", buffer.name)};
    made.begin = buffer.begin + made.offset;
    made.end = made.begin + span;
    op.operands.push_back(std::move(made));
    for (const char* key : {"scale", "extent"})
      if (json.contains(key)) add_scalar(op, json[key]);
  }

  /// Four bytes that are read beside the operand.
  void add_scalar(Op& op, const Json& scalar) const {
    op.operands.back().plain = false;
    Operand made{.role = "", .reads = true, .buffer = buffers_.at(field(scalar, "buffer"))};
    const Buffer& buffer = plan_.buffers.at(made.buffer);
    made.offset = integer(scalar, "offset");
    made.begin = buffer.begin + made.offset;
    made.end = made.begin + 4;
    if (made.end > buffer.end) throw Refusal{"scalar", "leaves its buffer"};
    op.operands.push_back(std::move(made));
  }

  const Json& document_;
  Ids streams_, communicators_, events_, units_, pools_, buffers_;
  std::set<std::int64_t> ops_;
  PlanView plan_;
};

}  // namespace

PlanView read_plan(const Json& document) { return Reader(document).read(); }

}  // namespace mfsdp::checker
