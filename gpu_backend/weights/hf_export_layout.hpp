// The files of an export: their names, sizes and headers, and the place of each tensor's bytes. All
// ranks compute the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/weights/hf_tensors.hpp"

namespace mfsdp {

/// transformers' limit on the tensors of one file, bytes; a larger tensor has a file of its own.
inline constexpr std::int64_t kHfShardBytes = 5'000'000'000;

struct ExportFile {
  std::string name;       ///< in the export's folder
  std::string beginning;  ///< all of config.json or of the index; for others the header
  std::int64_t size = 0;  ///< bytes, including the tensors
};

/// Place of a tensor's first element.
struct ExportPlace {
  std::size_t file = 0;     ///< index into ExportLayout::files
  std::int64_t offset = 0;  ///< bytes
};

struct ExportLayout {
  std::vector<ExportFile> files;
  std::vector<ExportPlace> places;  ///< by index into HfTensors::all()

  [[nodiscard]] std::int64_t bytes() const;  ///< of all files
};

/// Tensors in the compute weights' dtype and the model's order: one model.safetensors if
/// `shard_bytes` suffice, else model-00001-of-0000N.safetensors and their index. config.json is
/// first. Errors: those of hf_config_text, a dtype that is not floating.
[[nodiscard]] Result<ExportLayout> lay_out_export(const Program& program, const HfTensors& tensors,
                                                  std::int64_t shard_bytes);

/// The file that holds adapters until they are added to the model's weights.
inline constexpr std::string_view kMergedAdapters = "model-adapters.safetensors";

/// The files of adapters: adapter_config.json and adapter_model.safetensors, or only
/// kMergedAdapters. Errors: those of peft_config_text.
[[nodiscard]] Result<ExportLayout> lay_out_adapters(const Program& program,
                                                    const HfTensors& adapters);
[[nodiscard]] ExportLayout lay_out_merged(const Program& program, const HfTensors& adapters);

/// Whether an export has a file of that name: configuration, weights, a shard of them, the index.
[[nodiscard]] bool is_export_name(const std::string& name);

/// Whether a folder contains only files of an export, so that it may be replaced.
[[nodiscard]] bool is_earlier_export(const std::filesystem::path& folder);

}  // namespace mfsdp
