#include "core/cli/path_check.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kScenarios = fs::path(MFSDP_SOURCE_DIR) / "scenarios";

class CheckPaths : public testing::Test {
 protected:
  /// A file's path in a folder of this test.
  [[nodiscard]] std::string at(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::string made(const std::string& name) const {
    std::ofstream(at(name)) << "x";
    return at(name);
  }
  [[nodiscard]] CommonOptions stored() const { return {.db = at("a.sqlite")}; }
  static std::string error_of(const CommonOptions& options) {
    const auto checked = check_paths(options, kScenarios);
    return checked ? "no error" : checked.error().message();
  }

 private:
  test::ScratchFolder folder_;
};

TEST_F(CheckPaths, FilesOfTheirOwnAreFine) {
  CommonOptions options = stored();
  options.model = "llama_tiny";
  options.trace = at("t.json");
  options.memory_trace = at("m.json");
  options.plan_out = at("p.json");
  EXPECT_EQ(error_of(options), "no error");
}

TEST_F(CheckPaths, TheStoreIsNoOutput) {
  CommonOptions options = stored();
  for (auto member :
       {&CommonOptions::trace, &CommonOptions::memory_trace, &CommonOptions::plan_out}) {
    CommonOptions one = options;
    one.*member = at("./x/../a.sqlite");
    EXPECT_THAT(error_of(one), HasSubstr("--db '")) << error_of(one);
    one.*member = *options.db + "-wal";
    EXPECT_THAT(error_of(one), HasSubstr("--db (SQLite) '"));
  }
  options = {.no_save = true, .trace = "mfsdp.sqlite"};
  EXPECT_EQ(error_of(options), "no error");
  options.no_save = false;
  EXPECT_EQ(error_of(options),
            "--trace 'mfsdp.sqlite' and the default of --db, 'mfsdp.sqlite' are one file; name "
            "another for one of them");
}

TEST_F(CheckPaths, OutputsDiffer) {
  EXPECT_THAT(error_of({.no_save = true, .plan_out = at("x"), .trace = at("x")}),
              testing::AllOf(HasSubstr("--plan-out '"), HasSubstr("--trace '")));
  EXPECT_THAT(error_of({.no_save = true, .trace = at("x"), .memory_trace = at("x")}),
              testing::AllOf(HasSubstr("--memory-trace '"), HasSubstr("--trace '")));
}

TEST_F(CheckPaths, InputsAreNotOverwritten) {
  const std::string file = made("in.toml");
  const auto error = [&](CommonOptions options) {
    options.no_save = true;
    options.plan_out = file;
    return error_of(options);
  };
  EXPECT_THAT(error({.model = file}), HasSubstr("--model '"));
  EXPECT_THAT(error({.plan = file}), HasSubstr("--plan '"));
  EXPECT_THAT(error({.gpu = file}), HasSubstr("--gpu '"));
  EXPECT_THAT(error({.cluster = file}), HasSubstr("--cluster '"));
  EXPECT_THAT(error({.options_file = file}), HasSubstr("--options '"));
  const fs::path folder = fs::path(file).parent_path();
  const std::string config = made("config.json");
  EXPECT_THAT(error_of({.model = folder.string(), .no_save = true, .trace = config}),
              HasSubstr("--model '"));
  EXPECT_THAT(error_of({.model = "llama_tiny",
                        .no_save = true,
                        .trace = (kScenarios / "models/llama_tiny/config.json").string()}),
              HasSubstr("--model 'llama_tiny'"));
}

TEST_F(CheckPaths, FilesOfTheToolAlone) {
  const std::string file = made("in.toml");
  const CommonOptions options{.no_save = true, .trace = at("t.json")};
  const auto error = [&](const ToolFiles& tool) {
    const auto checked = check_paths(options, kScenarios, tool);
    return checked ? "no error" : checked.error().message();
  };
  EXPECT_EQ(error({.read = {{"--in", file}}, .written = {{"--out", at("o")}}}), "no error");
  EXPECT_EQ(error({.read = {{"--in", std::nullopt}}, .written = {{"--out", std::nullopt}}}),
            "no error");
  EXPECT_THAT(error({.read = {{"--in", file}}, .written = {{"--out", file}}}),
              testing::AllOf(HasSubstr("--in '"), HasSubstr("--out '")));
  EXPECT_THAT(error({.read = {}, .written = {{"--out", at("t.json")}}}), HasSubstr("--trace '"));
}

TEST_F(CheckPaths, FilesOfFoldersThatAreReadStay) {
  const std::string file = made("weights");
  const std::string folder = fs::path(file).parent_path().string();
  const auto error = [&](const std::string& output) {
    const auto checked = check_paths({.no_save = true, .trace = output}, kScenarios,
                                     {.read = {{"--in", folder}}, .written = {}});
    return checked ? "no error" : checked.error().message();
  };
  EXPECT_EQ(error(file), "--trace '" + file + "' is a file of --in '" + folder +
                             "', which is read; name another");
  EXPECT_EQ(error(at("another")), "no error");
}

TEST_F(CheckPaths, LinksAreFollowed) {
  const std::string file = made("file");
  fs::create_symlink("file", at("soft"));
  fs::create_hard_link(file, at("hard"));
  fs::create_symlink("absent", at("dangling"));
  for (const char* link : {"soft", "hard"})
    EXPECT_NE(error_of({.no_save = true, .plan_out = file, .trace = at(link)}), "no error");
  EXPECT_NE(error_of({.no_save = true, .plan_out = at("absent"), .trace = at("dangling")}),
            "no error");
}

/// Root may write to folders whose mode forbids it, but not to /proc.
TEST_F(CheckPaths, OutputsThatCannotBeWrittenAreToldByTheirFlags) {
  EXPECT_EQ(error_of({.no_save = true, .trace = at("none/t.json")}),
            "--trace: " + at("none") + " is no folder");
  EXPECT_EQ(error_of({.no_save = true, .plan_out = "/proc/p.json"}),
            "--plan-out: /proc/p.json: cannot write: No such file or directory");
  fs::create_directory(at("folder"));
  EXPECT_EQ(error_of({.no_save = true, .memory_trace = at("folder")}),
            "--memory-trace: " + at("folder") + ": is a directory, expected a file to write");
  const ToolFiles tool{.read = {}, .written = {{"--out", at("none/o")}}};
  const auto checked = check_paths({.no_save = true}, kScenarios, tool);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message(), "--out: " + at("none") + " is no folder");
  EXPECT_EQ(checked.error().fault, Fault::environment);
}

TEST_F(CheckPaths, LeavesTheFolderAsItIs) {
  const std::string file = made("t.json");
  EXPECT_EQ(error_of({.no_save = true, .plan_out = at("new.json"), .trace = file}), "no error");
  EXPECT_FALSE(fs::exists(at("new.json")));
  EXPECT_EQ(test::read_file(file), "x");
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(file).parent_path()), {}), 1);
}

TEST_F(CheckPaths, DevicesMayRepeat) {
  for (const char* device : {"/dev/null", "/dev/stdout", "/dev/full"})
    EXPECT_EQ(
        error_of({.no_save = true, .plan_out = device, .trace = device, .memory_trace = device}),
        "no error");
}

}  // namespace
}  // namespace mfsdp
