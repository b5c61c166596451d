// Reads a plan, or each class of a job: its ops with their operands, and their runs in the order of
// the host. A plan of a job states pools, buffers and plans in each of its classes.
//
// Where buffers or events have several instances, each instance is a buffer or an event of its own
// from here on. An op has a variant for each combination of instances that its runs use.
#include <numeric>
#include <ranges>

#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {
namespace {

constexpr Int kMostRuns = Int{1} << 22;       ///< of ops in two steps, where all repetitions run
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

/// The op on that microbatch of its step, counted from 0.
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
    if (!op.attributes.emplace(entry.at("name"), entry.at("value")).second)
      refuse("an attribute is given twice");
  for (const char* role : {"input", "output"})
    if (body->contains(role))
      op.operands.push_back(read_operand(view, body->at(role), role, microbatch));
  if (body->contains("buffer"))
    op.operands.push_back(view.buffers[view.instance_at("buffers", *body, "buffer", microbatch)]);
  return &op;
} catch (const std::exception& error) {
  refuse("op {}: {}", json.value("name", "?"), error.what());
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
    view.mesh.emplace(axis, on.at("size"));
    view.order.push_back(axis);
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

Int ranks_of(const PerAxis& grid) {
  Int all = 1;
  for (const auto& [axis, size] : grid) all = times(all, size);
  return all;
}

void read_mesh(PlanView& view) {
  const Json& mesh = view.json.at("config").at("mesh");
  if (mesh.size() != (mesh.contains("experts") ? 2 : 1) || view.ids["streams"].size() > 63)
    refuse("plan: expected one or two meshes, and at most 63 streams");
  read_grid(view, mesh.at("dense"), view.dense, {std::string(kStages), "dp_outer", "dp_shard"});
  read_grid(view, mesh.value("experts", Json::array()), view.expert_grid,
            {"ep", "expt_dp", "expt_dp_outer"});
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
  // Stages have the same tokens: only their number is kept.
  view.dense.erase(std::string(kStages));
  const Int stages = view.ranks_on(std::string(kStages));
  // Neighbours on ep lie beside each other, whatever else the two grids are.
  if (!view.expert_grid.empty() &&
      (ranks_of(view.expert_grid) != ranks_of(view.dense) || !view.expert_grid.contains("ep") ||
       stages > 1 || !stand_in(kDealtOrder, mesh.at("experts"))))
    refuse("plan: expected a grid of experts over the ranks that share shards");
  const Json& of = view.json.at("classes");
  if (of.size() != 1 || of[0].at("ranks") != ranks_of(view.dense) ||
      (view.classes == 1 && (stages > 1 || of[0].contains("at"))))
    refuse("plan: expected one class of all {} ranks", ranks_of(view.dense));
  if (view.classes == 1) return;
  const Json& at = of[0].at("at");
  if (view.classes != stages || at.size() != 1 || at[0].at("axis") != kStages ||
      at[0].at("index") >= stages)
    refuse("plan: expected a class for each of {} stages", stages);
  view.stage = at[0].at("index");
}

// ---- runs

/// The lists of ops of a plan: those of its segments, then its passes.
struct Lists {
  std::vector<const Json*> ops{};
  std::map<Int, Int> passes{};  ///< by id: which list
};

Lists lists_of(PlanView& view, const Json& plan) {
  static const Json none = Json::array();
  Lists lists;
  for (const Json& segment : plan.at("segments")) {
    const bool calls = !segment.value("calls", Json::array()).empty();
    if (calls && !segment.value("ops", Json::array()).empty())
      refuse("segment {}: has both ops and calls", segment.at("name").dump());
    lists.ops.push_back(calls ? &none : &segment.at("ops"));
  }
  if (plan.contains("passes"))
    for (const Json& pass : plan.at("passes")) {
      if (!lists.passes.emplace(pass.at("id"), std::ssize(lists.ops)).second)
        refuse("passes: an id appears twice");
      lists.ops.push_back(&pass.at("ops"));
    }
  for (const Json* ops : lists.ops)
    for (const Json& op : *ops) {
      if (!view.ids["ops"].emplace(op.at("id"), 0).second)
        refuse("op {}: expected an id of its own", op.value("name", "?"));
      view.rotates = view.rotates || op.value("lag", Int{0}) > 0;
    }
  for (const Json& segment : plan.at("segments"))
    for (const Json& call : segment.value("calls", Json::array()))
      view.rotates =
          view.rotates || call.value("lag", Int{0}) > 0 || call.value("lag_step", Int{0}) != 0;
  return lists;
}

/// An op of a list with the variants that were made of it.
struct Listed {
  const Json* json = nullptr;
  Int lag = 0;
  Int period = 1;  ///< microbatches after which it uses the same instances
  std::map<Int, const Op*> variants{};
};

/// Microbatches after which an op is back at the same instances.
Int period_of(const PlanView& view, const Json& op) {
  Int period = 1;
  const auto add = [&](const char* list, const Json& object, const char* key) {
    if (!object.contains(key)) return;
    const Int count = view.turns.at(list)[view.at(list, object, key)].count;
    period = times(period / std::gcd(period, count), count);
  };
  const Json& body = op.at("body").begin().value();
  add("buffers", body, "buffer");
  add("events", body, "event");
  for (const char* role : {"input", "output"})
    if (body.contains(role)) add("buffers", body.at(role), "buffer");
  for (const Json& operand : body.value("operands", Json::array()))
    add("buffers", operand, "buffer");
  return period;
}

class Unroller {
 public:
  Unroller(PlanView& view, const Json& json, const Lists& lists)
      : view_(view), json_(json), passes_(lists.passes) {
    for (const Json* ops : lists.ops) {
      auto& list = lists_.emplace_back();
      for (const Json& op : *ops)
        list.push_back(
            {.json = &op, .lag = op.value("lag", Int{0}), .period = period_of(view, op)});
    }
  }

  Plan run() {
    for (Int step = 0; step < 2; ++step) {
      begun_ = 0;
      for (Int s = 0; s < std::ssize(json_.at("segments")); ++s) run(step, s);
    }
    return std::move(runs_);
  }

 private:
  void run(Int step, Int s) {
    const Json& segment = json_.at("segments")[static_cast<Index>(s)];
    const Int repeat = segment.at("repeat");
    const Int runs = view_.rotates ? repeat : std::min<Int>(kRepetitions, repeat);
    for (Int r = 0; r < runs; ++r, ++repetition_) {
      begun_ = plus(begun_, segment.at("microbatches"));
      const Instance at{.op = nullptr,
                        .step = step,
                        .repetition = repetition_,
                        .run = 0,
                        .segment = s,
                        .list = s};
      if (!segment.contains("calls") || segment.at("calls").empty()) {
        issue(at, 0);
        continue;
      }
      for (const Json& call : segment.at("calls")) {
        const auto list = passes_.find(call.at("pass"));
        const Int lag_step = call.value("lag_step", Int{0});
        const Int lag = call.value("lag", Int{0}) + (lag_step == 0 ? 0 : -r);
        if (list == passes_.end() || lag < 0 || (lag_step != 0 && lag_step != -1))
          refuse("segment {}: calls no pass, or one on a microbatch that has not begun",
                 segment.at("name").dump());
        Instance in_pass = at;
        in_pass.list = list->second;
        issue(in_pass, lag);
      }
    }
  }

  void issue(Instance at, Int lag) {
    at.run = run_++;
    for (Listed& listed : lists_[static_cast<Index>(at.list)]) {
      const Int microbatch = begun_ - 1 - lag - listed.lag;
      const Int variant = turn_of(microbatch, listed.period);
      const Op*& op = listed.variants[variant];
      if (op == nullptr) op = read_op(view_, *listed.json, variant);
      at.op = op;
      runs_.push_back(at);
    }
    if (view_.rotates && std::max(run_, std::ssize(runs_)) > kMostRuns)
      refuse("plan {}: has more than {} runs of ops in two steps", json_.at("name").dump(),
             kMostRuns);
  }

  PlanView& view_;
  const Json& json_;
  const std::map<Int, Int>& passes_;
  std::vector<std::vector<Listed>> lists_{};
  Plan runs_{};
  Int begun_ = 0, run_ = 0, repetition_ = 0;
};

}  // namespace

Index PlanView::instance_at(const char* list, const Json& object, const char* key,
                            Int microbatch) const {
  const Index first = at(list, object, key);
  const Turns& of = turns.at(list).at(first);
  const Int turn = turn_of(microbatch, of.count);
  return turn == 0 ? first : of.further + static_cast<Index>(turn) - 1;
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
  std::vector<Lists> lists;
  for (const Json& plan : document.at("plans")) lists.push_back(lists_of(view, plan));
  for (Index p = 0; p < lists.size(); ++p)
    view.plans.push_back(Unroller(view, document.at("plans")[p], lists[p]).run());
  return view;
}

}  // namespace mfsdp::checker
