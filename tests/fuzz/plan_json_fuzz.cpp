// Arbitrary bytes as a plan: an error, or a program that reads back as it was written and that
// lifetimes, proofs, simulator and prediction answer with a value or an error. A plan of several
// classes or microbatches reads back too, and is proved or not.
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/plan/lifetimes.hpp"
#include "core/plan/peak_memory.hpp"
#include "core/plan/plan_json.hpp"
#include "sim/predict/predict.hpp"
#include "sim/simulator/critical_path.hpp"
#include "sim/simulator/lowered_plan.hpp"
#include "tests/fuzz/json_mutator.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/findings/render_findings.hpp"
#include "verify/proof/certificate.hpp"
#include "verify/proof/job.hpp"
#include "verify/proof/prove.hpp"

namespace {

using namespace mfsdp;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_identity(Program program) {
  const std::string written = to_canonical_json(program);
  program.meta.stored_hash = plan_hash(program);
  const auto back = program_from_json(written, "plan.json");
  require(back && *back == program);
  require(plan_hash(*back) == program.meta.stored_hash);
  require(to_canonical_json(*back) == written);
}

/// The proof of a plan also holds for the plan read back from its text, and can be printed.
void check_proof(const Program& program) {
  const auto proof = prove(program);
  if (!proof) {
    require(proof.error().message().find('\n') == std::string::npos);
    return;
  }
  const auto again = prove(program_from_json(to_canonical_json(program), "plan.json").value());
  require(again && *again == *proof);
  require(nlohmann::json::accept(render_findings_json(proof->findings, {})));
  require(nlohmann::json::accept(render_findings_sarif(proof->findings, {})));
  require(!render_findings_text(proof->findings).empty());
  const bool right = !has_errors(proof->findings);
  const auto certificate = certificate_of(program);
  require(certificate.has_value() == right);
  if (!right) return;
  // Steps that are no model's are refused, in one line.
  const auto checked = check_certificate(to_canonical_json(program), *certificate);
  require(checked || checked.error().message().find('\n') == std::string::npos);
}

/// Every op takes a microsecond.
Prices equal_prices() {
  static constexpr Nanos price(1000);
  return {.kernel = [](const Op&) { return price; },
          .collective =
              [](const Collective&, const Communicator&) {
                return CollectivePrice{.duration = price, .latency = Nanos(100), .occupancy = 1000};
              },
          .copy = [](const Copy&) { return CopyPrice{.duration = price}; }};
}

/// Numbers of the ops as they stand, up to 2^63 - 1 ns.
Prices stated_prices() {
  return {.kernel = [](const Op& op) { return Nanos(std::get<Kernel>(op.body).flops); },
          .collective =
              [](const Collective& op, const Communicator& communicator) {
                return CollectivePrice{.duration = Nanos(op.count),
                                       .latency = Nanos(op.count / 8),
                                       .occupancy = kOne / 8,
                                       .traffic = {{kOne / 3, kOne / 3, kOne / 3, kOne / 3}},
                                       .link = communicator.purpose == "outer" ? 1 : 0};
              },
          .copy = [](const Copy& op) { return CopyPrice{.duration = Nanos(op.input.offset)}; }};
}

void check_simulation(const Program& program, const Plan& plan, const Prices& prices) {
  const auto simulation = simulate(program, plan, prices);
  if (!simulation) return;
  const TimeSummary& time = simulation->time;
  require(time.step == time.compute + time.exposed_communication + time.idle);
  require(time.compute.value >= 0 && time.idle.value >= 0 && time.contention.value >= 0);
  require(time.exposed_communication.value >= 0);
  require(time.exposed_communication <= time.communication);
  require(critical_path(program, plan, *simulation).length.value >= 0);
}

const CostModel& shipped_costs() {
  static const CostModel costs = [] {
    const auto gpu = load_gpu("h200", MFSDP_SOURCE_DIR "/scenarios/gpus");
    return make_cost_model(make_cluster(gpu.value(), 64, 8).value()).value();
  }();
  return costs;
}

/// No more is live than there is, and nothing by less than nothing.
void check_peak(const Program& program, const Plan& plan) {
  const auto lifetimes = buffer_lifetimes(program, plan);
  if (!lifetimes) return;
  Int128 everything = 0;
  for (const Buffer& buffer : program.buffers) everything += buffer.size.value;
  constexpr Int128 most = std::numeric_limits<std::int64_t>::max();
  if (everything > most) return;
  const CategoryBytes peak = peak_memory(program, *lifetimes);
  for (const Bytes bytes : peak) require(bytes >= Bytes(0));
  require(sum_of(peak).value <= everything);
}

/// Ops of a step. More than the simulator takes are an error; fewer, but many, are only slow.
bool is_slow(const Plan& plan) {
  constexpr std::int64_t quick = 100'000;
  Int128 ops = 0;
  for (const Segment& segment : plan.segments)
    ops += static_cast<Int128>(segment.repeat) * std::ssize(segment.ops);
  return ops > quick && ops <= kMostOps;
}

/// Ops of all classes: proofs write them out in full.
bool is_long(const Job& job) {
  constexpr std::int64_t most = 20'000;
  Int128 ops = 0;
  for (const Program& program : job.programs)
    for (const Plan& plan : program.plans)
      for (const Segment& segment : plan.segments)
        ops += static_cast<Int128>(segment.repeat) * (std::ssize(segment.ops) + 1);
  return ops > most;
}

void check_job(const Job& job) {
  const std::string written = to_canonical_json(job);
  const auto back = job_from_json(written, "plan.json");
  require(back && plan_hash(*back) == plan_hash(job) && to_canonical_json(*back) == written);
  if (is_long(job)) return;
  const auto proof = prove_job(job);
  const auto again = prove_job(*back);
  require(proof.has_value() == again.has_value() && (!proof || proof->findings == again->findings));
  if (!proof) return;
  require(nlohmann::json::accept(render_findings_json(proof->findings, {})));
  require(!render_findings_text(proof->findings).empty());
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t most, unsigned seed) {
  return fuzz::mutate_json(data, size, most, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto job = job_from_json(text, "plan.json");
  if (job && (job->programs.size() > 1 || is_pipelined(job->programs[0]))) {
    require(!program_from_json(text, "plan.json"));
    check_job(*job);
    if (!is_long(*job)) (void)predict(job->programs, shipped_costs());
    return 0;
  }
  const auto program = program_from_json(text, "plan.json");
  if (!program) {
    require(program.error().where.starts_with("plan.json"));
    return 0;
  }
  check_identity(*program);
  const Plan* train = program->find_plan(PlanRole::train);
  check_peak(*program, *train);
  check_proof(*program);
  if (is_slow(*train)) return 0;
  check_simulation(*program, *train, equal_prices());
  check_simulation(*program, *train, stated_prices());
  (void)predict(*program, shipped_costs());
  return 0;
}
