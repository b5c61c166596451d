#include "core/base/input_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <string>
#include <thread>

#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using std::chrono::milliseconds;
using test::ScratchFolder;

/// A pipe with a name, that nothing has opened.
std::string make_pipe(const ScratchFolder& folder) {
  const std::string path = folder / "pipe";
  EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  return path;
}

/// All that comes, or the error's line.
std::string read_all(const std::string& path, const PipePatience& patience) {
  auto file = InputFile::open(path, "a plan", patience);
  if (!file) return file.error().message();
  std::string text;
  std::array<char, 16> piece{};
  while (true) {
    const auto count = file->read(piece);
    if (!count) return count.error().message();
    if (*count == 0) return text;
    text.append(piece.data(), *count);
  }
}

constexpr PipePatience kLong{.writer = std::chrono::minutes(1), .bytes = std::chrono::minutes(1)};

TEST(InputFile, APipeThatNothingWritesToIsNotWaitedForWithoutEnd) {
  const ScratchFolder folder;
  const std::string path = make_pipe(folder);
  EXPECT_EQ(read_all(path, {.writer = milliseconds(100), .bytes = std::chrono::minutes(1)}),
            path + ": is a pipe that nothing has opened to write for 0.1 s");
}

TEST(InputFile, ASilentWriterIsNotWaitedForWithoutEnd) {
  const ScratchFolder folder;
  const std::string path = make_pipe(folder);
  // To read too: to write alone would wait for a reader.
  const FileDescriptor writer(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(read_all(path, {.writer = milliseconds(10), .bytes = milliseconds(100)}),
            path + ": is a pipe from which nothing came for 0.1 s");
}

TEST(InputFile, AWriterMayComeLaterAndPause) {
  const ScratchFolder folder;
  const std::string path = make_pipe(folder);
  std::thread writer([&] {
    std::this_thread::sleep_for(milliseconds(50));
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    for (const std::string piece : {"one ", "two ", "three of more than sixteen bytes"}) {
      EXPECT_EQ(::write(file.number(), piece.data(), piece.size()), std::ssize(piece));
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  EXPECT_EQ(read_all(path, kLong), "one two three of more than sixteen bytes");
  writer.join();
}

TEST(InputFile, AWriterThatWritesNothingLeavesAnEmptyFile) {
  const ScratchFolder folder;
  const std::string path = make_pipe(folder);
  std::thread writer([&] {
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    std::this_thread::sleep_for(milliseconds(20));
  });
  EXPECT_EQ(read_all(path, kLong), "");
  writer.join();
}

TEST(InputFile, WhatIsNoFileIsNamed) {
  const ScratchFolder folder;
  EXPECT_EQ(read_all(folder.path(), {}),
            folder.path().string() + ": expected a plan, got a directory");
  EXPECT_EQ(read_all("/dev/null", {}), "/dev/null: expected a plan, got a device");
  EXPECT_EQ(read_all("/nowhere/x", {}), "/nowhere/x: cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace mfsdp
