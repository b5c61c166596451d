#include "core/cli/manual.hpp"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>

#include "gpu_backend/tool/exec_options.hpp"
#include "sim/tool/sim_options.hpp"
#include "tests/support/scratch_folder.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

std::vector<Manual> all_manuals() {
  return {manual_of(sim_help(), sim_flags), manual_of(verify_help(), verify_flags),
          manual_of(exec_help(), exec_flags)};
}

template <class Visitor>
void for_each_flag(const std::vector<FlagGroup>& groups, Visitor visit) {
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags) visit(flag);
}

void expect_offered_names_are_accepted(const std::vector<FlagGroup>& groups, std::size_t least) {
  std::size_t names = 0;
  for_each_flag(groups, [&](const Flag& flag) {
    for (const std::string& name : flag.values.names) {
      EXPECT_TRUE(flag.apply(name)) << flag.name << " " << name;
      ++names;
    }
  });
  EXPECT_GE(names, least);
}

// Reductions may use any transport; --routing takes a word or a file.
TEST(Manual, OffersAllThatReduceAndRoutingTake) {
  SimOptions sim;
  std::size_t seen = 0;
  for_each_flag(sim_flags(sim), [&](const Flag& flag) {
    if (flag.name == "--reduce") {
      EXPECT_EQ(flag.values.names, names_of<Transport>());
      ++seen;
    } else if (flag.name == "--routing") {
      EXPECT_EQ(flag.values.names, std::vector<std::string>{"balanced"});
      EXPECT_EQ(flag.values.paths, PathKind::file);
      ++seen;
    }
  });
  EXPECT_EQ(seen, 2U);
}

TEST(Manual, OfferedNamesAreAccepted) {
  SimOptions sim;
  expect_offered_names_are_accepted(sim_flags(sim), 50);
  VerifyOptions verify;
  expect_offered_names_are_accepted(verify_flags(verify), 40);
  ExecOptions exec;
  expect_offered_names_are_accepted(exec_flags(exec), 50);
}

TEST(Manual, ValuesThatAreCalledFilesOrFoldersAreCompletedAsSuch) {
  for (const Manual& manual : all_manuals())
    for_each_flag(manual.groups, [](const Flag& flag) {
      const auto says = [&](const char* word) {
        return flag.value.find(word) != std::string::npos;
      };
      EXPECT_EQ(flag.values.paths == PathKind::file, says("FILE") || says("PATH")) << flag.name;
      EXPECT_EQ(flag.values.paths == PathKind::folder, says("DIR") && !says("FILE")) << flag.name;
    });
}

TEST(Manual, EveryFormHasEveryFlag) {
  for (const Manual& manual : all_manuals()) {
    const std::string help = render_help(manual);
    const std::string page = render_man_page(manual);
    const std::string bash = render_bash_completion(manual);
    const std::string zsh = render_zsh_completion(manual);
    const std::string fish = render_fish_completion(manual);
    for (const std::string& name : flag_names(manual.groups)) {
      EXPECT_THAT(help, HasSubstr("  " + name + " "));
      std::string dashes;
      for (const char c : name) dashes += c == '-' ? "\\-" : std::string(1, c);
      EXPECT_THAT(page, HasSubstr("\n\\fB" + dashes + "\\fR"));
      EXPECT_THAT(bash, ContainsRegex("flags='.*" + name + "[ ']")) << manual.text.tool;
      EXPECT_THAT(zsh, ContainsRegex("'[*]?" + name + "=?\\[")) << manual.text.tool;
      EXPECT_THAT(fish, HasSubstr(" -l " + name.substr(2) + " ")) << manual.text.tool;
    }
  }
}

