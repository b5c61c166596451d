// A checkpoint of any format: tensors, each cut into boxes, and where the bytes of each box lie.
//
//   tensor "layers.0.wq.weight" [8, 4]   rows 0 to 4  -> file __0_0.distcp, byte 704
//                                        rows 5 to 7  -> file __1_0.distcp, byte 2240
//
// All readers make this, and all writers, checks and comparisons take it. The bytes of a box are its
// elements row by row, without gaps, little-endian, uncompressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "core/formats/byte_source.hpp"
#include "core/formats/element_type.hpp"

namespace mfsdp {

/// hf: safetensors, one or several under an index. dcp: torch.distributed.checkpoint, also with
/// safetensors. fsdp_dtensor: Megatron-FSDP's. torch_dist: Megatron-Core's. torch: an archive of
/// torch.save. mfsdp: a save of mfsdp-exec.
enum class CheckpointFormat { hf, dcp, fsdp_dtensor, torch_dist, torch, mfsdp };

constexpr auto value_names(CheckpointFormat) {
  return name_array("hf", "dcp", "fsdp_dtensor", "torch_dist", "torch", "mfsdp");
}

/// A part of a tensor: `sizes` elements along each dim from `offsets` on.
struct TensorBox {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;

  [[nodiscard]] std::int64_t elements() const;
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

struct StoredBox {
  TensorBox box;
  std::size_t file = 0;      ///< index into Checkpoint::files
  std::uint64_t offset = 0;  ///< of its first byte
};

struct CheckpointTensor {
  std::string name;
  const ElementType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::vector<StoredBox> boxes;

  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t bytes() const;
};

/// A value that is no tensor: a learning rate, the state of a data loader. Nothing looks into it.
struct CheckpointObject {
  std::string name;
  std::size_t file = 0;
  FileRange bytes;
};

struct CheckpointFile {
  std::filesystem::path path;
  std::uint64_t size = 0;
};

struct Checkpoint {
  CheckpointFormat format = CheckpointFormat::hf;
  std::filesystem::path path;
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTensor> tensors;  ///< by name
  std::vector<CheckpointObject> objects;  ///< by name
  std::optional<std::int64_t> step;
  std::vector<std::pair<std::string, std::string>> facts;  ///< more that it states of itself
  /// Parts that the checkpoint states and that cannot be read: files that are missing or too
  /// short. Only inspecting and checking go on with any.
  std::vector<Error> problems;

  [[nodiscard]] const CheckpointTensor* find(std::string_view name) const;
  [[nodiscard]] std::int64_t bytes() const;  ///< of all tensors
};

/// Reads what a checkpoint has, without the elements. Its format is found by content: a folder, a
/// folder of such folders, of which the newest is read, or a file. Errors: no checkpoint that is
/// known; one that is damaged so that its parts are not known.
[[nodiscard]] Result<Checkpoint> open_checkpoint(const std::filesystem::path& path);

}  // namespace mfsdp
