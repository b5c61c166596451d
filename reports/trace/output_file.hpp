// The output of traces: an atomic file, compressed if its name ends in ".gz".
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// Collects text in blocks, so that a trace of any length needs little memory, and compresses it
/// with gzip if the path ends in ".gz". Equal text gives equal bytes: no time stamp is stored.
class OutputFile {
 public:
  [[nodiscard]] static Result<OutputFile> create(const std::filesystem::path& path);

  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  /// Appends. The first error is kept and reported by `commit`.
  void write(std::string_view text);
  /// Writes what is left and puts the file in its place. Call once, last.
  [[nodiscard]] Result<void> commit();

 private:
  struct State;
  explicit OutputFile(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace mfsdp
