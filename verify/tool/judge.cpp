#include "verify/tool/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/help.hpp"
#include "core/cli/path_check.hpp"
#include "core/cli/table.hpp"
#include "core/plan/plan_json.hpp"
#include "reports/tool/plan_file.hpp"
#include "sim/tool/asker.hpp"
#include "verify/conformance/conformance.hpp"
#include "verify/findings/render_findings.hpp"
#include "verify/proof/prove.hpp"
#include "verify/tool/conform.hpp"
#include "verify/traces/configuration_rules.hpp"
#include "verify/traces/kineto.hpp"
#include "verify/traces/trace_report.hpp"

namespace mfsdp {
namespace {

using Environment = std::map<std::string, std::string, std::less<>>;

constexpr std::size_t kMostConfigurationBytes = std::size_t{64} << 20;

Environment environment_of(const VerifyOptions& options) {
  Environment environment;
  for (const EnvironmentVariable& variable : options.environment)
    environment[variable.name] = variable.value;
  return environment;
}

/// The plan that every tool makes of these flags.
Result<std::shared_ptr<const Program>> plan_of(const VerifyOptions& options,
                                               const Session& session) {
  SimOptions same;
  same.common = options.common;
  same.given = options.given;
  return Asker(session).program(same);
}

ExitCode verdict(const std::vector<Finding>& findings) {
  const bool wrong =
      std::ranges::any_of(findings, [](const Finding& finding) { return is_error(finding.rule); });
  return wrong ? ExitCode::negative : ExitCode::good;
}

std::string rendered(const std::vector<Finding>& findings, FindingsFormat format,
                     const FindingsOf& of) {
  switch (format) {
    case FindingsFormat::json: return render_findings_json(findings, of);
    case FindingsFormat::md: return render_findings_markdown(findings, of);
    case FindingsFormat::sarif: return render_findings_sarif(findings, of);
    case FindingsFormat::text: break;
  }
  return render_findings_text(findings);
}

/// What was proved, in figures.
std::string proof_text(const Program& program, const Proof& proof,
                       std::chrono::steady_clock::duration took) {
  const Bounds& bounds = proof.bounds;
  std::string text = fmt::format(
      "{}plan {}\n{} ops, {} waits; unrolled to {} ops; proved in {}\n"
      "most at one time, over all interleavings: {} gathered weights, {} full gradients, {} "
      "collectives; {} GiB of pools' contents\n",
      program.meta.model_name.empty() ? "" : printable(program.meta.model_name) + ", ",
      plan_hash(program), format_count(proof.ops), format_count(proof.waits),
      format_count(proof.instances),
      format_duration(Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count())),
      bounds.live_full_weights, bounds.live_full_gradients, bounds.concurrent_collectives,
      format_gib(bounds.peak));
  if (!bounds.redundant_waits.empty())
    text += fmt::format("{} waits order nothing that is not ordered without them\n",
                        bounds.redundant_waits.size());
  return text;
}

Result<ExitCode> judge_plan(const VerifyOptions& options, const Session& session) {
  const CommonOptions& common = options.common;
  MFSDP_TRY(check_paths(common, session.scenarios));
  MFSDP_LET(plan, plan_of(options, session));
  const Program& program = *plan;
  MFSDP_TRY(write_plan(common, program));
  const auto begin = std::chrono::steady_clock::now();
  MFSDP_LET(proof, prove(program));
  const auto took = std::chrono::steady_clock::now() - begin;
  std::vector<Finding> findings = proof.findings;
  for (Finding& finding : traces::check_configuration(program.config, environment_of(options)))
    findings.push_back(std::move(finding));
  if (options.output == FindingsFormat::text) {
    // Waits too many are one line here; other formats list each.
    std::erase_if(findings, [](const Finding& finding) { return finding.rule == "MF604"; });
    session.out << proof_text(program, proof, took) << "\n";
  }
  session.out << rendered(findings, options.output,
                          {.subject = common.plan.value_or(common.model),
                           .tool = std::string(session.tool),
                           .version = std::string(version())});
  return verdict(findings);
}

Result<ExitCode> judge_traces(const VerifyOptions& options, const Session& session) {
  std::vector<traces::TraceReport> reports;
  for (const std::string& path : options.kineto) {
    MFSDP_LET(trace, traces::read_kineto(path, {}));
    MFSDP_LET(report, traces::analyse_trace(trace));
    reports.push_back(std::move(report));
  }
  switch (options.output) {
    case FindingsFormat::json: session.out << traces::render_trace_json(reports); break;
    case FindingsFormat::md: session.out << traces::render_trace_markdown(reports); break;
    default: session.out << traces::render_trace_text(reports);
  }
  return ExitCode::good;
}

Result<ExitCode> judge_configurations(const VerifyOptions& options, const Session& session) {
  std::vector<Finding> findings;
  std::string subjects;
  for (const std::string& path : options.config) {
    MFSDP_LET(text, read_file(path, "a configuration", kMostConfigurationBytes));
    MFSDP_LET(configurations, traces::read_configurations(text, path));
    for (traces::Configuration& configuration : configurations) {
      for (const auto& [name, value] : environment_of(options))
        configuration.environment[name] = value;
      for (Finding& finding : traces::check_configuration(configuration))
        findings.push_back(std::move(finding));
    }
    subjects += (subjects.empty() ? "" : ", ") + path;
  }
  session.out << rendered(
      findings, options.output,
      {.subject = subjects, .tool = std::string(session.tool), .version = std::string(version())});
  return verdict(findings);
}

Result<ExitCode> judge_run(const VerifyOptions& options, const Session& session) {
  MFSDP_LET(run, conform(options, session));
  if (options.output == FindingsFormat::text)
    session.out << run.subject << ", plan " << run.plan_hash << "\n"
                << render_summary(run.conformance) << "\n";
  session.out << rendered(run.conformance.findings, options.output,
                          {.subject = run.subject,
                           .tool = std::string(session.tool),
                           .version = std::string(version())});
  return verdict(run.conformance.findings);
}

std::string rules_table(FindingsFormat format) {
  Table table{.columns = {{"id"}, {"rule"}, {"severity"}, {"what it finds"}}, .rows = {}};
  for (const RuleInfo& rule : rules())
    table.rows.push_back({std::string(rule.id), std::string(rule.name),
                          std::string(to_string(rule.severity)), std::string(rule.text)});
  return format == FindingsFormat::md ? render_markdown_table(table) : render_table(table);
}

}  // namespace

Result<ExitCode> judge(const VerifyOptions& options, const Session& session) {
  if (options.list_rules) {
    session.out << rules_table(options.output);
    return ExitCode::good;
  }
  if (!options.kineto.empty()) return judge_traces(options, session);
  if (!options.config.empty()) return judge_configurations(options, session);
  if (options.run) return judge_run(options, session);
  return judge_plan(options, session);
}

}  // namespace mfsdp
