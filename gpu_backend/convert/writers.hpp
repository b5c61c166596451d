// One writer for each layout. convert_checkpoint() chooses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/durable_file.hpp"
#include "core/base/error.hpp"
#include "gpu_backend/convert/mapped_reader.hpp"

namespace mfsdp {

/// A tensor to be written under its final name.
struct OutputTensor {
  std::string name;
  MappedTensor elements;               ///< name and state do not matter
  std::optional<float> constant = {};  ///< of a scalar of float32, instead of elements

  [[nodiscard]] std::int64_t bytes() const;
};

/// A value that is no tensor: an archive of torch.save, as DCP has it.
struct OutputObject {
  std::string name;
  const CheckpointObject* source = nullptr;
  std::string archive = {};  ///< instead of a source
};

/// Where elements come from, and how many are held at a time.
class ElementStream {
 public:
  /// `piece` bytes at a time. The checkpoint outlives the stream.
  ElementStream(const Checkpoint& checkpoint, std::int64_t piece,
                const std::function<void(std::int64_t)>& progress)
      : reader_(checkpoint), objects_(checkpoint), piece_(piece), progress_(progress) {}

  /// Writes elements [begin, end) of a tensor to a file from `offset` on.
  [[nodiscard]] Result<void> write(const OutputTensor& tensor, std::int64_t begin, std::int64_t end,
                                   DurableFile& file, std::int64_t offset);
  /// The bytes of an object.
  [[nodiscard]] Result<std::string> archive_of(const OutputObject& object);

 private:
  MappedReader reader_;
  TensorReader objects_;
  std::int64_t piece_;
  const std::function<void(std::int64_t)>& progress_;
  std::int64_t done_ = 0;
  std::vector<std::byte> bytes_;
};

/// Names a file by the path that it will have.
struct OutputFolder {
  std::filesystem::path path;   ///< in which files are written
  std::filesystem::path shown;  ///< that the folder gets at the end
};

/// model.safetensors, or shards of at most `shard_bytes` and their index. Returns the files.
[[nodiscard]] Result<std::int64_t> write_hf(const OutputFolder& folder,
                                            const std::vector<OutputTensor>& tensors,
                                            std::int64_t shard_bytes, ElementStream& stream);

/// __R_0.distcp for each of `ranks` with its rows of every tensor, cut as PyTorch's Shard(0) cuts
/// them, then .metadata. Returns the files.
[[nodiscard]] Result<std::int64_t> write_dcp(const OutputFolder& folder,
                                             const std::vector<OutputTensor>& tensors,
                                             const std::vector<OutputObject>& objects,
                                             std::int64_t ranks, ElementStream& stream);

/// A small file with its whole content, synced.
[[nodiscard]] Result<void> write_whole(const OutputFolder& folder, const std::string& name,
                                       std::string_view content);

}  // namespace mfsdp
