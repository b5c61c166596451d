#include "verify/checker/check_certificate.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "verify/checker/collectives.hpp"
#include "verify/checker/json.hpp"
#include "verify/checker/races.hpp"

namespace mfsdp {
namespace checker {

std::string hash_of(const Json& document) {
  const std::string text = document.dump();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

namespace {

/// The parser keeps what is open on its own stack, but those who use the document may not.
Json parse(std::string_view text, const char* what) {
  constexpr int kDeepest = 64;
  const auto keep = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) throw Refusal{what, "is nested too deep"};
    return true;
  };
  try {
    return Json::parse(text, keep);
  } catch (const Json::exception& error) {
    throw Refusal{what, std::string("is no JSON: ") + error.what()};
  }
}

void expect(const Json& object, const char* key, const std::string& so) {
  if (const std::string claimed = text(object, key); claimed != so)
    throw Refusal{key, fmt::format("is claimed to be '{}', where '{}' is so", claimed.substr(0, 80), so)};
}

CheckedPlan check(std::string_view plan_json, std::string_view certificate_json) {
  Json plan = parse(plan_json, "plan");
  expect(plan, "schema", "mfsdp.plan/1");
  plan.erase("meta");  // says nothing about the plan, and is not hashed
  CheckedPlan figures{.hash = hash_of(plan)};
  Json certificate = parse(certificate_json, "certificate");
  expect(certificate, "schema", "mfsdp.certificate/1");
  const std::string checksum = text(certificate, "checksum");
  certificate.erase("checksum");
  if (checksum != hash_of(certificate)) throw Refusal{"checksum", "is not that of the certificate"};
  expect(certificate, "plan", figures.hash);
  const PlanView view = read_plan(plan);
  const Json& proofs = list(certificate, "plans");
  if (proofs.size() != view.plans.size()) throw Refusal{"plans", "are not as many as the plan has"};
  for (std::size_t p = 0; p < view.plans.size(); ++p) {
    expect(proofs[p], "name", view.plans[p].name);
    check_races(view, view.plans[p], list(proofs[p], "clocks"), figures);
    check_collectives(view, view.plans[p], list(proofs[p], "collectives"), figures);
  }
  return figures;
}

}  // namespace
}  // namespace checker

Result<CheckedPlan> check_certificate(std::string_view plan_json,
                                      std::string_view certificate_json) {
  try {
    return checker::check(plan_json, certificate_json);
  } catch (const checker::Refusal& refusal) {
    return fail(refusal.where, refusal.what);
  }
}

}  // namespace mfsdp
