#include "reports/commands/commands.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/cli/flags.hpp"
#include "tests/support/sample_run.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::sample_run;
using test::ScratchFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int status = 0;
  std::string out;  ///< or the error's message
};

Outcome run_command(const std::vector<std::string>& args) {
  std::ostringstream out;
  std::ostringstream err;
  const std::atomic<bool> interrupted{false};
  const auto code = run_report(args, {.tool = "mfsdp-report",
                                      .scenarios = {},
                                      .out = out,
                                      .err = err,
                                      .interrupted = interrupted});
  if (!code) return {static_cast<int>(exit_code_of(code.error())), code.error().message()};
  return {static_cast<int>(*code), out.str() + err.str()};
}

class ReportCommands : public testing::Test {
 protected:
  ReportCommands() : db_((folder_ / "s.sqlite").string()) {
    auto store = Store::open(db_);
    EXPECT_TRUE(store->save(sample_run("aa11")));
    PredictedRun hostile = sample_run("bb22");
    hostile.name = "=cmd|'/c calc'!A0\n<script>";
    EXPECT_TRUE(store->save(hostile));
  }

  Outcome run(std::vector<std::string> args) {
    args.insert(args.end(), {"--db", db_});
    return run_command(args);
  }

  ScratchFolder folder_;
  std::string db_;
};

TEST_F(ReportCommands, ListShowsEachRunOnALine) {
  const Outcome listed = run({"list"});
  EXPECT_EQ(listed.status, 0);
  EXPECT_EQ(std::ranges::count(listed.out, '\n'), 3);
  EXPECT_THAT(listed.out, AllOf(HasSubstr("aa11"), HasSubstr("64 x h100"), HasSubstr("optim_grads"),
                                HasSubstr("=cmd|'/c calc'!A0\\n<script>")));
}

TEST_F(ReportCommands, ListOfOtherFormatsIsReadByMachines) {
  const auto json = nlohmann::json::parse(run({"list", "--output", "json"}).out);
  EXPECT_EQ(json.at("schema"), "mfsdp.runs/1");
  EXPECT_EQ(json.at("runs").at(1).at("name"), "=cmd|'/c calc'!A0\n<script>");
  EXPECT_EQ(json.at("runs").at(0).at("peak_bytes"), 55);
  const std::string csv = run({"list", "--output", "csv"}).out;
  EXPECT_THAT(csv, HasSubstr("\"'=cmd|'/c calc'!A0\n<script>\""));  // no formula
  EXPECT_EQ(std::ranges::count(run({"list", "--output", "jsonl"}).out, '\n'), 2);
  EXPECT_THAT(run({"list", "--output", "md"}).out, HasSubstr("| row |"));
}

TEST_F(ReportCommands, ShowPrintsARunAsItsToolDid) {
  const Outcome shown = run({"show", "aa", "--output", "json"});
  EXPECT_EQ(shown.status, 0);
  EXPECT_EQ(nlohmann::json::parse(shown.out).at("run_id"), "aa11");
  EXPECT_THAT(run({"show", "@latest"}).out, HasSubstr("stored in " + db_));
}

/// A run that still runs, or was killed, as mfsdp-exec stores it at its first step; earlier
/// versions stored zeros.
TEST_F(ReportCommands, ARunThatHasNotEndedHasNoFigures) {
  MeasuredRun running = test::measured_run("cc33", 0);
  running.status = RunStatus::running;
  running.memory = {};
  running.time = {};
  ASSERT_TRUE(Store::open(db_)->save(running));
  const std::string shown = run({"show", "cc33"}).out;
  EXPECT_THAT(shown, AllOf(HasSubstr("Memory not known: it still runs, or was killed"),
                           HasSubstr("Time   not known")));
  EXPECT_THAT(shown, Not(HasSubstr("0 ns")));
  const auto listed = nlohmann::json::parse(run({"list", "cc33", "--output", "json"}).out);
  for (const char* key : {"median_step_ns", "tokens_per_second_per_gpu", "peak_bytes", "fits"})
    EXPECT_TRUE(listed.at("runs").at(0).at(key).is_null()) << key;
  const auto result = nlohmann::json::parse(run({"show", "cc33", "--output", "json"}).out);
  EXPECT_TRUE(result.at("memory").at("fits").is_null());
  EXPECT_TRUE(result.at("time").at("step_ns").is_null());

  const auto budget = folder_ / "limits.toml";
  ASSERT_TRUE(write_file_atomically(budget, "[memory]\nallocated_bytes = \"1 GiB\"\n"));
  const Outcome checked = run({"check", "--budget", budget.string()});
  EXPECT_EQ(checked.status, 1);
  EXPECT_THAT(checked.out, HasSubstr("not comparable"));
}

