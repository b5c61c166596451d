// The files that scripts/lint and scripts/check-headers take as changed, the findings of
// scripts/markdown, and the cost of additions.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/run_tool.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::run_shell;
using test::ScratchFolder;
using test::write_file;
using ::testing::HasSubstr;
using ::testing::Not;

/// A repository with a source in two modules, and stand-ins for the programs that take minutes.
class LintedRepository : public ::testing::Test {
 protected:
  LintedRepository() {
    namespace fs = std::filesystem;
    for (const char* path : {"scripts", "bin", "core/base", "gpu_backend/train", "gpu_backend/cuda",
                             "build/dev", "sim", "reports", "tests", "verify"})
      fs::create_directories(folder_ / path);
    for (const char* script : {"lint", "check-headers", "changed-files"})
      fs::copy_file(fs::path(MFSDP_SOURCE_DIR "/scripts") / script, folder_ / "scripts" / script);
    write_file(folder_ / "bin/cmake", "#!/bin/sh\n");
    write_file(folder_ / "bin/clang-tidy-19",
               "#!/bin/sh\nfor last; do :; done; echo \"lint $last\"\n");
    for (const char* path : {"core/base/a.cpp", "gpu_backend/train/b.cpp",
                             "gpu_backend/train/b.hpp", "gpu_backend/cuda/c.cpp", "tests/d.cpp"})
      write_file(folder_ / path, "first\n");
    write_file(folder_ / ".gitignore", "build/\nbin/\n");
    write_file(
        folder_ / "build/dev/compile_commands.json",
        R"([{"file": "/x/gpu_backend/train/b.cpp"}, {"file": "/x/gpu_backend/train/e.cpp"}])");
    git("init -q");
    commit();
  }

  void git(const std::string& arguments) {
    const auto ran =
        run_shell(fmt::format("cd {} && chmod +x bin/* && git -c user.name=a -c user.email=a@b -c "
                              "init.defaultBranch=main "
                              "{} 2>&1",
                              folder_.path().string(), arguments));
    ASSERT_EQ(ran.status, 0) << ran.out;
  }
  void commit() {
    git("add -A");
    git("commit -q -m change");
  }
  test::ToolRun run(const std::string& command) {
    return run_shell(
        fmt::format("cd {0} && PATH={0}/bin:$PATH {1} 2>&1", folder_.path().string(), command));
  }
  test::ToolRun lint(const std::string& arguments) { return run("scripts/lint " + arguments); }

  ScratchFolder folder_;
};

TEST_F(LintedRepository, ChangedSourcesOfAllRoomsAreLinted) {
  write_file(folder_ / "gpu_backend/train/b.hpp", "committed\n");
  write_file(folder_ / "gpu_backend/cuda/c.cpp", "committed\n");
  write_file(folder_ / "tests/d.cpp", "committed\n");
  commit();
  write_file(folder_ / "gpu_backend/train/e.cpp", "new\n");
  const auto ran = lint("--changed");  // no origin: the commit before
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("lint gpu_backend/train/b.cpp\n"));  // beside its header
  EXPECT_THAT(ran.out, HasSubstr("lint gpu_backend/train/e.cpp\n"));
  EXPECT_THAT(ran.out, HasSubstr("gpu_backend/cuda/c.cpp left out, no CUDA toolkit\n"));
  EXPECT_THAT(ran.out, Not(HasSubstr("core/base/a.cpp")));
  EXPECT_THAT(ran.out, Not(HasSubstr("tests/d.cpp")));
}

TEST_F(LintedRepository, ABranchIsComparedWithWhereItLeftMain) {
  git("update-ref refs/remotes/origin/main HEAD");
  write_file(folder_ / "core/base/a.cpp", "second\n");
  commit();
  write_file(folder_ / "gpu_backend/train/b.cpp", "third\n");
  commit();
  EXPECT_THAT(lint("--changed").out, HasSubstr("lint core/base/a.cpp\n"));
  EXPECT_THAT(lint("--changed HEAD~1").out, Not(HasSubstr("lint core/base/a.cpp\n")));
  const auto unknown = lint("--changed nowhere");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.out, HasSubstr("no commit nowhere"));
}

