#include "verify/tool/judge_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/wrap.hpp"
#include "verify/tool/print_findings.hpp"
#include "verify/traces/file_rank.hpp"
#include "verify/traces/flight_recorder.hpp"
#include "verify/traces/inspector_log.hpp"
#include "verify/traces/trace_words.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

/// The files of a folder, by name, but for hidden ones; a file by itself.
Result<std::vector<fs::path>> files_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector{path};
  std::vector<fs::path> files;
  for (auto at = fs::directory_iterator(path, error); !error && at != fs::directory_iterator();
       at.increment(error))
    if (at->is_regular_file() && !at->path().filename().string().starts_with('.'))
      files.push_back(at->path());
  if (error) return fail(path.string(), "cannot be read: " + error.message(), Fault::environment);
  if (files.empty()) return fail(path.string(), "expected a folder with files, a rank each");
  std::ranges::sort(files);
  return files;
}

Result<std::vector<fs::path>> files_of(const std::vector<std::string>& paths) {
  std::vector<fs::path> all;
  for (const std::string& path : paths) {
    MFSDP_LET(files, files_of(path));
    all.insert(all.end(), files.begin(), files.end());
  }
  return all;
}

std::int64_t calls_in(std::span<const traces::RecordedGroup> groups) {
  std::int64_t calls = 0;
  for (const traces::RecordedGroup& group : groups)
    for (const traces::GroupMember& member : group.members) calls += std::ssize(member.calls);
  return calls;
}

ExitCode print_verdict(std::span<const traces::RecordedGroup> groups, std::int64_t files,
                       std::string_view what, std::string_view limit, const VerifyOptions& options,
                       const std::vector<std::string>& paths, const Session& session) {
  RuleVerdict verdict = traces::judge_records(groups);
  const std::int64_t calls = calls_in(groups);
  if (options.output == FindingsFormat::text)
    session.out << wrap_text(fmt::format("{}: {}, {}\n{}\n", traces::counted(files, what),
                                         traces::counted(std::ssize(groups), "group"),
                                         traces::counted(calls, "call"), limit),
                             session.style);
  return print_findings(verdict.findings, options.output,
                        printable(fmt::format("{}", fmt::join(paths, ", "))), session,
                        {{"files", files}, {"groups", std::ssize(groups)}, {"calls", calls}},
                        std::move(verdict.not_judged));
}

}  // namespace

Result<ExitCode> judge_flight_dumps(const VerifyOptions& options, const Session& session) {
  MFSDP_LET(files, files_of(options.flight_recorder));
  MFSDP_LET(ranks, traces::ranks_of_files(files));
  std::vector<traces::FlightDump> dumps;
  for (std::size_t i = 0; i < files.size(); ++i) {
    MFSDP_LET(bytes, read_file(files[i], "a dump of the flight recorder", kMostBytes));
    MFSDP_LET(dump, traces::read_flight_dump(bytes, printable(files[i].string()), ranks[i]));
    dumps.push_back(std::move(dump));
  }
  MFSDP_LET(groups, traces::join_dumps(std::move(dumps)));
  return print_verdict(groups, std::ssize(files), "dump", "", options, options.flight_recorder,
                       session);
}

Result<ExitCode> judge_inspector_logs(const VerifyOptions& options, const Session& session) {
  MFSDP_LET(files, files_of(options.nccl_inspector));
  std::vector<traces::InspectorFile> logs;
  for (const fs::path& file : files) {
    MFSDP_LET(bytes, read_file(file, "a log of NCCL's inspector", kMostBytes));
    logs.push_back({.where = printable(file.string()), .bytes = std::move(bytes)});
  }
  MFSDP_LET(groups, traces::read_inspector_logs(logs));
  return print_verdict(
      groups, std::ssize(files), "log",
      "logs hold some of the collectives that ended: what a rank never joined, or what has not "
      "ended, they do not show\n",
      options, options.nccl_inspector, session);
}

}  // namespace mfsdp
