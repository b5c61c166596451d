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

/// JSON of which all numbers are integers from 0 to below kMost; an attribute may be negative, and
/// so may steps to a peer and of a lag.
Json parse(std::string_view json, const char* what) {
  std::string key;
  return Json::parse(json, [&](int depth, Json::parse_event_t event, const Json& value) {
    if (event == Json::parse_event_t::key) key = value;
    const bool small = value.is_number_unsigned() && value.get<std::uint64_t>() >> 60 == 0;
    const bool may_be_negative = key == "value" || key == "step" || key == "lag_step";
    if (depth > 64 || (value.is_number() && !small &&
                       !(may_be_negative && value.is_number_integer() && value < 0)))
      refuse("{}: is nested deeper than 64, or contains a number that is not an integer below 2^60",
             what);
    return true;
  });
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
  const bool passes = op.does == "shift";
  const bool adds = op.does != "all_gather" && !deals && !passes;
  const std::string& dtype = op.operands.at(0).dtype;
  bool fits = !grouped && !passes &&
              ((by == "symmetric" && !deals) || (by == "copy_engine" && !adds)) &&
              (!adds || dtype == "fp32" || dtype == "bf16" || dtype == "fp16");
  for (const Operand& operand : op.operands) {
    const Json& pool = view.json.at("pools")[operand.pool];
    fits = fits && pool.contains("registered") && pool.at("registered") == communicator.at("id");
    for (const std::string axis : communicator.at("axes"))
      fits = fits && !operand.rank_strides.contains(axis);
  }
  if (!fits) refuse("{}: cannot use symmetric memory with transport {}", op.place(), by);
}

/// The operand of a send or a recv, which is between two stages, is the message.
void check_transfer(const PlanView& view, const Op& op) {
  const Json& communicator = view.communicator_of(op);
  const Operand& message = op.operands.at(0);
  static_cast<void>(route_of(view, op));
  if (has_windows(communicator) || op.operands.size() != 1 || !message.dense ||
      !message.rank_strides.empty() || op.body->at("count") != message.elements ||
      op.body->at("dtype") != Json(message.dtype) || op.body->at("reduction") != "none")
    refuse("{}: {} does not fit its operand", op.place(), op.body->dump().substr(0, 80));
}

/// Each collective fits its operands and communicator, counted as NCCL does: all_gather per rank
/// sent, reduce_scatter per rank received, all_to_all per pair of ranks, shift in all. All ranks of
/// a class run the plan, and a wait is only for what was issued before it, so that a class by
/// itself meets and ends; plans of several classes match where these hashes are equal.
std::string check_collectives(const PlanView& view, const Plan& plan) {
  Json issued(Json::array_t(view.json.at("communicators").size(), Json::array()));
  bool grouped = false;
  for (const Instance& instance : plan) {
    const Op& op = *instance.op;
    if (op.kind.starts_with("group_")) grouped = op.kind == "group_begin";
    if (op.kind != "collective" || instance.step > 0) continue;
    auto& list = issued[view.at("communicators", *op.body, "communicator")];
    if (is_transfer(op)) {
      check_transfer(view, op);
      list.push_back({op.does, op.body->at("count"), op.operands[0].dtype});
      continue;
    }
    if (view.ranks_on(kStages) > 1)
      for (const Json& axis : view.communicator_of(op).at("axes"))
        if (axis == kStages) refuse("{}: is a collective of several stages", op.place());
    check_windows(view, op, grouped);
    const bool gathers = op.does == "all_gather";
    const bool deals = op.does == "all_to_all";
    const bool passes = op.does == "shift";
    const Operand& part = op.operands.at(gathers ? 0 : 1);
    const Operand& whole = op.operands.at(gathers ? 1 : 0);
    Int ranks = 1;
    if (op.does != "all_reduce" && !passes)
      for (const Json& axis : view.communicator_of(op).at("axes"))
        ranks = times(ranks, view.ranks_on(axis));
    const Int count = op.body->at("count");
    const Int all = times(count, ranks);
    // Only largest magnitudes are compared; check_values.cpp follows them.
    const bool takes_max =
        op.does == "all_reduce" && op.body->at("reduction") == "max" && part.dtype == "fp32" &&
        (view.homes[part.buffer].kind.empty() || is_history(view.homes[part.buffer]));
    // Counts of the experts of rows, which check_values.cpp follows too.
    const Json& axes = view.communicator_of(op).at("axes");
    const bool counts = op.does == "all_reduce" && part.dtype == "int32" &&
                        (axes == Json{"tp"} || axes == Json{"cp"});
    const Json wanted = gathers || deals || passes ? "none" : takes_max ? "max" : "sum";
    if ((!gathers && !deals && !passes && op.does != "all_reduce" && op.does != "reduce_scatter") ||
        part.elements != (deals ? all : count) || whole.elements != all ||
        op.body->at("dtype") != Json(part.dtype) || whole.dtype != part.dtype || !part.dense ||
        !whole.dense || op.body->at("reduction") != wanted ||
        (!gathers && !deals && !passes && part.dtype.starts_with("int") && !counts))
      refuse("{}: {} does not fit its operands", op.place(), op.body->dump().substr(0, 80));
    list.push_back({op.does, count, part.dtype});
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
  std::deque<Json> documents = documents_of(plan);
  std::deque<PlanView> views;
  for (Json& document : documents) views.push_back(read_plan(document, std::ssize(documents)));
  for (std::size_t c = 0; c < views.size(); ++c) {
    const PlanView& view = views[c];
    const Json& of = views.size() == 1 ? claims : claims.at("classes").at(c);
    check_registered(view);
    for (std::size_t p = 0; p < view.plans.size(); ++p) {
      check_races(view, view.plans[p], of.at("plans").at(p).at("clocks"), figures);
      expect(of.at("plans")[p], "collectives", check_collectives(view, view.plans[p]));
    }
  }
  if (views.size() > 1)
    for (std::size_t p = 0; p < views[0].plans.size(); ++p) check_meetings(views, p);
  check_values(views, figures);
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
