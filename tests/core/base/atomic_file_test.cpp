#include "core/base/atomic_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>

#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using test::ScratchFolder;

TEST(AtomicFile, WritesAndReplacesWholeFiles) {
  const ScratchFolder folder;
  const auto path = folder / "out.json";
  ASSERT_TRUE(write_file_atomically(path, "first, and longer"));
  EXPECT_EQ(test::read_file(path), "first, and longer");
  ASSERT_TRUE(write_file_atomically(path, "second"));
  EXPECT_EQ(test::read_file(path), "second");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFile, WithoutCommitTheTargetIsUntouched) {
  const ScratchFolder folder;
  test::write_file(folder / "out", "old");
  {
    auto file = AtomicFile::create(folder / "out");
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write("new"));
    EXPECT_EQ(folder.file_count(), 2U);
  }
  EXPECT_EQ(test::read_file(folder / "out"), "old");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFile, KeepsTheModeOfTheFileItReplaces) {
  const ScratchFolder folder;
  test::write_file(folder / "out", "old");
  fs::permissions(folder / "out", fs::perms(0640));
  ASSERT_TRUE(write_file_atomically(folder / "out", "new"));
  EXPECT_EQ(fs::status(folder / "out").permissions(), fs::perms(0640));
}

TEST(AtomicFile, FollowsSymbolicLinks) {
  const ScratchFolder folder;
  test::write_file(folder / "real", "old");
  fs::create_symlink("real", folder / "link");
  ASSERT_TRUE(write_file_atomically(folder / "link", "new"));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(test::read_file(folder / "real"), "new");
}

TEST(AtomicFile, StandardOutputIsAppendedToNotReplaced) {
  const ScratchFolder folder;
  const auto path = folder / "redirected";
  const pid_t child = test::start_child([&] {
    const int file = ::open(path.c_str(), O_CREAT | O_WRONLY, 0600);
    ::dup2(file, STDOUT_FILENO);
    if (::write(STDOUT_FILENO, "before ", 7) != 7) return 1;
    if (!write_file_atomically("/dev/stdout", "content")) return 2;
    return ::write(STDOUT_FILENO, " after", 6) == 6 ? 0 : 3;
  });
  EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(test::read_file(path), "before content after");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFile, WritesToPipesDirectly) {
  const ScratchFolder folder;
  const auto path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const pid_t child =
      test::start_child([&] { return write_file_atomically(path, "through the pipe") ? 0 : 1; });
  EXPECT_EQ(test::read_file(path), "through the pipe");
  EXPECT_EQ(test::wait_for(child), 0);
}

TEST(AtomicFileErrors, AFullDeviceIsNamed) {
  const auto outcome = write_file_atomically("/dev/full", "x");
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(), "/dev/full: cannot write: No space left on device");
  EXPECT_EQ(outcome.error().fault, Fault::environment);
}

TEST(AtomicFileErrors, AFullDiskKeepsTheOldFileAndLeavesNoOther) {
  const ScratchFolder folder;
  const auto path = folder / "out";
  test::write_file(path, "old");
  const pid_t child = test::start_child([&] {
    test::limit_file_size(1000);
    const auto outcome = write_file_atomically(path, std::string(2000, 'x'));
    if (outcome) return 1;
    return outcome.error().message() == path.string() + ": cannot write: File too large" ? 0 : 2;
  });
  EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(test::read_file(path), "old");
  EXPECT_EQ(folder.file_count(), 1U);
}

TEST(AtomicFileErrors, UnwritablePlacesAreNamed) {
  const ScratchFolder folder;
  const auto missing = write_file_atomically(folder / "no/out", "x");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message(),
            (folder / "no/out").string() + ": cannot write: No such file or directory");
  EXPECT_EQ(missing.error().fault, Fault::environment);

  const auto directory = write_file_atomically(folder.path(), "x");
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().what, "is a directory, expected a file to write");
  EXPECT_EQ(directory.error().fault, Fault::input);

  const auto empty = write_file_atomically("", "x");
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().message(), "output file: expected a path, found an empty one");
}

TEST(AtomicFileErrors, AReadOnlyFileIsNotReplaced) {
  const ScratchFolder folder;
  test::write_file(folder / "out", "old");
  fs::permissions(folder / "out", fs::perms(0444));
  fs::permissions(folder.path(), fs::perms(0777));
  const pid_t child = test::start_child([&] {
    test::become_ordinary_user();
    const auto outcome = write_file_atomically(folder / "out", "new");
    return !outcome && outcome.error().what == "cannot write: Permission denied" ? 0 : 1;
  });
  EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(test::read_file(folder / "out"), "old");
}

TEST(AtomicFileErrors, APipeWithoutAReaderEndsTheWait) {
  const ScratchFolder folder;
  const std::string path = folder / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto outcome = write_file_atomically(path, "text");
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().message(),
            path + ": is a pipe that nothing has opened to read for 5 s");
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_file_atomically(path, "text"));
  std::array<char, 8> got{};
  EXPECT_EQ(::read(reader, got.data(), got.size()), 4);
  ::close(reader);
}

}  // namespace
}  // namespace mfsdp
