#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {
namespace {

Operand read_operand(const PlanView& view, const Json& json, const std::string& role) {
  const Operand& buffer = view.buffers[view.at("buffers", json, "buffer")];
  Operand made{
      .role = role, .dtype = json.at("dtype"), .buffer = buffer.buffer, .pool = buffer.pool};
  const std::vector<Int> shape = json.at("shape");
  const std::vector<Int> strides = json.value("strides", std::vector<Int>{});
  made.writes = json.at("access") != "read";
  made.offset = json.at("offset");
  Int span = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const Int stride = strides.empty() ? made.elements : strides.at(d);
    made.dense = made.dense && (shape[d] == 1 || stride == made.elements);
    span = plus(span, shape[d] > 0 ? times(shape[d] - 1, stride) : 0);
    made.elements = times(made.elements, shape[d]);
  }
  span = times(span, size_of(made.dtype));
  for (const Json& stride : json.value("rank_strides", Json::array())) {
    const Int ranks = view.mesh.at(stride.at("axis"));
    if (ranks == 1 || stride.at("bytes") == 0) continue;
    Int& bytes = made.strides[stride.at("axis")];
    bytes = plus(bytes, stride.at("bytes"));
    span = plus(span, times(stride.at("bytes"), ranks - 1));
  }
  made.begin = made.end = buffer.begin + made.offset;
  if (made.elements > 0) made.end += span;
  if (made.end > std::max(buffer.end, made.begin) || json.contains("scale") ||
      json.contains("extent"))
    refuse("operand '{}' leaves its buffer, or names a device scalar", role);
  return made;
}

void read_op(PlanView& view, const Json& json) {
  const auto body = json.at("body").begin();
  const int stream = view.at("streams", json, "stream");
  const std::string does = body->value("kind", "");
  Op& op = view.ops.emplace_back(Op{json.at("id"), &json, &*body, body.key(), does, stream, {}});
  if (json.at("body").size() != 1 || !view.ids["ops"].emplace(op.id, 0).second)
    refuse("expected one kind, and an id of its own");
  for (const Json& entry : body->value("operands", Json::array()))
    op.operands.push_back(read_operand(view, entry, entry.at("role")));
  for (const char* role : {"input", "output"})
    if (body->contains(role)) op.operands.push_back(read_operand(view, body->at(role), role));
  if (body->contains("buffer"))
    op.operands.push_back(view.buffers[view.at("buffers", *body, "buffer")]);
}

}  // namespace

PlanView read_plan(const Json& document) {
  PlanView view{.json = document, .mesh = document.at("config").at("mesh")};
  for (const char* key : {"streams", "communicators", "events", "units", "pools", "buffers"})
    for (const Json& entry : document.at(key))
      if (!view.ids[key].emplace(entry.at("id"), view.ids[key].size()).second)
        refuse("{}: an id appears twice", key);
  if (view.ids["streams"].size() > 63 ||
      std::min(view.mesh.at("dp_outer"), view.mesh.at("dp_shard")) < 1)
    refuse("plan: expected at most 63 streams, and a rank on each axis");
  for (const Json& json : document.at("buffers")) {
    const int number = static_cast<int>(view.buffers.size());
    const int pool = view.at("pools", json, "pool");
    const Int begin = json.at("offset");
    const Int end = plus(begin, json.at("size"));
    view.buffers.push_back(
        {.role = "", .dtype = "", .buffer = number, .pool = pool, .begin = begin, .end = end});
    if (end > document.at("pools")[pool].at("height") ||
        document.at("pools")[pool].contains("registered"))
      refuse("buffer {}: leaves its pool, or peers touch it", json.at("name").dump());
  }
  for (const Json& plan : document.at("plans")) {
    const auto first = std::ssize(view.ops);
    for (const Json& segment : plan.at("segments"))
      for (const Json& op : segment.at("ops")) try {
          read_op(view, op);
        } catch (const std::exception& error) {
          refuse("op {}: {}", op.value("name", "?"), error.what());
        }
    auto& instances = view.plans.emplace_back();
    for (Int step = 0, pass = 0; step < 2; ++step) {
      auto op = view.ops.begin() + first;
      for (const Json& segment : plan.at("segments")) {
        const auto end = op + std::ssize(segment.at("ops"));
        for (Int i = std::min<Int>(2, segment.at("repeat")); i > 0; --i, ++pass)
          for (auto o = op; o != end; ++o) instances.push_back({&*o, step, pass});
        op = end;
      }
    }
  }
  return view;
}

}  // namespace mfsdp::checker
