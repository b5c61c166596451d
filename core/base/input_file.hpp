// A file or a pipe that is read from beginning to end. A silent pipe is an error after some time.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"

namespace mfsdp {

/// How long to wait for a pipe.
struct PipePatience {
  std::chrono::milliseconds writer =
      std::chrono::seconds(5);                                ///< until something opens it to write
  std::chrono::milliseconds bytes = std::chrono::minutes(1);  ///< until the next byte comes
};

class InputFile {
 public:
  /// Opens a regular file or a pipe, such as one that a shell makes for <(command). Does not wait.
  /// Errors name the file and the reason; those for a directory or a device also name what was
  /// `expected` ("a config.json").
  [[nodiscard]] static Result<InputFile> open(const std::filesystem::path& path,
                                              std::string_view expected,
                                              const PipePatience& patience = {});

  /// Reads the bytes that are available; 0 at the end. Errors: those of the system; a pipe without
  /// a writer, or whose writer sends nothing for too long.
  [[nodiscard]] Result<std::size_t> read(std::span<char> bytes);

 private:
  InputFile(FileDescriptor file, std::string where, const PipePatience& patience)
      : file_(std::move(file)), where_(std::move(where)), patience_(patience) {}

  FileDescriptor file_;
  std::string where_;
  PipePatience patience_;
  bool is_pipe_ = false;
  bool had_writer_ = false;  ///< a pipe without a writer is at its end only if it has had one
};

}  // namespace mfsdp
