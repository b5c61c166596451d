#include "verify/checker/check_certificate.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "verify/checker/plan_view.hpp"

namespace mfsdp {
namespace checker {
namespace {

/// Of a document on one line with sorted keys.
std::string hash_of(const Json& document) {
  const std::string line = document.dump();
  const XXH128_hash_t hash = XXH3_128bits(line.data(), line.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// JSON of which all numbers are integers from 0 to kMost.
Json parse(std::string_view json, const char* what) {
  return Json::parse(json, [&](int depth, Json::parse_event_t, const Json& value) {
    if (depth > 64) refuse("{}: is nested too deep", what);
    if (value.is_number() && !(value.is_number_unsigned() && value <= kMost))
      refuse("{}: expected integers from 0 to {}, got {}", what, kMost, value.dump());
    return true;
  });
}

void expect(const Json& object, const char* key, const Json& so) {
  if (object.at(key) != so)
    refuse("{}: {} is claimed, {} is so", key, object.at(key).dump().substr(0, 80), so.dump());
}

/// Each collective fits its operands and communicator, counted as NCCL does: all_gather per rank
/// sent, reduce_scatter per rank received. All ranks of a class run the plan, and a wait is only
/// for what was issued before it, so that a class by itself meets and ends; plans of several
/// classes match where these hashes are equal.
std::string check_collectives(const PlanView& view, const std::vector<Instance>& plan,
                              CheckedPlan& figures) {
  const Json& communicators = view.json.at("communicators");
  Json issued(Json::array_t(communicators.size(), Json::array()));
  for (const Instance& instance : plan) {
    const Op& op = *instance.op;
    if (op.kind != "collective" || instance.step > 0) continue;
    const int c = view.at("communicators", *op.body, "communicator");
    const bool gathers = op.does == "all_gather";
    const Operand& part = op.operands.at(gathers ? 0 : 1);
    const Operand& whole = op.operands.at(gathers ? 1 : 0);
    Int elements = part.elements;
    if (op.does != "all_reduce")
      for (const Json& axis : communicators.at(c).at("axes"))
        elements = times(elements, view.mesh.at(axis));
    if ((!gathers && op.does != "all_reduce" && op.does != "reduce_scatter") ||
        part.elements != op.body->at("count") || whole.elements != elements ||
        part.dtype != op.body->at("dtype") || whole.dtype != part.dtype || !part.dense ||
        !whole.dense || (op.body->at("reduction") == "none") != gathers)
      refuse("{}: {} does not fit its operands", op.place(), op.body->dump().substr(0, 80));
    issued[c].push_back({op.does, part.elements, part.dtype});
    ++figures.collectives;
  }
  return hash_of(issued);
}

CheckedPlan check(std::string_view plan_json, std::string_view certificate_json) {
  Json plan = parse(plan_json, "plan");
  expect(plan, "schema", "mfsdp.plan/1");
  plan.erase("meta");  // says nothing about the plan, and is not hashed
  CheckedPlan figures{.hash = hash_of(plan)};
  Json certificate = parse(certificate_json, "certificate");
  expect(certificate, "schema", "mfsdp.certificate/1");
  const Json checksum = certificate.at("checksum");
  certificate.erase("checksum");
  expect({{"checksum", checksum}}, "checksum", hash_of(certificate));
  expect(certificate, "plan", figures.hash);
  const PlanView view = read_plan(plan);
  for (std::size_t p = 0; p < view.plans.size(); ++p) {
    const Json& claims = certificate.at("plans").at(p);
    expect(claims, "name", plan.at("plans").at(p).at("name"));
    check_races(view, view.plans[p], claims.at("clocks"), figures);
    expect(claims, "collectives", check_collectives(view, view.plans[p], figures));
    check_ledger(view, view.plans[p], figures);
  }
  return figures;
}

}  // namespace
}  // namespace checker

Result<CheckedPlan> check_certificate(std::string_view plan_json,
                                      std::string_view certificate_json) {
  try {
    return checker::check(plan_json, certificate_json);
  } catch (const std::exception& refusal) {
    return fail("refused", std::string(refusal.what()).substr(0, 300));
  }
}

}  // namespace mfsdp
