#include "verify/proof/certificate.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "core/plan/plan_json.hpp"
#include "verify/proof/job.hpp"
#include "verify/proof/order/unfolded_program.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

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

/// The statements about one class. `all`: with all repetitions of segments.
Result<Json> plans_of(const Program& written, bool all) {
  std::optional<UnfoldedProgram> unfolded;
  if (all) MFSDP_SET(unfolded, unfolded_program(written, Repetitions::all));
  const Program& program = unfolded ? unfolded->program : written;
  const ProgramIndex index(program);
  Json plans = Json::array();
  for (std::size_t p = 0; p < program.plans.size(); ++p) {
    FindingList ignored(0);  // prove_job() reports them
    const std::span<const SegmentRun> runs =
        unfolded ? std::span<const SegmentRun>(unfolded->runs[p]) : std::span<const SegmentRun>();
    const UnrolledPlan unrolled = unroll(program, index, program.plans[p], {}, ignored, runs);
    plans.push_back({{"clocks", clocks_of(unrolled)}, {"collectives", collectives_of(unrolled)}});
  }
  return plans;
}

}  // namespace

Result<std::string> certificate_of(const Job& job) {
  MFSDP_LET(proof, prove_job(job));
  for (const Finding& finding : proof.findings)
    if (is_error(finding.rule)) return fail(finding.rule, finding.message);
  return unproved_certificate(job);
}

Result<std::string> unproved_certificate(const Job& job) { return forged_certificate(job, job); }

Result<std::string> forged_certificate(const Job& job, const Job& other) {
  Json claims{{"plan", plan_hash(job)}};
  if (other.programs.size() == 1) {
    MFSDP_SET(claims["plans"], plans_of(other.programs[0], has_rotation(other.programs[0])));
  } else {
    claims["classes"] = Json::array();
    for (const Program& program : other.programs) {
      MFSDP_LET(plans, plans_of(program, true));
      claims["classes"].push_back({{"plans", std::move(plans)}});
    }
  }
  return Json{{"schema", kCertificateSchema}, {"checksum", hash_of(claims)}, {"claims", claims}}
      .dump();
}

}  // namespace mfsdp
