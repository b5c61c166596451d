
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/wrap.hpp"
#include "verify/proof/job.hpp"
#include "verify/tool/judge.hpp"
#include "verify/tool/print_findings.hpp"
#include "verify/traces/configuration_rules.hpp"

namespace mfsdp {
namespace {

std::string role_of(const Job& job, std::size_t c) {
  const auto& classes = job.programs[c].classes;
  return classes.empty() ? "rank" : printable(classes.front().role);
}

std::string job_text(const Job& job, const JobProof& proof) {
  const std::string& model = job.programs[0].meta.model_name;
  std::string text =
      fmt::format("{}plan {}, {} class{} of ranks\n", model.empty() ? "" : printable(model) + ", ",
                  plan_hash(job), job.programs.size(), job.programs.size() == 1 ? "" : "es");
  for (std::size_t c = 0; c < proof.classes.size(); ++c) {
    const Proof& of = proof.classes[c];
    text += fmt::format("{}: {} ops, {} waits; ", role_of(job, c), format_count(of.ops),
                        format_count(of.waits));
    text += of.only_structure ? std::string(kOnlyStructure)
                              : fmt::format("unrolled to {} ops; {} GiB live in the pools\n",
                                            format_count(of.instances), format_gib(of.bounds.peak));
  }
  const auto of_other = [](const Proof& of) { return !of.only_structure && !of.of_model; };
  if (std::ranges::any_of(proof.classes, of_other)) text += std::string(kOtherModel);
  const auto redundant = std::ranges::count(proof.findings, "MF604", &Finding::rule);
  if (redundant > 0) text += redundant_waits_text(redundant);
  if (std::ranges::any_of(proof.classes, &Proof::only_structure))
    text += "transfers between the classes were not checked\n";
  return text;
}

std::vector<Figure> figures_of(const Job& job, const JobProof& proof) {
  std::vector<Figure> figures{{"classes", std::ssize(proof.classes)}};
  for (std::size_t c = 0; c < proof.classes.size(); ++c) {
    const Proof& of = proof.classes[c];
    const std::string role = role_of(job, c);
    figures.push_back({role + ".ops", of.ops});
    figures.push_back({role + ".waits", of.waits});
    if (of.only_structure) continue;
    figures.push_back({role + ".instances", of.instances});
    figures.push_back({role + ".peak_bytes", of.bounds.peak.value});
  }
  return figures;
}

Result<void> check_flags(const VerifyOptions& options) {
  const auto refuse = [](const char* flag) {
    return fail(flag, "supports only plans with one class of ranks and one microbatch in flight");
  };
  if (options.mutate) return refuse("--mutate");
  if (options.mutate_pairs) return refuse("--mutate-pairs");
  return {};
}

}  // namespace

Result<ExitCode> judge_job(const Job& job, const VerifyOptions& options, const Session& session,
                           const Machines& machines) {
  MFSDP_TRY(check_flags(options));
  if (options.common.plan_out)
    MFSDP_TRY(write_file_atomically(*options.common.plan_out, to_canonical_json(job) + "\n"));
  if (options.check) return check_plan(job, options, session);
  if (options.mutate_fields) return mutate_plan_fields(job, options, session, machines);
  MFSDP_LET(proof, prove_job(job));
  const bool right = !has_errors(proof.findings);
  if (options.certificate && right) MFSDP_TRY(write_certificate(*options.certificate, job));
  std::vector<Finding> findings = proof.findings;
  for (Finding& finding :
       traces::check_configuration(job.programs[0].config, environment_of(options)))
    findings.push_back(std::move(finding));
  if (options.output == FindingsFormat::text) {
    // The text reports redundant waits in one line; other formats list each.
    std::erase_if(findings, [](const Finding& finding) { return finding.rule == "MF604"; });
    session.out << wrap_text(job_text(job, proof) + "\n", session.style);
  }
  const ExitCode code =
      print_findings(findings, options.output, options.common.plan.value_or(options.common.model),
                     session, figures_of(job, proof));
  if (options.certificate && !right)
    session.err << session.tool << ": no certificate: the plan is wrong\n";
  return code;
}

}  // namespace mfsdp
