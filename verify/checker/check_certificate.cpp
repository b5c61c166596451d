#include "verify/checker/check_certificate.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "verify/checker/plan_view.hpp"

namespace mfsdp {
namespace checker {
namespace {

// ---- reading

/// The hash of a document on one line with sorted keys.
std::string hash_of(const Json& document) {
  const std::string line = document.dump();
  const XXH128_hash_t hash = XXH3_128bits(line.data(), line.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// JSON of which all numbers are integers from 0 to below kMost; an attribute may be negative.
Json parse(std::string_view json, const char* what) {
  std::string key;
  return Json::parse(json, [&](int depth, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::key) key = value;
    const bool small = value.is_number_unsigned() && value.get<std::uint64_t>() >> 60 == 0;
    if (depth > 64 || (value.is_number() && !small &&
                       !(key == "value" && value.is_number_integer() && value < 0)))
      refuse("{}: is nested deeper than 64, or contains a number that is not an integer below 2^60",
             what);
    return true;
  });
}

Operand read_operand(const PlanView& view, const Json& json, const std::string& role) {
  const Operand& of = view.buffers[view.at("buffers", json, "buffer")];
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

void read_op(PlanView& view, const Json& json) try {
  const auto body = json.at("body").begin();
  const Index stream = view.at("streams", json, "stream");
  const std::string does = body->value("kind", "");
  Op& op =
      view.ops.emplace_back(Op{json.at("id"), &json, &*body, body.key(), does, stream, {}, {}});
  if (json.at("body").size() != 1 || !view.ids["ops"].emplace(op.id, 0).second)
    refuse("expected one kind, and an id of its own");
  for (const Json& entry : body->value("operands", Json::array()))
    op.operands.push_back(read_operand(view, entry, entry.at("role")));
  for (const Json& entry : body->value("attributes", Json::array()))
    if (entry.size() != (entry.contains("per") ? 3 : 2) ||
        !op.attributes.emplace(entry.at("name"), entry.contains("per") ? entry : entry.at("value"))
             .second)
      refuse("an attribute is given twice, or is more than a number");
  for (const char* role : {"input", "output"})
    if (body->contains(role)) op.operands.push_back(read_operand(view, body->at(role), role));
  if (body->contains("buffer"))
    op.operands.push_back(view.buffers[view.at("buffers", *body, "buffer")]);
} catch (const std::exception& error) {
  refuse("op {}: {}", json.value("name", "?"), error.what());
}

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

PlanView read_plan(const Json& document) {
  PlanView view{.json = document};
  for (const char* key :
       {"streams", "communicators", "events", "units", "groups", "pools", "buffers"})
    for (const Json& entry : document.at(key))
      if (!view.ids[key].emplace(entry.at("id"), view.ids[key].size()).second)
        refuse("{}: an id appears twice", key);
  const std::string text = document.dump();
  for (const char* key : {R"("instances":)", R"("lag":)", R"("at":)", R"("peer":)", R"("passes":)"})
    if (text.find(key) != std::string::npos)
      refuse(
          "plan: has several rank classes, passes, or several microbatches in flight; expected one "
          "class, ops in segments, and one microbatch");
  const Json& mesh = document.at("config").at("mesh");
  if (mesh.size() != (mesh.contains("experts") ? 2 : 1) || view.ids["streams"].size() > 63)
    refuse("plan: expected one or two meshes, and at most 63 streams");
  read_grid(view, mesh.at("dense"), view.dense, {"dp_outer", "dp_shard", "tp"});
  read_grid(view, mesh.value("experts", Json::array()), view.expert_grid,
            {"ep", "expt_dp", "expt_dp_outer"});
  for (const Json& communicator : document.at("communicators")) {
    const auto spans = [&](const PerAxis& grid) {
      return std::ranges::any_of(communicator.at("axes"),
                                 [&](const Json& axis) { return grid.contains(axis); });
    };
    if (spans(view.dense) && spans(view.expert_grid))
      refuse("communicator {}: has axes of both meshes", communicator.at("id").dump());
  }
  const auto ranks = [](const PerAxis& grid) {
    Int all = 1;
    for (const auto& [axis, size] : grid) all = times(all, size);
    return all;
  };
  if (!stand_in(kDenseOrder, mesh.at("dense")))
    refuse("plan: expected ranks of one shard group to be neighbours");
  // Neighbours on ep lie beside each other, whatever else the two grids are.
  if (!view.expert_grid.empty() &&
      (ranks(view.expert_grid) != ranks(view.dense) || !view.expert_grid.contains("ep") ||
       !stand_in(kDealtOrder, mesh.at("experts"))))
    refuse("plan: expected a grid of experts over the ranks that share shards");
  const Json& classes = document.at("classes");
  if (classes.size() != 1 || classes[0].at("ranks") != ranks(view.dense))
    refuse("plan: expected one class of all {} ranks", ranks(view.dense));
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
  for (const Json& plan : document.at("plans")) {
    const auto first = std::ssize(view.ops);
    for (const Json& segment : plan.at("segments"))
      for (const Json& op : segment.at("ops")) read_op(view, op);
    auto& instances = view.plans.emplace_back();
    for (Int step = 0, pass = 0; step < 2; ++step) {
      auto op = view.ops.begin() + first;
      Int number = 0;
      for (const Json& segment : plan.at("segments")) {
        const auto end = op + std::ssize(segment.at("ops"));
        for (Int i = std::min<Int>(kRepetitions, segment.at("repeat")); i > 0; --i, ++pass)
          for (auto o = op; o != end; ++o) instances.push_back({&*o, step, pass, number});
        op = end;
        ++number;
      }
    }
  }
  return view;
}

// ---- checking

void expect(const Json& object, const char* key, const Json& so) {
  if (object.at(key) != so)
    refuse("{}: the certificate states {}; expected {}", key, object.at(key).dump().substr(0, 80),
           so.dump());
}

bool has_windows(const Json& communicator) {
  return communicator.value("transport", "nccl") != "nccl";
}

/// Peers touch registered memory. Collectives from window to window begin and end with a barrier of
/// their members: peers touch it while this rank is in the collective, which the races look at. All
/// others have none at their end, and no such memory is accepted.
void check_registered(const PlanView& view) {
  for (const Json& pool : view.json.at("pools"))
    if (pool.contains("registered") &&
        !has_windows(
            view.json.at("communicators").at(view.at("communicators", pool, "registered"))))
      refuse("pool {}: peers may access it after a collective has ended", pool.at("name").dump());
}

/// NCCL uses symmetric memory if both operands lie in memory of the communicator, at one offset on
/// all members, and the call is not in a group. Otherwise it silently falls back to rings. Copy
/// engines gather and scatter; kernels gather, and add fp32, bf16 and fp16.
void check_windows(const PlanView& view, const Op& op, bool grouped) {
  const Json& communicator = view.communicator_of(op);
  if (!has_windows(communicator)) return;
  const std::string by = communicator.at("transport");
  const bool deals = op.does == "all_to_all";
  const bool adds = op.does != "all_gather" && !deals;
  const std::string& dtype = op.operands.at(0).dtype;
  bool fits = !grouped && ((by == "symmetric" && !deals) || (by == "copy_engine" && !adds)) &&
              (!adds || dtype == "fp32" || dtype == "bf16" || dtype == "fp16");
  for (const Operand& operand : op.operands) {
    const Json& pool = view.json.at("pools")[operand.pool];
    fits = fits && pool.contains("registered") && pool.at("registered") == communicator.at("id");
    for (const std::string axis : communicator.at("axes"))
      fits = fits && !operand.rank_strides.contains(axis);
  }
  if (!fits) refuse("{}: cannot use symmetric memory with transport {}", op.place(), by);
}

/// Each collective fits its operands and communicator, counted as NCCL does: all_gather per rank
/// sent, reduce_scatter per rank received, all_to_all per pair of ranks. All ranks of a class run
/// the plan, and a wait is only for what was issued before it, so that a class by itself meets and
/// ends; plans of several classes match where these hashes are equal.
std::string check_collectives(const PlanView& view, const Plan& plan) {
  Json issued(Json::array_t(view.json.at("communicators").size(), Json::array()));
  bool grouped = false;
  for (const Instance& instance : plan) {
    const Op& op = *instance.op;
    if (op.kind.starts_with("group_")) grouped = op.kind == "group_begin";
    if (op.kind != "collective" || instance.step > 0) continue;
    check_windows(view, op, grouped);
    const bool gathers = op.does == "all_gather";
    const bool deals = op.does == "all_to_all";
    const Operand& part = op.operands.at(gathers ? 0 : 1);
    const Operand& whole = op.operands.at(gathers ? 1 : 0);
    Int ranks = 1;
    if (op.does != "all_reduce")
      for (const Json& axis : view.communicator_of(op).at("axes"))
        ranks = times(ranks, view.ranks_on(axis));
    const Int count = op.body->at("count");
    const Int all = times(count, ranks);
    if ((!gathers && !deals && op.does != "all_reduce" && op.does != "reduce_scatter") ||
        part.elements != (deals ? all : count) || whole.elements != all ||
        op.body->at("dtype") != Json(part.dtype) || whole.dtype != part.dtype || !part.dense ||
        !whole.dense || (op.body->at("reduction") == "none") != (gathers || deals) ||
        (!gathers && !deals && part.dtype.starts_with("int")))
      refuse("{}: {} does not fit its operands", op.place(), op.body->dump().substr(0, 80));
    issued[view.at("communicators", *op.body, "communicator")].push_back(
        {op.does, count, part.dtype});
  }
  return hash_of(issued);
}

CheckedPlan check(std::string_view plan_json, std::string_view certificate_json) {
  Json plan = parse(plan_json, "plan");
  expect(plan, "schema", "mfsdp.plan/2");
  plan.erase("meta");  // does not describe the plan, and is not hashed
  CheckedPlan figures{.hash = hash_of(plan)};
  const Json certificate = parse(certificate_json, "certificate");
  expect(certificate, "schema", "mfsdp.certificate/1");
  const Json& claims = certificate.at("claims");
  expect(certificate, "checksum", hash_of(claims));
  expect(claims, "plan", figures.hash);
  const PlanView view = read_plan(plan);
  check_registered(view);
  for (std::size_t p = 0; p < view.plans.size(); ++p) {
    check_races(view, view.plans[p], claims.at("plans").at(p).at("clocks"), figures);
    expect(claims.at("plans")[p], "collectives", check_collectives(view, view.plans[p]));
  }
  check_values(view, figures);
  return figures;
}

}  // namespace
}  // namespace checker

Result<CheckedPlan> check_certificate(std::string_view plan_json,
                                      std::string_view certificate_json) {
  try {
    return checker::check(plan_json, certificate_json);
  } catch (const std::out_of_range&) {
    return fail("refused", "a list in the certificate is too short for this plan");
  } catch (const std::exception& refusal) {
    std::string_view text = refusal.what();
    if (text.starts_with("[json.")) text.remove_prefix(std::min(text.find(' ') + 1, text.size()));
    return fail("refused", std::string(text.substr(0, 300)));
  }
}

}  // namespace mfsdp
