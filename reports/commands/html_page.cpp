#include <fmt/format.h>

#include "core/base/atomic_file.hpp"
#include "core/base/text.hpp"
#include "core/base/unix_time.hpp"
#include "core/cli/format.hpp"
#include "reports/commands/commands.hpp"
#include "reports/commands/known_plan.hpp"
#include "reports/commands/load_runs.hpp"
#include "reports/commands/output_guard.hpp"
#include "reports/html/html_report.hpp"
#include "reports/store/find_runs.hpp"

namespace mfsdp {
namespace {

struct HtmlPageOptions : ReportOptions {
  std::string page = "mfsdp-report.html";
  std::string title = {};
  std::optional<std::int64_t> most = {};
};

constexpr std::int64_t kMostRuns = 20;

std::vector<FlagGroup> html_flags(HtmlPageOptions& o) {
  Flag page = bound_flag("--page", "FILE", "the page, - for stdout (mfsdp-report.html)", o.page,
                         parse_text);
  page.values.paths = PathKind::file;
  return {{.title = "Page",
           .flags = {page, bound_flag("--title", "TEXT", "its title", o.title, parse_text),
                     integer_flag("--most", "newest runs where none is named (20)", o.most,
                                  {.lowest = 1})}},
          filter_flags(o),
          store_flags(o)};
}

HelpText html_help() {
  return {.tool = "mfsdp-report html",
          .purpose =
              "Runs as one page that needs no network: memory, timeline, pools, curves, and "
              "predictions beside measurements.",
          .examples = {{"mfsdp-report html", "the newest runs"},
                       {"mfsdp-report html @latest 3fa9 --page two.html", "two runs"},
                       {"mfsdp-report html --model llama3_8b --since 7d --page week.html",
                        "a model's runs of a week"}}};
}

Result<std::vector<StoredRun>> runs_of(Store& store, const HtmlPageOptions& options,
                                       const Session& session) {
  if (!options.words.empty()) return find_runs(store, options.words, options.filter);
  const std::int64_t most = options.most.value_or(kMostRuns);
  MFSDP_LET(runs, store.list({.filter = options.filter,
                              .order = RunOrder::newest,
                              .limit = checked_add(most, 1)}));
  if (std::ssize(runs) > most) {
    runs.pop_back();
    if (!options.most)
      report_note(session.err,
                  fmt::format("the {} newest runs; --most or names choose others", most),
                  session.tool);
  }
  return runs;
}

Result<ExitCode> write_page(const HtmlPageOptions& options, const Session& session) {
  if (options.page.empty()) return fail("--page", "expected a file, or - for stdout");
  if (options.page != "-") {
    const OutputName page{.flag = "--page", .path = options.page};
    MFSDP_TRY(check_outputs({&page, 1}, options.db));
    MFSDP_TRY(check_can_be_written(options.page));
  }
  MFSDP_LET(store, open_store(options));
  MFSDP_LET(found, runs_of(store, options, session));
  MFSDP_LET(loaded, load_readable(store, found,
                                  {.timeline = true, .steps = true, .launches = false}, session));
  const std::vector<RunResult>& runs = loaded.runs;
  const ExitCode code = loaded.code;
  KnownPlans plans;
  HtmlOptions html;
  html.title = options.title;
  html.tool_version = version();
  html.unix_ns = unix_now_ns();
  html.program = [&](const RunResult& run) { return plans.of(run); };
  const std::string page = html_report(runs, html);
  if (options.page == "-") {
    session.out << page;
    return code;
  }
  MFSDP_TRY(write_file_atomically(options.page, page));
  session.err << fmt::format("{}: {}: {} {}, {} bytes\n", session.tool, printable(options.page),
                             runs.size(), runs.size() == 1 ? "run" : "runs",
                             format_count(std::ssize(page)));
  return code;
}

}  // namespace

Command html_command() {
  return make_command<HtmlPageOptions>({.name = "html",
                                        .summary = "runs as one page for the browser",
                                        .words = {.name = "RUN"},
                                        .help = html_help,
                                        .flags = html_flags,
                                        .act = write_page});
}

}  // namespace mfsdp
