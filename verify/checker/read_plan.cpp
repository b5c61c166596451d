// Reads a plan, or each class of a job: its mesh, its buffers, and ops with their operands. A plan of
// a job states pools, buffers and plans in each of its classes.
//
// Where buffers or events have several instances, each instance is a buffer or an event of its own
// from here on.
#include <utility>

#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {
namespace {

constexpr Int kMostInstances = Int{1} << 16;  ///< of buffers and events

Operand read_operand(const PlanView& view, const Json& json, const std::string& role,
                     Int microbatch) {
  const Operand& of = view.buffers[view.instance_at("buffers", json, "buffer", microbatch)];
  Operand made{.role = role,
               .dtype = json.at("dtype"),
               .access = json.at("access"),
               .buffer = of.buffer,
               .pool = of.pool,
               .offset = json.at("offset"),
               .shape = json.at("shape"),
               .strides = json.value("strides", std::vector<Int>{})};
  made.writes = made.access != "read";
  if (view.json.at("buffers")[of.buffer].at("dtype") != Json(made.dtype))
    refuse("operand '{}' has dtype {}, but its buffer has another", role, made.dtype);
  Int span = 1;
  for (std::size_t d = made.shape.size(); d-- > 0;) {
    const Int stride = made.strides.empty() ? made.elements : made.strides.at(d);
    made.dense = made.dense && (made.shape[d] == 1 || stride == made.elements);
    span = plus(span, made.shape[d] > 0 ? times(made.shape[d] - 1, stride) : 0);
    made.elements = times(made.elements, made.shape[d]);
  }
  span = times(span, size_of(made.dtype));
  for (const Json& stride : json.value("rank_strides", Json::array())) {
    const Int ranks = view.ranks_on(stride.at("axis"));
    if (ranks == 1 || stride.at("bytes") == 0) continue;
    if (!made.rank_strides.emplace(stride.at("axis"), stride.at("bytes")).second)
      refuse("operand '{}' has two rank strides for one axis", role);
    span = plus(span, times(stride.at("bytes"), ranks - 1));
  }
  made.begin = made.end = of.begin + made.offset;
  if (made.elements > 0) made.end += span;
  if (made.end > std::max(of.end, made.begin)) refuse("operand '{}' leaves its buffer", role);
  return made;
}

// ---- instances

/// Has an entry in a list of the document for each further instance of an entry.
void add_instances(Json& document, const char* key, PlanView& view) {
  Json& list = document.at(key);
  std::vector<Turns>& all = view.turns[key];
  Int next = 0;
  for (const Json& entry : list) next = std::max(next, plus(entry.at("id"), 1));
  const Index own = list.size();
  for (Index i = 0; i < own; ++i) {
    const Json entry = list[i];
    Turns& turns =
        all.emplace_back(Turns{.count = entry.value("instances", Int{1}), .further = list.size()});
    if (turns.count < 1 || turns.count > kMostInstances ||
        std::ssize(list) + turns.count > Int(own) + kMostInstances ||
        (turns.count > 1 && entry.value("persistent", false)))
      refuse("{} {}: has {} instances", key, entry.at("name").dump(), turns.count);
    view.rotates = view.rotates || turns.count > 1;
    Int pitch = 0;
    if (turns.count > 1 && entry.contains("pool")) {
      const auto& pools = document.at("pools");
      const auto pool =
          std::ranges::find(pools, entry.at("pool"), [](const Json& of) { return of.at("id"); });
      if (pool == pools.end()) refuse("buffer {}: is in no pool", entry.at("name").dump());
      const Int alignment = pool->at("alignment");
      if (alignment < 1) refuse("pool {}: has no alignment", pool->at("name").dump());
      pitch = times(plus(entry.at("size"), alignment - 1) / alignment, alignment);
    }
    for (Int turn = 1; turn < turns.count; ++turn) {
      Json made = entry;
      made["id"] = next++;
      if (made.contains("offset")) made["offset"] = plus(entry.at("offset"), times(turn, pitch));
      list.push_back(std::move(made));
    }
  }
}

// ---- the mesh

void read_grid(PlanView& view, const Json& grid, PerAxis& into, const Names& known) {
  Names axes;
  for (const Json& on : grid) {
    const std::string axis = on.at("axis");
    if (!known.contains(axis)) refuse("plan: ranks of an axis that no plan has: {}", axis);
    if (on.at("size") < 1 || !axes.insert(axis).second)
      refuse("plan: expected ranks on each axis of the mesh, and each axis once");
    if (on.at("size") <= 1) continue;
    into.emplace(axis, on.at("size"));
    if (view.mesh.emplace(axis, on.at("size")).second) view.order.push_back(axis);
  }
}

/// Whether a grid's axes are some of these, in their order.
bool stand_in(const Axes& order, const Json& grid) {
  auto next = order.begin();
  for (const Json& on : grid) {
    next = std::find(next, order.end(), on.at("axis").get<std::string>());
    if (next == order.end()) return false;
  }
  return true;
}

void read_mesh(PlanView& view) {
  const Json& mesh = view.json.at("config").at("mesh");
  if (mesh.size() != (mesh.contains("experts") ? 2 : 1) || view.ids["streams"].size() > 63)
    refuse("plan: expected one or two meshes, and at most 63 streams");
  Names dense{"dp_outer", "dp_shard", "cp", "tp"};
  Names experts{"ep", "expt_dp", "expt_dp_outer"};
  if (view.classes > 1) {
    dense.insert(kStages);
    experts.insert(kStages);
  }
  read_grid(view, mesh.at("dense"), view.dense, dense);
  read_grid(view, mesh.value("experts", Json::array()), view.expert_grid, experts);
  // Stages have the same tokens: only their number is kept.
  const bool divided = !view.expert_grid.empty();
  if (divided && view.expert_grid[kStages] != view.dense[kStages])
    refuse("plan: expected the same stages in both meshes");
  view.dense.erase(kStages);
  view.expert_grid.erase(kStages);
  for (const Json& communicator : view.json.at("communicators")) {
    const auto spans = [&](const PerAxis& grid) {
      return std::ranges::any_of(communicator.at("axes"),
                                 [&](const Json& axis) { return grid.contains(axis); });
    };
    if (spans(view.dense) && spans(view.expert_grid))
      refuse("communicator {}: has axes of both meshes", communicator.at("id").dump());
  }
  if (!stand_in(kDenseOrder, mesh.at("dense")))
    refuse("plan: expected ranks of one shard group to be neighbours");
  const Int stages = view.ranks_on(kStages);
  // Neighbours on ep lie beside each other, whatever else the two grids are.
  if (divided && (ranks_of(view.expert_grid) != ranks_of(view.dense) ||
                  !view.expert_grid.contains("ep") || !stand_in(kDealtOrder, mesh.at("experts"))))
    refuse("plan: expected a grid of experts over the ranks that share shards");
  const Json& of = view.json.at("classes");
  if (of.size() != 1 || of[0].at("ranks") != ranks_of(view.dense))
    refuse("plan: expected one rank class of all {} ranks{}", ranks_of(view.dense),
           view.classes == 1 ? "" : " of a pipeline stage");
  if (view.classes == 1 && (stages > 1 || of[0].contains("at")))
    refuse("plan: has one rank class; expected one pipeline stage, and no \"at\"");
  if (view.classes == 1) return;
  const Json& at = of[0].at("at");
  if (view.classes != stages || at.size() != 1 || at[0].at("axis") != kStages ||
      at[0].at("index") >= stages)
    refuse(
        "plan: expected a rank class for each of {} pipeline stages, with its stage under \"at\"",
        stages);
  view.stage = at[0].at("index");
}

}  // namespace