TEST_F(LintedRepository, ACloneOfOneCommitLintsWhatIsNotCommitted) {
  EXPECT_EQ(lint("--changed").status, 0);
  write_file(folder_ / "core/base/a.cpp", "second\n");
  EXPECT_THAT(lint("--changed").out, HasSubstr("lint core/base/a.cpp\n"));
}

TEST_F(LintedRepository, AFindingFails) {
  write_file(folder_ / "bin/clang-tidy-19", "#!/bin/sh\nexit 1\n");
  write_file(folder_ / "core/base/a.cpp", "second\n");
  EXPECT_NE(lint("--changed").status, 0);
}

TEST_F(LintedRepository, ChangedHeadersAndThoseThatIncludeThemAreCompiled) {
  write_file(folder_ / "bin/g++", "#!/bin/sh\necho \"compile $*\"\n");
  write_file(folder_ / "core/base/first.hpp", "");
  write_file(folder_ / "core/base/other.hpp", "");
  write_file(folder_ / "sim/second.hpp", "#include \"core/base/first.hpp\"\n");
  commit();
  EXPECT_THAT(run("scripts/check-headers --changed HEAD").out, HasSubstr("none to compile"));
  write_file(folder_ / "core/base/first.hpp", "changed\n");
  const auto ran = run("scripts/check-headers --changed HEAD");
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("-include core/base/first.hpp"));
  EXPECT_THAT(ran.out, HasSubstr("-include sim/second.hpp"));
  EXPECT_THAT(ran.out, Not(HasSubstr("other.hpp")));
  EXPECT_EQ(run("scripts/check-headers --changed nowhere").status, 2);
}

/// The output of scripts/markdown for a file with the text.
test::ToolRun markdown(const std::string& text) {
  const ScratchFolder folder;
  write_file(folder / "a.md", text);
  return run_shell(fmt::format("cd {} && {}/scripts/markdown a.md 2>&1", folder.path().string(),
                               MFSDP_SOURCE_DIR));
}

TEST(Markdown, GoodFormIsGood) {
  const std::string long_word(250, 'x');
  const auto ran = markdown("# Title\n\n[a](https://" + long_word + ") <https://" + long_word +
                            ">\n\n| a | b |\n|---|---|\n| " + long_word +
                            " | `x \\| y` |\n\n```\n" + long_word + "\n#!/bin/sh\n```\n");
  EXPECT_EQ(ran.status, 0) << ran.out;
}

TEST(Markdown, EachFaultIsNamedWithItsLine) {
  EXPECT_THAT(markdown("#Title\n").out, HasSubstr("a.md:1: a heading without a blank after its #"));
  EXPECT_THAT(markdown("one\ntwo \n").out, HasSubstr("a.md:2: blanks at the end"));
  EXPECT_THAT(markdown(std::string(201, 'x') + "\n").out,
              HasSubstr("a.md:1: 201 columns, expected at most 200"));
  EXPECT_THAT(markdown("| a | b |\n|---|---|\n| 1 | 2 | 3 |\n").out,
              HasSubstr("a.md:3: 3 cells in a table of 2 columns"));
  EXPECT_THAT(markdown("| a | b |\n|---|---|---|\n").out,
              HasSubstr("a.md:2: 3 cells in a table of 2 columns"));
  EXPECT_THAT(markdown("one").out, HasSubstr("a.md:1: the last line does not end"));
  EXPECT_EQ(markdown("one ").status, 1);
}

TEST(CheckExtensions, AdditionsTouchAsFewFilesAsWasPromised) {
  const auto ran = run_shell("cd " MFSDP_SOURCE_DIR " && scripts/check-extensions 2>&1");
  EXPECT_EQ(ran.status, 0) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("kernel: 6 production files of at most 6"));
  EXPECT_THAT(ran.out, HasSubstr("flag: 3 production files of at most 5, 2 of tests"));
}

TEST(CheckExtensions, KnowsItsPatches) {
  const auto ran = run_shell("cd " MFSDP_SOURCE_DIR " && scripts/check-extensions gpu 2>&1");
  EXPECT_EQ(ran.status, 2);
  EXPECT_THAT(ran.out,
              HasSubstr("gpu: expected one of kernel family optimizer engine transport flag"));
}

}  // namespace
}  // namespace mfsdp
