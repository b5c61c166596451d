#include "core/base/read_file.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "core/base/file_descriptor.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::ScratchFolder;

TEST(ReadFile, GivesTheWholeContentUpToTheLimit) {
  const ScratchFolder folder;
  // More than one piece, with bytes that text modes would change.
  std::string content(200'000, 'x');
  content[7] = '\0';
  content[8] = '\r';
  std::ofstream(folder / "file", std::ios::binary) << content;
  const auto text = read_file(folder / "file", "a plan", content.size());
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(*text, content);
  const auto larger = read_file(folder / "file", "a plan", content.size() - 1);
  ASSERT_FALSE(larger);
  EXPECT_EQ(larger.error().what, "expected a plan, got a file of more than 199999 bytes");
  std::ofstream(folder / "empty").close();
  EXPECT_EQ(read_file(folder / "empty", "a plan", 0).value(), "");
}

TEST(ReadFile, DevicesAreRefused) {
  for (const std::string device : {"/dev/zero", "/dev/null"}) {
    const auto bytes = read_file(device, "a GPU's TOML file", std::size_t{1} << 40);
    ASSERT_FALSE(bytes);
    EXPECT_EQ(bytes.error().message(), device + ": expected a GPU's TOML file, got a device");
  }
}

TEST(ReadFile, PipesAreRead) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  ASSERT_EQ(write(writer.number(), "a = 1", 5), 5);
  writer.close();
  EXPECT_EQ(read_file(fmt::format("/dev/fd/{}", reader.number()), "a plan", 10).value(), "a = 1");
}

TEST(ReadFile, FilesThatStandInForOthersAreRefused) {
  const ScratchFolder folder;
  const auto file = folder / "rank0.json.gz";
  std::ofstream(file) << "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n";
  const auto bytes = read_file(file, "a trace", 1000);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(
      bytes.error().message(),
      file.string() + ": is a Git LFS pointer, not the file itself; fetch it with git lfs pull");
}

TEST(ReadFile, ErrorsNameTheFileAndTheReason) {
  const ScratchFolder folder;
  const auto missing = read_file("/nowhere/x", "a plan", 10);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message(), "/nowhere/x: cannot be opened: No such file or directory");
  EXPECT_EQ(missing.error().fault, Fault::input);
  const auto directory = read_file(folder.path(), "a plan", 10);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().what, "expected a plan, got a directory");
}

}  // namespace
}  // namespace mfsdp
