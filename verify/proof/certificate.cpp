#include "verify/proof/certificate.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/plan/job.hpp"
#include "core/plan/plan_json.hpp"
#include "verify/proof/order/unrolled_plan.hpp"
#include "verify/proof/prove.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace mfsdp {
namespace {

using Json = nlohmann::json;

std::string hash_of(const Json& document) {
  const std::string text = document.dump();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// Each change of a chain's clock, at the first instance that has it.
Json clocks_of(const UnrolledPlan& unrolled) {
  Json clocks = Json::array();
  std::vector<std::uint32_t> latest(unrolled.chains, 0);  // by chain: its clock
  for (std::size_t i = 0; i < unrolled.instances.size(); ++i) {
    const Instance& instance = unrolled.instances[i];
    std::uint32_t& clock = latest[instance.chain];
    if (instance.clock == clock) continue;
    Json entry = Json::array({i});
    const std::span<const std::uint32_t> now = unrolled.clock(i);
    for (std::uint32_t c = 0; c < unrolled.chains; ++c)
      if (c != instance.chain &&
          now[c] > unrolled.clocks[std::size_t{clock} * unrolled.width + c]) {
        entry.push_back(c);
        entry.push_back(now[c]);
      }
    clock = instance.clock;
    clocks.push_back(std::move(entry));
  }
  return clocks;
}

/// The hash of what each communicator issues in a step.
std::string collectives_of(const UnrolledPlan& unrolled) {
  Json issued(Json::array_t(unrolled.program->communicators.size(), Json::array()));
  for (const Instance& instance : unrolled.instances)
    if (const auto* c = std::get_if<Collective>(&instance.op->body);
        c != nullptr && unrolled.runs[instance.run].step == 0)
      issued[unrolled.index->communicators[c->communicator]].push_back(
          {to_string(c->kind), c->count, to_string(c->dtype)});
  return hash_of(issued);
}

}  // namespace

Result<std::string> certificate_of(const Program& program) {
  if (is_pipelined(program))
    return fail("plan", "certificates do not cover plans with several microbatches in flight");
  MFSDP_LET(proof, prove(program));
  for (const Finding& finding : proof.findings)
    if (is_error(finding.rule)) return fail(finding.rule, finding.message);
  return unproved_certificate(program);
}

std::string unproved_certificate(const Program& program) {
  return forged_certificate(program, program);
}

std::string forged_certificate(const Program& program, const Program& other) {
  const ProgramIndex index(other);
  Json plans = Json::array();
  for (const Plan& plan : other.plans) {
    FindingList ignored(0);  // prove() reports them
    const UnrolledPlan unrolled = unroll(other, index, plan, {}, ignored);
    plans.push_back({{"clocks", clocks_of(unrolled)}, {"collectives", collectives_of(unrolled)}});
  }
  const Json claims{{"plan", plan_hash(program)}, {"plans", std::move(plans)}};
  return Json{{"schema", kCertificateSchema}, {"checksum", hash_of(claims)}, {"claims", claims}}
      .dump();
}

}  // namespace mfsdp
