// Recognises a file by its first bytes, for messages about a file of an unexpected kind.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

enum class FileKind {
  git_lfs_pointer,
  web_page,
  gzip,
  zip,
  zstandard,
  bzip2,
  xz,
  pdf,
  png,
  gguf,
  numpy,
  parquet,
  hdf5,
  sqlite,
  pickle,  ///< of protocol 2 or later
  safetensors,
  tensorboard_events,
  xml,
  json,
  text  ///< UTF-8, and none of the others
};

/// The kind with its article, for messages: "a gzip file".
[[nodiscard]] std::string_view to_words(FileKind kind);

/// The kind of a file by its beginning, of which 512 bytes are enough. None for an empty file and
/// an unknown kind. File names are not used.
[[nodiscard]] std::optional<FileKind> file_kind(std::string_view first_bytes);

/// The message about a pointer of Git LFS: "is a Git LFS pointer, not the file itself; fetch it
/// with git lfs pull". None for all other files.
[[nodiscard]] std::optional<std::string> git_lfs_pointer(std::string_view first_bytes);

/// The message about a file that replaces the one that was meant: a Git LFS pointer, or a web page
/// that was saved instead of the file that it shows. None for all others.
[[nodiscard]] std::optional<std::string> not_the_file_itself(std::string_view first_bytes);

/// The message of a reader that expects `kind`: that of not_the_file_itself(), or "expected a
/// pickle, got a gzip file". None where the file is of that kind, of an unknown one, or text: the
/// reader's own error is better then.
[[nodiscard]] std::optional<std::string> expected_other_kind(std::string_view first_bytes,
                                                             FileKind kind,
                                                             std::string_view expected);

}  // namespace mfsdp
