#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "reports/commands/commands.hpp"
#include "reports/commands/list_runs.hpp"
#include "reports/store/find_runs.hpp"

namespace mfsdp {
namespace {

struct GcOptions : ReportOptions {
  bool yes = false;
};

std::vector<FlagGroup> gc_flags(GcOptions& o) {
  return {filter_flags(o),
          {.title = "Action",
           .flags = {switch_flag("--yes", "remove them; without it they are only shown", o.yes)}},
          store_flags(o)};
}

HelpText gc_help() {
  return {
      .tool = "mfsdp-report gc",
      .purpose =
          "Removes the runs that RUN... or the filters name, and frees their space. "
          "Runs with a mark stay.",
      .examples = {{"mfsdp-report gc --until 90d", "what would go: all runs before 90 days ago"},
                   {"mfsdp-report gc --until 90d --yes", "remove them"},
                   {"mfsdp-report gc --kind simulated --name 'sweep*' --yes", "of those names"}}};
}

Bytes size_of_file(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? Bytes(0) : Bytes(static_cast<std::int64_t>(size));
}

/// Removes protected runs from the list and reports why they are kept.
void keep(std::vector<StoredRun>& runs, bool named, const Session& session) {
  const auto take_out = [&](std::string_view why, auto keeps) {
    const auto count = std::erase_if(runs, keeps);
    if (count > 0)
      report_note(session.err,
                  fmt::format("{} {} kept: {}", count, count == 1 ? "run is" : "runs are", why),
                  session.tool);
  };
  take_out("marked (mfsdp-report list shows the marks)",
           [](const StoredRun& run) { return !run.marks.empty(); });
  if (!named)
    take_out("may still be running; name them to remove them",
             [](const StoredRun& run) { return run.status == to_string(RunStatus::running); });
}

Result<ExitCode> collect_runs(const GcOptions& options, const Session& session) {
  if (options.words.empty() && options.filter == RunFilter())
    return fail("gc",
                "no runs named: give a RUN, or a filter such as --until 90d (older than 90 days)");
  StoreOptions existing;
  existing.create = false;
  existing.for_reading = !options.yes;  // to look needs no right to write
  MFSDP_LET(store, Store::open(options.db, existing));
  MFSDP_LET(runs, find_runs(store, options.words, options.filter));
  keep(runs, !options.words.empty(), session);
  session.out << render_list(runs, options.output, session.style);
  if (!options.yes) {
    report_note(session.err,
                fmt::format("{} would be removed; with --yes they are",
                            runs.size() == 1 ? "1 run" : fmt::format("{} runs", runs.size())),
                session.tool);
    return ExitCode::good;
  }
  std::vector<std::int64_t> rows;
  for (const StoredRun& run : runs) rows.push_back(run.id);
  const Bytes before = size_of_file(options.db);
  MFSDP_LET(removed, store.remove(rows));
  MFSDP_TRY(store.shrink());
  report_note(
      session.err,
      fmt::format("{} removed; {} was {}, is {}",
                  removed == 1 ? "1 run" : fmt::format("{} runs", removed), printable(options.db),
                  format_bytes(before), format_bytes(size_of_file(options.db))),
      session.tool);
  return ExitCode::good;
}

}  // namespace

Command gc_command() {
  return make_command<GcOptions>({.name = "gc",
                                  .summary = "remove runs; shows which unless --yes",
                                  .words = {.name = "RUN"},
                                  .help = gc_help,
                                  .flags = gc_flags,
                                  .act = collect_runs});
}

}  // namespace mfsdp