TEST_F(ReportCommands, GcKeepsMarkedRunsAndShowsBeforeItRemoves) {
  auto store = std::move(Store::open(db_).value());
  MeasuredRun running = test::measured_run("cc33", 0);
  running.status = RunStatus::running;
  ASSERT_TRUE(store.save(running));
  ASSERT_TRUE(store.mark(1, "baseline"));
  EXPECT_THAT(run({"gc", "--gpus", "64"}).out,
              AllOf(HasSubstr("1 run is kept: marked"), HasSubstr("1 run is kept: may still be"),
                    HasSubstr("1 run would be removed")));
  EXPECT_EQ(store.list()->size(), 3U);
  EXPECT_THAT(run({"gc", "--gpus", "64", "--yes"}).out, HasSubstr("1 run removed"));
  EXPECT_EQ(store.list()->size(), 2U);
  EXPECT_EQ(run({"gc", "cc33", "@baseline", "--yes"}).status, 0);
  ASSERT_EQ(store.list()->size(), 1U);
  EXPECT_EQ(store.list()->front().run_id, "aa11");
  EXPECT_EQ(run({"gc"}).status, 2);
}

TEST_F(ReportCommands, ExportMakesAStoreWithTimelinesAndMarks) {
  ASSERT_TRUE(Store::open(db_)->mark(1, "baseline"));
  const std::string to = (folder_ / "two.sqlite").string();
  EXPECT_THAT(run({"export", "--to", to}).out, HasSubstr("2 of 2 runs are new"));
  EXPECT_THAT(run({"export", "aa", "--to", to}).out, HasSubstr("0 of 1 runs are new"));
  auto copy = std::move(Store::open(to).value());
  const auto runs = copy.list();
  ASSERT_EQ(runs->size(), 2U);
  EXPECT_EQ(runs->front().marks, std::vector<std::string>{"baseline"});
  EXPECT_EQ(copy.load(1)->timeline.size(), 6U);
  EXPECT_THAT(run({"export", "--to", db_}).out, HasSubstr("is the store itself"));
  EXPECT_EQ(std::ranges::count(run({"export", "bb"}).out, '\n'), 1);
}

TEST_F(ReportCommands, ExportRefusesNamesThatSayOtherwise) {
  const auto refused = [&](std::vector<std::string> args, const std::string& name,
                           const std::string& why) {
    const std::string to = (folder_ / name).string();
    args.insert(args.begin(), "export");
    args.insert(args.end(), {"--to", to});
    const Outcome outcome = run(args);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_THAT(outcome.out, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(to));
  };
  refused({"aa", "--format", "chrome"}, "x.pickle", "is no name for chrome: expected one such as");
  refused({"aa", "--format", "tensorboard"}, "x.sqlite", "is no name for tensorboard");
  refused({"aa", "--format", "memory-snapshot"}, "events.out.tfevents.7", "such as memory.pickle");
  refused({"aa", "--output", "csv"}, "x.sqlite", "--output: contradicts --to");
  refused({"aa", "--output", "csv", "--format", "chrome"}, "x.gz",
          "--output: contradicts --format");
  EXPECT_EQ(
      run({"export", "aa", "--format", "tensorboard", "--to", (folder_ / "x.any").string()}).status,
      0);
}

TEST_F(ReportCommands, ExportMakesTheFolderThatASlashNames) {
  const auto to = folder_ / "events";
  const std::vector<std::string> args{"export", "aa", "--format", "tensorboard", "--to"};
  auto into = args;
  into.push_back(to.string() + "/");
  EXPECT_EQ(run(into).status, 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(to), {}), 1);
  into.back() = (folder_ / "none/events/").string();
  const Outcome outcome = run(into);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.out, HasSubstr("cannot make this folder: No such file or directory"));
}

