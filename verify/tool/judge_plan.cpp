#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/path_check.hpp"
#include "core/cli/progress.hpp"
#include "core/cli/wrap.hpp"
#include "core/plan/plan_json.hpp"
#include "core/request/plan_file.hpp"
#include "core/request/plan_request.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/mutation/edit_pairs.hpp"
#include "verify/mutation/mutate.hpp"
#include "verify/mutation/render_field_mutation.hpp"
#include "verify/mutation/render_mutation.hpp"
#include "verify/proof/certificate.hpp"
#include "verify/proof/prove.hpp"
#include "verify/tool/judge.hpp"
#include "verify/tool/print_findings.hpp"
#include "verify/traces/configuration_rules.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{4} << 30;

/// Builds the plan from the common flags, as all tools do.
Result<std::shared_ptr<const Program>> build_plan(const VerifyOptions& options,
                                                  const Session& session) {
  return PlanRequests(session.scenarios, notes_on(session.err, session.tool))
      .program(options.common, {.gpus_are_chosen = say_gpus(options.given)});
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
    text += fmt::format("{} waits are redundant: the same order follows without them\n",
                        bounds.redundant_waits.size());
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
    MFSDP_TRY(write_file_atomically(*options.certificate, unproved_certificate(program) + "\n"));
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

// ---- certificate --------------------------------------------------------------------------------

std::string coverage_text(bool covered) {
  std::string text = covered ? "covered:\n" : "not covered:\n";
  for (const Coverage& row : coverage())
    if (row.covered == covered) text += fmt::format("  {:12} {}\n", row.check, row.words);
  return text;
}

nlohmann::ordered_json coverage_json() {
  auto rows = nlohmann::ordered_json::array();
  for (const Coverage& row : coverage())
    rows.push_back({{"check", row.check},
                    {"covered", row.covered},
                    {"words", row.words},
                    {"rules", row.rules}});
  return rows;
}

/// Whether the certificate belongs to the same plan without the defaults that the file contains.
/// Plans omit defaults; a file that contains them has another text and another hash.
bool is_accepted_without_defaults(const Program& program, std::string_view plan_text,
                                  std::string_view certificate) {
  const std::string usual = to_canonical_json(program);
  return usual != plan_text && check_certificate(usual, certificate).has_value();
}

/// Checks that a file is JSON with the schema of a certificate, of any version.
Result<void> expect_certificate(const std::string& text, const std::string& path) {
  const auto document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded())
    return fail(path, "not JSON: expected a certificate, as --certificate writes it");
  const bool has_schema = document.is_object() && document.contains("schema") &&
                          document["schema"].is_string() &&
                          document["schema"].get<std::string>().starts_with("mfsdp.certificate");
  if (has_schema) return {};
  return fail(path,
              "is no certificate: expected one that --certificate writes, with the schema "
              "mfsdp.certificate");
}

