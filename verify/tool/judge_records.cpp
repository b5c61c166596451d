#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/wrap.hpp"
#include "verify/tool/judge.hpp"
#include "verify/tool/print_findings.hpp"
#include "verify/traces/file_rank.hpp"
#include "verify/traces/flight_recorder.hpp"
#include "verify/traces/inspector_log.hpp"
#include "verify/traces/trace_words.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{1} << 30;

/// The files of a folder by name, without hidden ones. If the path is a file, only that file.
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

/// The files that were read, and the reasons why others were skipped.
struct Judged {
  std::vector<traces::RecordedGroup> groups;
  std::int64_t files = 0;
  std::vector<Error> left_out;
  std::string limits;  ///< lines about the limits of these files
};

/// Judges the files that were read. An error if all files were skipped.
Result<ExitCode> print_verdict(const Judged& judged, std::string_view what,
                               const VerifyOptions& options, const std::vector<std::string>& paths,
                               const Session& session) {
  if (judged.files == 0) return tl::unexpected<Error>(judged.left_out.front());
  RuleVerdict verdict = traces::judge_records(judged.groups);
  for (const Error& error : judged.left_out)
    verdict.not_judged.push_back({"MF815", "skipped " + error.message()});
  const std::int64_t calls = calls_in(judged.groups);
  const std::int64_t left_out = std::ssize(judged.left_out);
  if (options.output == FindingsFormat::text)
    session.out << wrap_text(
        fmt::format(
            "{}{}: {}, {}\n{}\n", traces::counted(judged.files, what),
            left_out == 0 ? "" : fmt::format(", {} skipped", traces::counted(left_out, "file")),
            traces::counted(std::ssize(judged.groups), "group"), traces::counted(calls, "call"),
            judged.limits),
        session.style);
  std::vector<Figure> figures{
      {"files", judged.files}, {"groups", std::ssize(judged.groups)}, {"calls", calls}};
  if (left_out > 0) figures.push_back({"left_out", left_out});
  return print_findings(verdict.findings, options.output,
                        printable(fmt::format("{}", fmt::join(paths, ", "))), session,
                        std::move(figures), std::move(verdict.not_judged));
}

Result<traces::FlightDump> read_dump(const fs::path& file, std::optional<std::int64_t> rank) {
  const std::string where = printable(file.string());
  if (!rank)
    return fail(where, "expected the rank as a number in the file's name, as in nccl_trace_rank_0");
  MFSDP_LET(bytes, read_file(file, "a dump of the flight recorder", kMostBytes));
  return traces::read_flight_dump(bytes, where, *rank);
}

/// Reads one log of NCCL's inspector.
Result<traces::InspectorFile> read_log(const fs::path& file) {
  MFSDP_LET(bytes, read_file(file, "a log of NCCL's inspector", kMostBytes));
  std::vector<traces::InspectorFile> alone;
  alone.push_back({.where = printable(file.string()), .bytes = std::move(bytes)});
  MFSDP_TRY(traces::read_inspector_logs(alone));
  return std::move(alone.front());
}

/// A line for each group whose ranks no dump lists: missing dumps cannot be found there.
std::string unknown_groups(std::span<const traces::RecordedGroup> groups) {
  std::string text;
  for (const traces::RecordedGroup& group : groups)
    if (group.ranks.empty() && group.members.size() > 1)
      text += fmt::format(
          "the ranks of group {} are not recorded (pg_config): missing dumps of its ranks cannot "
          "be "
          "reported\n",
          group.name);
  return text;
}

}  // namespace

Result<ExitCode> judge_flight_dumps(const VerifyOptions& options, const Session& session) {
  MFSDP_LET(files, files_of(options.flight_recorder));
  const auto ranks = traces::ranks_of_files(files);
  std::vector<traces::FlightDump> dumps;
  Judged judged;
  for (std::size_t i = 0; i < files.size(); ++i) {
    auto dump = read_dump(files[i], ranks[i]);
    if (dump)
      dumps.push_back(std::move(*dump));
    else
      judged.left_out.push_back(std::move(dump.error()));
  }
  const std::int64_t read = std::ssize(dumps);
  MFSDP_LET(joined, traces::join_agreeing_dumps(std::move(dumps)));
  judged.files = read - std::ssize(joined.left_out);
  std::ranges::move(joined.left_out, std::back_inserter(judged.left_out));
  judged.groups = std::move(joined.groups);
  judged.limits = unknown_groups(judged.groups);
  return print_verdict(judged, "dump", options, options.flight_recorder, session);
}

Result<ExitCode> judge_inspector_logs(const VerifyOptions& options, const Session& session) {
  MFSDP_LET(files, files_of(options.nccl_inspector));
  std::vector<traces::InspectorFile> logs;
  Judged judged;
  judged.limits =
      "logs contain only some of the collectives that ended: they do not show collectives that a "
      "rank never joined or that have not ended\n";
  for (const fs::path& file : files) {
    auto log = read_log(file);
    if (!log) {
      judged.left_out.push_back(std::move(log.error()));
      continue;
    }
    if (traces::ends_within_a_line(log->bytes))
      judged.limits += fmt::format("{} ends within a line, which is skipped\n", log->where);
    logs.push_back(std::move(*log));
  }
  judged.files = std::ssize(logs);
  MFSDP_SET(judged.groups, traces::read_inspector_logs(logs));
  return print_verdict(judged, "log", options, options.nccl_inspector, session);
}

}  // namespace mfsdp
