// A file or a pipe that is read from its beginning to its end, and that no reader waits for without
// end.
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

/// How long a pipe is waited for.
struct PipePatience {
  std::chrono::milliseconds writer =
      std::chrono::seconds(5);                                ///< until something opens it to write
  std::chrono::milliseconds bytes = std::chrono::minutes(1);  ///< until the next byte comes
};

class InputFile {
 public:
  /// A regular file or a pipe, such as one that a shell makes for <(command). Does not wait. Errors
  /// name the file and say why; a directory and a device are told that `expected` ("a config.json")
  /// was expected.
  [[nodiscard]] static Result<InputFile> open(const std::filesystem::path& path,
                                              std::string_view expected,
                                              const PipePatience& patience = {});

  /// The next bytes, as many as are there; 0 at the end. Errors: the system's; a pipe that nothing
  /// writes to, or from which nothing comes.
  [[nodiscard]] Result<std::size_t> read(std::span<char> bytes);

 private:
  InputFile(FileDescriptor file, std::string where, const PipePatience& patience)
      : file_(std::move(file)), where_(std::move(where)), patience_(patience) {}

  FileDescriptor file_;
  std::string where_;
  PipePatience patience_;
  bool is_pipe_ = false;
  bool had_writer_ = false;  ///< a pipe that has had one is at its end when it has none
};

}  // namespace mfsdp
