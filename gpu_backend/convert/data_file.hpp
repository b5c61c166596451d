// Files of checkpoints, opened for reading at any offset.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"
#include "core/formats/byte_source.hpp"
#include "gpu_backend/convert/checkpoint.hpp"

namespace mfsdp {

/// A regular file. Errors name it: missing, a directory, a pipe; too short for what is read.
class DataFile {
 public:
  [[nodiscard]] static Result<DataFile> open(const std::filesystem::path& path);

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] Result<void> read(std::uint64_t offset, std::span<std::byte> bytes) const;
  /// For readers of formats; valid as long as the file is.
  [[nodiscard]] ByteSource source() const;

 private:
  DataFile(FileDescriptor descriptor, std::string shown, std::uint64_t size)
      : descriptor_(std::move(descriptor)), shown_(std::move(shown)), size_(size) {}

  FileDescriptor descriptor_;
  std::string shown_;
  std::uint64_t size_ = 0;
};

/// Reads elements of a checkpoint's tensors. Keeps some files open.
class TensorReader {
 public:
  /// `checkpoint` outlives the reader.
  explicit TensorReader(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), open_(checkpoint.files.size()) {}

  /// Fills `bytes` with the tensor's elements from `begin` on, row-major. Where boxes leave a hole,
  /// `bytes` stay as they are: check_checkpoint() finds holes.
  [[nodiscard]] Result<void> read(const CheckpointTensor& tensor, std::int64_t begin,
                                  std::span<std::byte> bytes);
  [[nodiscard]] Result<void> read(std::size_t file, std::uint64_t offset,
                                  std::span<std::byte> bytes);

 private:
  const Checkpoint& checkpoint_;
  std::vector<std::optional<DataFile>> open_;  ///< by file
  std::size_t count_ = 0;                      ///< that are open
};

/// The boxes that make up elements [begin, end) of a row-major tensor, in order: at most two for
/// each dim but the last, and one.
[[nodiscard]] std::vector<TensorBox> boxes_of_interval(const std::vector<std::int64_t>& shape,
                                                       std::int64_t begin, std::int64_t end);

/// The box that two boxes share; none if they share nothing.
[[nodiscard]] std::optional<TensorBox> common_box(const TensorBox& a, const TensorBox& b);

/// The place of a box's first element among those of `whole`, which contains it, row-major.
[[nodiscard]] std::int64_t place_in(const TensorBox& whole, const std::vector<std::int64_t>& at);

/// Calls visit(offsets of its first element, elements) for each run of elements of `part` that
/// follow each other in both boxes, which contain it. Returns the first error.
[[nodiscard]] Result<void> visit_runs(
    const TensorBox& part, const TensorBox& first, const TensorBox& second,
    const std::function<Result<void>(const std::vector<std::int64_t>& at, std::int64_t elements)>&
        visit);

}  // namespace mfsdp