TEST_F(ReportCommands, AStoreThatCannotBeFilledIsNotLeftBehind) {
  const std::string to = (folder_ / "new.sqlite").string();
  const std::size_t files = folder_.file_count();
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"export", "aa", "--to", to, "--db", db_}, {"import", db_, "--db", to}})
    for (const rlim_t room : {33'000, 60'000, 100'000}) {  // the index of a log takes 32 KiB
      const pid_t child = test::start_child([&] {
        test::limit_file_size(room);
        const Outcome outcome = run_command(words);
        const bool said = outcome.out == to + ": disk full or file size limit reached";
        return said ? outcome.status : 99;
      });
      EXPECT_EQ(test::wait_for(child), 3) << words[0] << " " << room;
      EXPECT_EQ(folder_.file_count(), files) << words[0] << " " << room;
    }
  // A file that is no store stays unchanged.
  test::write_file(to, "no store");
  EXPECT_EQ(run({"export", "aa", "--to", to}).status, 2);
  EXPECT_EQ(std::filesystem::file_size(to), 8U);
}

TEST_F(ReportCommands, ADamagedRunIsLeftOutAndNamed) {
  SQLite::Database(db_, SQLite::OPEN_READWRITE)
      .exec("UPDATE run_rows SET facts = '[]' WHERE run_id = 'aa11'");
  for (const auto& words : std::vector<std::vector<std::string>>{
           {"html", "--page", (folder_ / "p.html").string()}, {"export"}}) {
    const Outcome some = run(words);
    EXPECT_EQ(some.status, 2) << words[0];
    EXPECT_THAT(some.out, AllOf(HasSubstr("run aa11"), HasSubstr("is left out")));
  }
  EXPECT_THAT(run({"export"}).out, HasSubstr("\"run_id\":\"bb22\""));
  EXPECT_EQ(run({"export", "aa11"}).status, 2);
}

/// Reading a pipe without a writer never ends.
TEST_F(ReportCommands, APipeIsNotImported) {
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    const Outcome refused = run({"import", path});
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.out, testing::StartsWith(path + ": is not a regular file, expected a log"));
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(ReportCommands, NothingIsWrittenOverTheStoreOrAnInput) {
  const std::string budget = (folder_ / "b.toml").string();
  std::ofstream(budget) << "[memory]\npeak_bytes = 55\n";
  const std::string link = (folder_ / "link").string();
  std::filesystem::create_symlink(db_, link);
  const std::string before = bytes_of(db_);
  for (const std::string& store : {db_, link}) {
    SCOPED_TRACE(store);
    std::vector<Outcome> outcomes{run({"html", "--page", store}),
                                  run({"export", "aa", "--to", store}),
                                  run({"export", "aa", "--format", "chrome", "--to", store}),
                                  run({"baseline", "update", "aa", "--budget", store})};
    for (const char* flag : {"--junit", "--sarif", "--bmf", "--action-benchmark"})
      outcomes.push_back(run({"check", "aa", "--budget", budget, flag, store}));
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.status, 2);
      EXPECT_THAT(outcome.out, HasSubstr("is the store itself"));
    }
  }
  EXPECT_EQ(bytes_of(db_), before);
  EXPECT_THAT(run({"check", "aa", "--budget", budget, "--junit", budget}).out,
              HasSubstr("is read by this command"));
  const std::string both = (folder_ / "both").string();
  EXPECT_THAT(run({"check", "aa", "--budget", budget, "--junit", both, "--bmf", both}).out,
              HasSubstr("--bmf: '" + both + "' is written by --junit"));
  EXPECT_EQ(
      run({"check", "aa", "--budget", budget, "--junit", "/dev/null", "--bmf", "/dev/null"}).status,
      0);
  EXPECT_EQ(bytes_of(budget), "[memory]\npeak_bytes = 55\n");
}

TEST_F(ReportCommands, ARunThatDidNotEndIsNoBaseline) {
  auto store = std::move(Store::open(db_).value());
  MeasuredRun running = test::measured_run("cc33", 0);
  running.status = RunStatus::running;
  ASSERT_TRUE(store.save(running));
  const std::string golden = (folder_ / "golden.toml").string();
  for (const auto& args : {std::vector<std::string>{"baseline", "set", "cc33"},
                           {"baseline", "update", "cc33", "--budget", golden}}) {
    const Outcome refused = run(args);
    EXPECT_EQ(refused.status, 2);
    EXPECT_THAT(refused.out, HasSubstr("still goes on, or was killed"));
  }
  EXPECT_FALSE(std::filesystem::exists(golden));
}

