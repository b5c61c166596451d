// What a file is, by its first bytes: for messages about a file that a reader did not expect.
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

/// With its article, for messages: "a gzip file".
[[nodiscard]] std::string_view to_words(FileKind kind);

/// What the beginning of a file shows it to be; 512 bytes are enough. None where it is nothing that
/// is known here, and for an empty file. Names of files are not looked at.
[[nodiscard]] std::optional<FileKind> file_kind(std::string_view first_bytes);

/// The message about a pointer that Git leaves where Git LFS keeps a file: "is a Git LFS pointer,
/// not the file itself; fetch it with git lfs pull". None for all other files.
[[nodiscard]] std::optional<std::string> git_lfs_pointer(std::string_view first_bytes);

/// The message about a file that stands in for another one, whatever was expected: a Git LFS
/// pointer, or a web page that was saved in place of the file which it shows. None for all others.
[[nodiscard]] std::optional<std::string> not_the_file_itself(std::string_view first_bytes);

/// What a reader says that cannot read a file: the message above, or "expected a pickle, got a gzip
/// file". None where the kind is `kind`, not known or text: there the reader knows more.
[[nodiscard]] std::optional<std::string> expected_other_kind(std::string_view first_bytes,
                                                             FileKind kind,
                                                             std::string_view expected);

}  // namespace mfsdp
