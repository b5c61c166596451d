#include "verify/tool/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "core/formats/kineto.hpp"
#include "verify/bugs/check_bugs.hpp"
#include "verify/bugs/render_bugs.hpp"
#include "verify/tool/print_findings.hpp"
#include "verify/traces/configuration_rules.hpp"
#include "verify/traces/file_rank.hpp"
#include "verify/traces/known_settings.hpp"
#include "verify/traces/trace_report.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostConfigurationBytes = std::size_t{64} << 20;

Result<ExitCode> judge_traces(const VerifyOptions& options, const Session& session) {
  std::vector<traces::TraceReport> reports;
  std::vector<Error> left_out;
  const auto environment = environment_of(options);
  traces::ReportSettings settings;
  if (const auto policy = environment.find("NCCL_CTA_POLICY"); policy != environment.end())
    settings.cta_policy = policy->second;
  for (const std::string& path : options.kineto) {
    auto read = traces::read_kineto(path, {}).and_then(
        [&](const traces::Trace& trace) { return traces::analyse_trace(trace, settings); });
    if (!read) {
      left_out.push_back(std::move(read.error()));
      continue;
    }
    traces::TraceReport& report = *read;
    const auto same = [&](const traces::TraceReport& other) {
      return other.rank && other.rank == report.rank && other.world_size == report.world_size;
    };
    if (const auto other = std::ranges::find_if(reports, same); other != reports.end())
      return traces::fail_of_one_rank(printable(path), *report.rank, other->where);
    reports.push_back(std::move(report));
  }
  if (reports.empty()) return tl::unexpected<Error>(left_out.front());
  for (const Error& error : left_out)
    report_warning(session.err, "skipped " + error.message(), session.tool);
  switch (options.output) {
    case FindingsFormat::json: session.out << traces::render_trace_json(reports); break;
    case FindingsFormat::md: session.out << traces::render_trace_markdown(reports); break;
    default:
      session.out << wrap_text(traces::render_trace_text(reports, session.style), session.style);
  }
  const auto good = [](const traces::TraceReport& report) { return report.verdict.good(); };
  return left_out.empty() && std::ranges::all_of(reports, good) ? ExitCode::good
                                                                : ExitCode::negative;
}

/// Reads a file with at least one setting that a rule knows. Else the error contains the likely
/// kind of the file.
Result<std::vector<traces::Configuration>> known_configurations(const std::string& path,
                                                                traces::SettingsSeen& seen) {
  MFSDP_LET(text, read_file(path, "a configuration", kMostConfigurationBytes));
  auto configurations = traces::read_configurations(text, path);
  if (configurations) seen = traces::settings_seen(*configurations);
  if (configurations && seen.is_known_trainer) return configurations;
  const auto other = traces::configuration_of_others(text);
  if (!other && !configurations) return configurations;
  return fail(printable(path),
              fmt::format("no setting that a rule checks{}; expected flags of Megatron-LM "
                          "(--use-megatron-fsdp), a configuration of Megatron-Bridge or verl as "
                          "JSON, or variables of NCCL and PyTorch (A=1)",
                          other ? ": it looks like " + *other : std::string()));
}

Result<ExitCode> judge_configurations(const VerifyOptions& options, const Session& session) {
  std::vector<Finding> findings;
  std::string subjects;
  std::string looked_at;
  std::int64_t passed_over = 0;
  std::int64_t known = 0;
  for (const std::string& path : options.config) {
    traces::SettingsSeen seen;
    MFSDP_LET(configurations, known_configurations(path, seen));
    looked_at += fmt::format("{}: {}\n", printable(path), traces::settings_words(seen));
    known += std::ssize(seen.looked_at);
    passed_over += std::ssize(seen.passed_over);
    for (traces::Configuration& configuration : configurations) {
      for (const auto& [name, value] : environment_of(options))
        configuration.environment[name] = value;
      for (Finding& finding : traces::check_configuration(configuration))
        findings.push_back(std::move(finding));
    }
    subjects += (subjects.empty() ? "" : ", ") + path;
  }
  if (options.output == FindingsFormat::text)
    session.out << wrap_text(looked_at + "\n", session.style);
  return print_findings(findings, options.output, subjects, session,
                        {{"settings_looked_at", known}, {"settings_passed_over", passed_over}});
}

Result<ExitCode> judge_run(const VerifyOptions& options, const Session& session) {
  MFSDP_LET(run, conform(options, session));
  const Conformance& conformance = run.conformance;
  if (options.output == FindingsFormat::text)
    session.out << wrap_text(printable(run.subject) + ", plan " + run.plan_hash + "\n" +
                                 render_summary(conformance) + "\n",
                             session.style);
  std::vector<Figure> figures{{"ranks", conformance.ranks},
                              {"steps", conformance.steps},
                              {"launches", conformance.launches},
                              {"edges", conformance.edges}};
  if (conformance.closest) figures.push_back({"closest_ns", conformance.closest->slack.value});
  return print_findings(conformance.findings, options.output, run.subject, session,
                        std::move(figures));
}

Result<ExitCode> judge_bugs(const VerifyOptions& options, const Session& session) {
  bugs::BugFolders folders{.rows = *options.bugs, .scenarios = session.scenarios};
  if (*options.bugs == kShippedBugs) folders.rows = session.scenarios / "bugs";
  MFSDP_LET(verdicts, bugs::check_bugs(folders));
  switch (options.output) {
    case FindingsFormat::json: session.out << bugs::render_bugs_json(verdicts); break;
    case FindingsFormat::md: session.out << bugs::render_bugs_markdown(verdicts); break;
    default:
      session.out << wrap_text(bugs::render_bugs_text(verdicts, session.style), session.style);
  }
  return std::ranges::all_of(verdicts, &bugs::BugVerdict::good) ? ExitCode::good
                                                                : ExitCode::negative;
}

std::string rules_table(FindingsFormat format, const TextStyle& style) {
  Table table{.columns = {{"id"}, {"rule"}, {"severity"}, {"what it finds"}}, .rows = {}};
  for (const RuleInfo& rule : rules())
    table.rows.push_back({std::string(rule.id), std::string(rule.name),
                          std::string(to_string(rule.severity)), std::string(rule.text)});
  return format == FindingsFormat::md ? render_markdown_table(table) : render_table(table, style);
}

}  // namespace

Result<ExitCode> judge(const VerifyOptions& options, const Session& session,
                       const Machines& machines) {
  if (options.list_rules) {
    session.out << rules_table(options.output, session.style);
    return ExitCode::good;
  }
  if (!options.kineto.empty()) return judge_traces(options, session);
  if (!options.flight_recorder.empty()) return judge_flight_dumps(options, session);
  if (!options.nccl_inspector.empty()) return judge_inspector_logs(options, session);
  if (!options.config.empty()) return judge_configurations(options, session);
  if (options.run) return judge_run(options, session);
  if (options.bugs) return judge_bugs(options, session);
  return judge_plan(options, session, machines);
}

}  // namespace mfsdp