TEST_F(ReportCommands, GoldenValuesOfAnotherModelStayUnlessForced) {
  auto store = std::move(Store::open(db_).value());
  PredictedRun other = sample_run("dd44");
  other.model_name = "gpt2";
  ASSERT_TRUE(store.save(other));
  const std::string golden = (folder_ / "golden.toml").string();
  ASSERT_EQ(run({"baseline", "update", "aa11", "--budget", golden}).status, 0);
  const std::string before = bytes_of(golden);
  const Outcome refused = run({"baseline", "update", "dd44", "--budget", golden});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.out, AllOf(HasSubstr("model llama3_8b, now gpt2"), HasSubstr("--force")));
  EXPECT_EQ(bytes_of(golden), before);
  EXPECT_EQ(run({"baseline", "update", "dd44", "--budget", golden, "--dry-run"}).status, 0);
  EXPECT_EQ(bytes_of(golden), before);
  EXPECT_EQ(run({"baseline", "update", "dd44", "--budget", golden, "--force"}).status, 0);
  EXPECT_THAT(bytes_of(golden), HasSubstr("model = \"gpt2\""));
  EXPECT_EQ(run({"baseline", "set", "dd44", "--force"}).status, 2);
  EXPECT_THAT(run({"baseline", "unset", "dd44"}).out, HasSubstr("is @baseline no more"));
}

TEST_F(ReportCommands, CheckTakesStoredBaselinesForACommandToo) {
  const std::string budget = (folder_ / "b.toml").string();
  std::ofstream(budget) << "[memory]\npeak_bytes = { worse_by = 0 }\n";
  const std::string exported = (folder_ / "aa.json").string();
  ASSERT_EQ(run({"export", "aa11", "--to", exported}).status, 0);
  const Outcome checked = run({"check", "--run", "cat '" + exported + "'", "--samples", "1",
                               "--budget", budget, "--baseline", "bb22"});
  EXPECT_EQ(checked.status, 0) << checked.out;
  EXPECT_THAT(checked.out, AllOf(HasSubstr("  run aa11 ("), HasSubstr("  baseline bb22 ("),
                                 HasSubstr("pass (1 pass of 1 limit)")));
  const Outcome several =
      run({"check", "aa11", "--budget", budget, "--baseline", "aa11", "--baseline", "bb22"});
  EXPECT_THAT(several.out, HasSubstr("  baselines aa11 ("));
  EXPECT_EQ(run({"check", "--run", "touch '" + exported + ".ran'", "--budget", budget, "--baseline",
                 "none"})
                .status,
            2);
  EXPECT_FALSE(std::filesystem::exists(exported + ".ran"));  // the error comes first
}

TEST_F(ReportCommands, HistoryFollowsLossesAndKeepsUnknownModelsApart) {
  auto store = std::move(Store::open(db_).value());
  for (const char* name : {"one.log", "two.log"}) {
    MeasuredRun imported = test::measured_run(std::string("ee") + name, 0);
    imported.name = name;
    imported.model_name.clear();
    imported.steps = {test::sample_step(1, Nanos(5), 3.5), test::sample_step(2, Nanos(5), 2.5)};
    ASSERT_TRUE(store.save(imported));
  }
  const auto json =
      nlohmann::json::parse(run({"history", "--measure", "loss.2", "--output", "json"}).out);
  ASSERT_EQ(json.at("histories").size(), 2U);
  EXPECT_EQ(json.at("histories").at(0).at("name"), "one.log");
  EXPECT_EQ(json.at("histories").at(1).at("runs").at(0).at("value"), 2.5);
  EXPECT_THAT(run({"history", "--measure", "loss.2"}).out, HasSubstr("'two.log' (no model known)"));
  EXPECT_THAT(run({"history", "--measure", "loss.x"}).out, HasSubstr("--measure loss"));
  EXPECT_EQ(run({"history", "--measure", "los.2"}).status, 2);
}

TEST_F(ReportCommands, ShowOfAMeasuredRunSaysNothingOfPrices) {
  auto store = std::move(Store::open(db_).value());
  ASSERT_TRUE(store.save(test::measured_run("cc33", 0)));
  const std::string shown = run({"show", "cc33"}).out;
  EXPECT_THAT(shown, HasSubstr("measured 0.1.0: engine mfsdp\n"));
  EXPECT_THAT(run({"show", "aa11"}).out, HasSubstr("cost model 1"));
}

