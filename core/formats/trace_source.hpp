// The bytes of a trace file, plain or unpacked from gzip, in blocks: memory does not depend on the
// file's size.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file_kind.hpp"
#include "core/base/input_file.hpp"

namespace mfsdp::traces {

/// A parser reads characters; after their end error() has the source's error, if there was one.
class TraceSource final : public std::streambuf {
 public:
  /// A file, plain or gzip (by its first two bytes, not its name).
  [[nodiscard]] static Result<std::unique_ptr<TraceSource>> open(const std::filesystem::path& path);
  /// Bytes in memory, plain or gzip, which must outlive the source; `where` names them in errors.
  [[nodiscard]] static std::unique_ptr<TraceSource> of(std::string_view bytes, std::string where);

  TraceSource(const TraceSource&) = delete;
  TraceSource& operator=(const TraceSource&) = delete;
  ~TraceSource() override;

  /// Unpacked bytes that the parser has read.
  [[nodiscard]] std::uint64_t position() const {
    return delivered_ - static_cast<std::uint64_t>(egptr() - gptr());
  }
  /// Marks the end of a JSON value. One value may take 16 MiB, as a parser keeps all of it.
  void mark() { mark_ = position(); }
  /// The reason why the characters ended before the file.
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  /// The file's kind by its first bytes; none before they are read.
  [[nodiscard]] std::optional<FileKind> kind() const { return kind_; }

 protected:
  int_type underflow() override;

 private:
  struct Inflate;

  TraceSource();
  /// Reads compressed or plain bytes of the file into `raw_`; 0 at its end.
  std::size_t read_raw();
  /// Fills the block of unpacked bytes; 0 at the end or on an error.
  std::size_t fill();
  std::size_t fill_unpacked();
  void refuse(std::string what, Fault fault = Fault::input);

  std::string where_;
  std::optional<InputFile> file_;
  std::string_view memory_;  ///< the unread part of bytes in memory, if there is no file
  std::vector<char> raw_;
  std::vector<char> text_;            ///< unpacked; empty for a plain file
  std::unique_ptr<Inflate> inflate_;  ///< null for a plain file
  bool started_ = false;
  std::optional<FileKind> kind_;
  std::uint64_t raw_read_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t mark_ = 0;
  std::optional<Error> error_;
};

}  // namespace mfsdp::traces
