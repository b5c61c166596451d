#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/path_check.hpp"
#include "core/cli/wrap.hpp"
#include "core/plan/plan_json.hpp"
#include "core/request/plan_file.hpp"
#include "core/request/plan_request.hpp"
#include "verify/proof/certificate.hpp"
#include "verify/proof/prove.hpp"
#include "verify/tool/judge.hpp"
#include "verify/tool/print_findings.hpp"
#include "verify/traces/configuration_rules.hpp"

namespace mfsdp {
namespace {

/// Builds the plan from the common flags, as all tools do.
Result<std::shared_ptr<const Job>> build_plan(const VerifyOptions& options,
                                              const Session& session) {
  return PlanRequests(session.scenarios, notes_on(session.err, session.tool))
      .planned(options.common, {.gpus_are_chosen = say_gpus(options.given)});
}

Result<std::shared_ptr<const Job>> read_plan(const std::string& path, const Session& session) {
  MFSDP_LET(job, load_job(path, notes_on(session.err, session.tool)));
  return std::make_shared<const Job>(std::move(job));
}

// ---- proof --------------------------------------------------------------------------------------

/// Summary of the checks or the proof.
std::string proof_text(const Program& program, const Proof& proof,
                       std::chrono::steady_clock::duration took) {
  const Bounds& bounds = proof.bounds;
  std::string text =
      fmt::format("{}plan {}\n{} ops, {} waits; ",
                  program.meta.model_name.empty() ? "" : printable(program.meta.model_name) + ", ",
                  plan_hash(program), format_count(proof.ops), format_count(proof.waits));
  if (proof.only_structure) return text + std::string(kOnlyStructure);
  text += fmt::format(
      "unrolled to {} ops; proved in {}\n"
      "at most, over all interleavings: {} gathered weights, {} full gradients and {} collectives "
      "at once, and {} GiB live in the pools\n",
      format_count(proof.instances),
      format_duration(Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count())),
      bounds.live_full_weights, bounds.live_full_gradients, bounds.concurrent_collectives,
      format_gib(bounds.peak));
  if (!proof.of_model) text += std::string(kOtherModel);
  if (proof.expansion.ranks > 0)
    text +=
        fmt::format("rank by rank: {} ranks, {} collectives, {} parts of parameters\n",
                    format_count(proof.expansion.ranks), format_count(proof.expansion.collectives),
                    format_count(proof.expansion.parameter_intervals));
  if (!bounds.redundant_waits.empty())
    text += redundant_waits_text(std::ssize(bounds.redundant_waits));
  return text;
}

/// The same for scripts; omits unknown figures.
std::vector<Figure> figures_of(const Proof& proof) {
  const Bounds& bounds = proof.bounds;
  std::vector<Figure> figures{{"ops", proof.ops}, {"waits", proof.waits}};
  if (proof.only_structure) return figures;
  figures.insert(figures.end(), {{"instances", proof.instances},
                                 {"live_full_weights", bounds.live_full_weights},
                                 {"live_full_gradients", bounds.live_full_gradients},
                                 {"concurrent_collectives", bounds.concurrent_collectives},
                                 {"peak_bytes", bounds.peak.value},
                                 {"redundant_waits", std::ssize(bounds.redundant_waits)},
                                 {"expanded_ranks", proof.expansion.ranks}});
  if (!proof.of_model) figures.push_back({"model_values_proved", 0});
  for (const PoolBound& pool : bounds.pools) {
    figures.push_back({fmt::format("pool.{}.height_bytes", pool.name), pool.height.value});
    figures.push_back(
        {fmt::format("pool.{}.lower_bound_bytes", pool.name), pool.lower_bound.value});
  }
  return figures;
}

Result<ExitCode> prove_plan(const Program& program, const VerifyOptions& options,
                            const Session& session) {
  const auto begin = std::chrono::steady_clock::now();
  ProofSettings settings;
  settings.expand_ranks = options.expand;
  MFSDP_LET(proof, prove(program, settings));
  const auto took = std::chrono::steady_clock::now() - begin;
  const bool right = !has_errors(proof.findings);
  if (options.certificate && right)
    MFSDP_TRY(write_certificate(*options.certificate, Job{.programs = {program}}));
  std::vector<Finding> findings = proof.findings;
  for (Finding& finding : traces::check_configuration(program.config, environment_of(options)))
    findings.push_back(std::move(finding));
  if (options.output == FindingsFormat::text) {
    // The text reports redundant waits in one line; other formats list each.
    std::erase_if(findings, [](const Finding& finding) { return finding.rule == "MF604"; });
    session.out << wrap_text(proof_text(program, proof, took) + "\n", session.style);
  }
  const ExitCode code =
      print_findings(findings, options.output, options.common.plan.value_or(options.common.model),
                     session, figures_of(proof));
  if (options.certificate && !right)
    session.err << session.tool << ": no certificate: the plan is wrong\n";
  return code;
}

/// Judges a plan of one class of ranks with one microbatch in flight.
Result<ExitCode> judge_program(const Program& program, const VerifyOptions& options,
                               const Session& session, const Machines& machines) {
  MFSDP_TRY(write_plan(options.common, program));
  if (options.mutate) return mutate_plan(program, options, session);
  const Job job{.programs = {program}};
  if (options.check) return check_plan(job, options, session);
  if (options.runs_mutants()) return mutate_plan_fields(job, options, session, machines);
  return prove_plan(program, options, session);
}

}  // namespace

Result<void> write_certificate(const std::string& path, const Job& job) {
  MFSDP_LET(certificate, unproved_certificate(job));
  return write_file_atomically(path, certificate + "\n");
}

std::map<std::string, std::string, std::less<>> environment_of(const VerifyOptions& options) {
  std::map<std::string, std::string, std::less<>> environment;
  for (const EnvironmentVariable& variable : options.environment)
    environment[variable.name] = variable.value;
  return environment;
}

Result<ExitCode> judge_plan(const VerifyOptions& options, const Session& session,
                            const Machines& machines) {
  MFSDP_TRY(check_paths(
      options.common, session.scenarios,
      {.read = {{"--check", options.check}},
       .written = {{"--certificate", options.certificate}, {"--mutant-out", options.mutant_out}}}));
  MFSDP_LET(job, options.common.plan ? read_plan(*options.common.plan, session)
                                     : build_plan(options, session));
  const bool is_plain = job->programs.size() == 1 && !is_pipelined(job->programs[0]);
  return is_plain ? judge_program(job->programs[0], options, session, machines)
                  : judge_job(*job, options, session, machines);
}

}  // namespace mfsdp