Result<ExitCode> check_plan(const Program& program, const VerifyOptions& options,
                            const Session& session) {
  std::string plan_text;
  if (options.common.plan) {
    MFSDP_SET(plan_text, read_file(*options.common.plan, "a plan", kMostFileBytes));
  } else {
    plan_text = to_canonical_json(program);
  }
  MFSDP_LET(certificate, read_file(*options.check, "a certificate", kMostFileBytes));
  MFSDP_TRY(expect_certificate(certificate, *options.check));
  const auto checked = check_certificate(plan_text, certificate);
  const bool is_other_text =
      !checked && is_accepted_without_defaults(program, plan_text, certificate);
  if (options.output == FindingsFormat::json) {
    nlohmann::ordered_json verdict{{"accepted", checked.has_value()}};
    if (checked)
      verdict.update({{"plan_hash", checked->hash},
                      {"instances", checked->instances},
                      {"orderings", checked->orderings},
                      {"accesses", checked->accesses},
                      {"gradients", checked->gradients},
                      {"coverage", coverage_json()}});
    else
      verdict.update(
          {{"refusal", checked.error().what}, {"accepted_without_defaults", is_other_text}});
    session.out << verdict.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else if (checked) {
    const std::string text = fmt::format(
        "certificate accepted: plan {}\n"
        "re-checked: {} ops in two steps, {} orderings, {} accesses, {} ranges of gradients\n",
        checked->hash, format_count(checked->instances), format_count(checked->orderings),
        format_count(checked->accesses), format_count(checked->gradients));
    session.out << wrap_text(text + coverage_text(true) + coverage_text(false), session.style);
  } else {
    session.out << wrap_text("certificate " + printable(checked.error().message()) + "\n" +
                                 (is_other_text ? "It is accepted for the same plan as --plan-out "
                                                  "writes it, without defaults.\n"
                                                : ""),
                             session.style);
  }
  return checked ? ExitCode::good : ExitCode::negative;
}

// ---- mutants ------------------------------------------------------------------------------------

/// Shows on stderr how many mutants are judged; returns false after an interrupt.
auto mutant_progress(std::optional<Progress>& progress, const Session& session) {
  return [&](std::size_t done, std::size_t of) {
    if (!progress) progress.emplace(session.err, "mutants", static_cast<std::int64_t>(of));
    progress->at(static_cast<std::int64_t>(done));
    return !session.interrupted;
  };
}

Result<ExitCode> mutate_plan(const Program& program, const VerifyOptions& options,
                             const Session& session) {
  MutationSettings settings;
  if (options.mutants) settings.most = static_cast<std::size_t>(*options.mutants);
  settings.seed = static_cast<std::uint64_t>(options.seed);
  std::optional<Progress> progress;
  settings.progress = mutant_progress(progress, session);
  MFSDP_LET(report, mutate(program, settings));
  progress.reset();
  switch (options.output) {
    case FindingsFormat::json: session.out << render_mutation_json(program, report); break;
    case FindingsFormat::md: session.out << render_mutation_markdown(program, report); break;
    default: session.out << wrap_text(render_mutation_text(program, report), session.style);
  }
  if (session.interrupted) return ExitCode::interrupted;
  return report.total.uncertified == 0 ? ExitCode::good : ExitCode::negative;
}

/// Writes the plan with one of the changes as a file that all tools read.
Result<ExitCode> write_field_mutant(const Program& program, const VerifyOptions& options,
                                    const Session& session) {
  const auto plan = nlohmann::json::parse(to_canonical_json(program));
  const auto per_field = static_cast<std::size_t>(options.per_field);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const std::vector<FieldMutant> all = options.mutate_pairs
                                           ? pair_mutants(program, per_field, seed)
                                           : field_mutants(plan, per_field, seed).list;
  if (*options.mutant >= std::ssize(all))
    return fail("--mutant",
                fmt::format("expected a number below {}, got {}", all.size(), *options.mutant));
  const FieldMutant& mutant = all.at(static_cast<std::size_t>(*options.mutant));
  MFSDP_TRY(write_file_atomically(*options.mutant_out, altered_text(plan, mutant) + "\n"));
  session.out << wrap_text(fmt::format("{}: {}, {} -> {}\n", mutant.place, to_string(mutant.edit),
                                       mutant.before.empty() ? "nothing" : mutant.before,
                                       mutant.after.empty() ? "nothing" : mutant.after),
                           session.style);
  return ExitCode::good;
}

Result<ExitCode> mutate_plan_fields(const Program& program, const VerifyOptions& options,
                                    const Session& session, const Machines& machines) {
  if (options.mutant) return write_field_mutant(program, options, session);
  FieldMutationSettings settings;
  settings.machines = machines;
  settings.per_field = static_cast<std::size_t>(options.per_field);
  if (options.mutants) settings.most = static_cast<std::size_t>(*options.mutants);
  settings.seed = static_cast<std::uint64_t>(options.seed);
  std::optional<Progress> progress;
  settings.progress = mutant_progress(progress, session);
  MFSDP_LET(report, options.mutate_pairs ? mutate_pairs(program, settings)
                                         : mutate_fields(program, settings));
  progress.reset();
  switch (options.output) {
    case FindingsFormat::json: session.out << render_field_mutation_json(report); break;
    case FindingsFormat::md: session.out << render_field_mutation_markdown(report); break;
    default: session.out << wrap_text(render_field_mutation_text(report), session.style);
  }
  if (session.interrupted) return ExitCode::interrupted;
  return report.defects() == 0 ? ExitCode::good : ExitCode::negative;
}

/// Judges a plan of one class of ranks with one microbatch in flight.
Result<ExitCode> judge_program(const Program& program, const VerifyOptions& options,
                               const Session& session, const Machines& machines) {
  MFSDP_TRY(write_plan(options.common, program));
  if (options.check) return check_plan(program, options, session);
  if (options.mutate) return mutate_plan(program, options, session);
  if (options.runs_mutants()) return mutate_plan_fields(program, options, session, machines);
  return prove_plan(program, options, session);
}

}  // namespace

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
  if (!options.common.plan) {
    MFSDP_LET(program, build_plan(options, session));
    return judge_program(*program, options, session, machines);
  }
  MFSDP_LET(job, load_job(*options.common.plan, notes_on(session.err, session.tool)));
  const bool is_plain = job.programs.size() == 1 && !is_pipelined(job.programs[0]);
  return is_plain ? judge_program(job.programs[0], options, session, machines)
                  : judge_job(job, options, session);
}

}  // namespace mfsdp
