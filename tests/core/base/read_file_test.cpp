#include "core/base/read_file.hpp"

#include <gtest/gtest.h>

#include <fstream>

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

TEST(ReadFile, EndlessDevicesAreRefused) {
  const auto zeros = read_file("/dev/zero", "a GPU's TOML file", std::size_t{1} << 20);
  ASSERT_FALSE(zeros);
  EXPECT_EQ(zeros.error().message(),
            "/dev/zero: expected a GPU's TOML file, got a file of more than 1 MiB");
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