TEST(Manual, ThePageHasTheSectionsOfAPageInOrder) {
  for (const Manual& manual : all_manuals()) {
    const std::string page = render_man_page(manual);
    std::size_t at = 0;
    for (const char* section : {"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS",
                                "ENVIRONMENT", "FILES", "EXAMPLES", "SEE ALSO"}) {
      at = page.find(std::string("\n.SH ") + section + "\n", at);
      ASSERT_NE(at, std::string::npos) << section << " in " << manual.text.tool;
    }
    for (const ExitStatus& exit : exit_statuses(manual.text))
      EXPECT_THAT(page, HasSubstr("\n\\fB" + std::to_string(exit.status) + "\\fR\n"));
  }
}

/// One flag whose text means something to troff and shells.
Manual awkward() {
  const Flag flag{.name = "--a-flag",
                  .value = "A:B",
                  .help = ".it's [a] \\ b",
                  .apply = {},
                  .values = {.names = {"one", "two"}}};
  return {.text = {.tool = "mfsdp-x", .purpose = "Does.", .examples = {}},
          .groups = {{.title = "Flags", .flags = {flag}}}};
}

TEST(Manual, SignsOfTroffAndShellsAreText) {
  EXPECT_THAT(render_man_page(awkward()), HasSubstr(".TP\n\\fB\\-\\-a\\-flag\\fR \\fIA:B\\fR\n"
                                                    "\\&.it's [a] \\e b; \\fIA:B\\fR: one, two\n"));
  EXPECT_THAT(render_zsh_completion(awkward()),
              HasSubstr(R"('--a-flag=[.it'\''s \[a\] \\ b]:A\:B:(one two)')"));
  EXPECT_THAT(render_fish_completion(awkward()),
              HasSubstr(R"(-l a-flag -r -f -a 'one two' -d '.it\'s [a] \\ b')"));
  EXPECT_THAT(render_bash_completion(awkward()), HasSubstr("    --a-flag) names='one two' ;;\n"));
}

TEST(Manual, NamesOfTheCataloguesAreOffered) {
  const test::ScratchFolder scenarios;
  for (const char* folder : {"models/small", "models/notes", "gpus/tables", "clusters"})
    std::filesystem::create_directories(scenarios / folder);
  for (const char* file : {"models/small/config.json", "models/notes/README.md", "gpus/b.toml",
                           "gpus/a.toml", "gpus/README.md"})
    test::write_file(scenarios / file, "");
  const Manual manual = with_catalogues(all_manuals().front(), scenarios.path());
  for_each_flag(manual.groups, [](const Flag& flag) {
    const std::map<std::string, std::vector<std::string>> expected{
        {"--model", {"small"}}, {"--gpu", {"a", "b"}}, {"--cluster", {}}};
    const auto found = expected.find(flag.name);
    if (found != expected.end()) {
      EXPECT_EQ(flag.values.names, found->second) << flag.name;
    }
  });
  const Manual without = with_catalogues(all_manuals().front(), scenarios / "nowhere");
  EXPECT_EQ(render_bash_completion(without), render_bash_completion(all_manuals().front()));
}

TEST(Manual, JsonHasFlagsByGroupAndExitStatuses) {
  const Manual manual = all_manuals().front();
  const auto json = nlohmann::json::parse(render_manual(manual, HelpFormat::json));
  EXPECT_EQ(json.at("schema"), "mfsdp.help/1");
  EXPECT_EQ(json.at("tool"), "mfsdp-sim");
  std::vector<std::string> names;
  for (const auto& group : json.at("groups"))
    for (const auto& flag : group.at("flags")) names.push_back(flag.at("name"));
  EXPECT_EQ(names, flag_names(manual.groups));
  EXPECT_EQ(json.at("exit_statuses").size(), exit_statuses(manual.text).size());
  EXPECT_FALSE(json.contains("commands"));
}

TEST(Manual, TextIsWhatHelpPrints) {
  const Manual manual = all_manuals().front();
  EXPECT_EQ(render_manual(manual, HelpFormat::text), render_help(sim_help(), manual.groups));
  EXPECT_THAT(render_help(manual), Not(HasSubstr("Commands (")));
}

}  // namespace
}  // namespace mfsdp