Index PlanView::instance_at(const char* list, const Json& object, const char* key,
                            Int microbatch) const {
  const Index first = at(list, object, key);
  const Turns& of = turns.at(list).at(first);
  const Int turn = turn_of(microbatch, of.count);
  return turn == 0 ? first : of.further + static_cast<Index>(turn) - 1;
}

const Op* read_op(PlanView& view, const Json& json, Int microbatch) try {
  const auto body = json.at("body").begin();
  const Index stream = view.at("streams", json, "stream");
  const std::string does = body->value("kind", "");
  Op& op = view.ops.emplace_back(
      Op{json.at("id"), &json, &*body, body.key(), does, stream, kNone, {}, {}});
  if (json.at("body").size() != 1) refuse("expected one kind");
  if (body->contains("event")) op.event = view.instance_at("events", *body, "event", microbatch);
  for (const Json& entry : body->value("operands", Json::array()))
    op.operands.push_back(read_operand(view, entry, entry.at("role"), microbatch));
  for (const Json& entry : body->value("attributes", Json::array()))
    if (entry.size() != (entry.contains("per") ? 3 : 2) ||
        !op.attributes.emplace(entry.at("name"), entry.contains("per") ? entry : entry.at("value"))
             .second)
      refuse("an attribute is given twice, or is more than a number");
  for (const char* role : {"input", "output"})
    if (body->contains(role))
      op.operands.push_back(read_operand(view, body->at(role), role, microbatch));
  if (body->contains("buffer"))
    op.operands.push_back(view.buffers[view.instance_at("buffers", *body, "buffer", microbatch)]);
  return &op;
} catch (const std::exception& error) {
  refuse("op {}: {}", json.value("name", "?"), error.what());
}

std::deque<Json> documents_of(const Json& document) {
  const Json& classes = document.at("classes");
  if (classes.size() < 2 || !classes[0].contains("plans")) return {document};
  std::deque<Json> documents;
  for (const Json& of : classes) {
    Json& made = documents.emplace_back(document);
    made["classes"] = Json::array({of});
    for (const char* key : {"pools", "buffers", "plans"}) {
      if (!document.value(key, Json::array()).empty())
        refuse("{}: are outside of the classes that have them", key);
      made[key] = of.at(key);
      made["classes"][0].erase(key);
    }
  }
  return documents;
}

PlanView read_plan(Json& document, Int classes) {
  PlanView view{.json = document, .classes = classes, .rotates = classes > 1};
  add_instances(document, "buffers", view);
  add_instances(document, "events", view);
  for (const char* key :
       {"streams", "communicators", "events", "units", "groups", "pools", "buffers"})
    for (const Json& entry : document.at(key))
      if (!view.ids[key].emplace(entry.at("id"), view.ids[key].size()).second)
        refuse("{}: an id appears twice", key);
  read_mesh(view);
  for (const Json& json : document.at("buffers")) {
    const Index pool = view.at("pools", json, "pool");
    const Json& memory = document.at("pools")[pool];
    Operand whole{
        .buffer = view.at("buffers", json, "id"), .pool = pool, .begin = json.at("offset")};
    whole.end = plus(whole.begin, json.at("size"));
    if (whole.end > memory.at("height"))
      refuse("buffer {}: leaves its pool", json.at("name").dump());
    view.buffers.push_back(whole);
  }
  read_places(view);
  read_runs(view);
  return view;
}

}  // namespace mfsdp::checker
