// The safetensors files of a Hugging Face checkpoint: one, or several under an index.
#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/formats/safetensors.hpp"
#include "gpu_backend/train/data/mapped_file.hpp"

namespace mfsdp {

inline constexpr std::string_view kHfConfig = "config.json";
inline constexpr std::string_view kHfSingleFile = "model.safetensors";
inline constexpr std::string_view kHfIndex = "model.safetensors.index.json";

/// A tensor and the file that it is in.
struct StoredTensor {
  const MappedFile* file = nullptr;
  SafeTensor tensor;
};

/// The weight_map of an index: tensors and the files that hold them, names in the same folder.
[[nodiscard]] Result<std::map<std::string, std::string>> read_weight_map(
    const std::filesystem::path& index);

class HfFolder {
 public:
  /// Opens model.safetensors or, without it, all files that model.safetensors.index.json names, as
  /// transformers does. Errors: neither exists; those of parse_safetensors; an invalid index, one
  /// that names files outside the folder, or one that contradicts the files.
  [[nodiscard]] static Result<HfFolder> open(const std::filesystem::path& folder);

  /// By name.
  [[nodiscard]] const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }

  /// Null if no tensor has that name.
  [[nodiscard]] const StoredTensor* find(const std::string& name) const;

 private:
  [[nodiscard]] Result<void> add_file(const std::filesystem::path& path);
  [[nodiscard]] Result<void> add_sharded(const std::filesystem::path& folder,
                                         const std::filesystem::path& index);

  std::deque<MappedFile> files_;  ///< a deque keeps addresses, because tensors point to the files
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace mfsdp