TEST_F(ReportCommands, MistakesAreOneLine) {
  EXPECT_EQ(run({"show"}).status, 2);
  EXPECT_THAT(run({"show"}).out, HasSubstr("needs at least 1 RUN"));
  EXPECT_THAT(run({"lst"}).out, HasSubstr("did you mean 'list'?"));
  EXPECT_THAT(run({"bogus"}).out,
              HasSubstr("unknown command 'bogus'; the commands are list, show"));
  EXPECT_THAT(run({"cp"}).out, HasSubstr("the commands are"));  // not gc, which removes
  EXPECT_THAT(run({"list", "--modle", "x"}).out, HasSubstr("did you mean '--model'?"));
  EXPECT_EQ(run({"show", "zz"}).status, 2);
  EXPECT_THAT(run({"baseline", "show", "zz"}).out, HasSubstr("takes no RUN, found 'zz'"));
  EXPECT_THAT(run_command({"list", "--db", (folder_ / "none.sqlite").string()}).out,
              HasSubstr("no such store"));
  EXPECT_THAT(run_command({}).out, HasSubstr("expected a command: list, show"));
}

TEST(ReportHelp, EveryCommandHasHelpFlagsAndExamplesThatNameIt) {
  const std::string all = run_command({"--help"}).out;
  for (const Command& command : report_commands()) {
    EXPECT_THAT(all, HasSubstr("  " + command.name + " "));
    EXPECT_FALSE(command.summary.empty());
    const Outcome help = run_command({command.name, "--help"});
    EXPECT_EQ(help.status, 0) << help.out;
    const Manual manual = command.manual();
    EXPECT_TRUE(contains(flag_names(manual.groups), "--db")) << command.name;
    ASSERT_FALSE(manual.text.examples.empty()) << command.name;
    for (const Example& example : manual.text.examples)
      EXPECT_TRUE(example.command.starts_with("mfsdp-report " + command.name)) << example.command;
  }
  EXPECT_THAT(run_command({"--version"}).out, HasSubstr("mfsdp-report "));
}

TEST(ReportHelp, FormatsHaveTheFlagsOfEveryCommand) {
  const std::string page = run_command({"--help-format", "man"}).out;
  const std::string bash = run_command({"--help-format=bash"}).out;
  for (const Command& command : report_commands()) {
    EXPECT_THAT(page, HasSubstr("\n.SS " + command.name));
    EXPECT_THAT(bash, HasSubstr("\n    " + command.name + ")\n"));
    for (std::string name : flag_names(command.manual().groups)) {
      EXPECT_THAT(bash, testing::ContainsRegex("flags='.*" + name + "[ ']"));
      for (std::size_t at = 0; (at = name.find('-', at)) != std::string::npos; at += 2)
        name.replace(at, 1, "\\-");
      EXPECT_THAT(page, HasSubstr("\n\\fB" + name + "\\fR"));
    }
  }
  EXPECT_EQ(run_command({"--help-format", "html"}).status, 2);
}

TEST(ReportTimes, AreDatesOrSoLongAgo) {
  constexpr std::int64_t second = 1'000'000'000;
  constexpr std::int64_t now = 1'795'000'000 * second;
  EXPECT_EQ(*parse_time("1970-01-02", "--since", now), 86'400 * second);
  EXPECT_EQ(*parse_time("1970-01-02T01:02", "--since", now), (86'400 + 3720) * second);
  EXPECT_EQ(*parse_time("1970-01-02T01:02:03Z", "--since", now), (86'400 + 3723) * second);
  EXPECT_EQ(*parse_time("2d", "--since", now), now - 2 * 86'400 * second);
  EXPECT_EQ(*parse_time("90m", "--since", now), now - 5400 * second);
  for (const char* wrong : {"", "d", "-1d", "7", "7y", "2026-13-01", "2026-02-30", "2026-1-1",
                            "2026-01-01T", "2026-01-01T25:00", "2026-01-01T1", "99999999999999w",
                            "1970-01-02T01:02:03:04", "tomorrow"})
    EXPECT_FALSE(parse_time(wrong, "--since", now)) << wrong;
}

}  // namespace
}  // namespace mfsdp
