// One reader for each format. open_checkpoint() chooses.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/convert/checkpoint.hpp"

namespace mfsdp {

// Each fills `read.tensors`, in any order, and the rest of a checkpoint at read.path. Errors name
// the file and the tensor.

/// Safetensors of `files`, paths: a Hugging Face model, or DCP's chunks (DCP_SHARDING_INFO), whose
/// global shape is the largest end of any chunk.
[[nodiscard]] Result<void> read_safetensors_files(const std::vector<std::filesystem::path>& files,
                                                  Checkpoint& read);
/// The folder of a model.safetensors or an index, or of DCP's files of safetensors.
[[nodiscard]] Result<void> read_safetensors_folder(Checkpoint& read);
/// A folder with .metadata, and Megatron's with it.
[[nodiscard]] Result<void> read_dcp(Checkpoint& read);
/// An archive of torch.save.
[[nodiscard]] Result<void> read_torch_file(Checkpoint& read);
/// A save of mfsdp-exec: parameters by Hugging Face's names, moments as torchtitan names them.
[[nodiscard]] Result<void> read_mfsdp(Checkpoint& read);

/// Whether the name is that of a file in the same folder: no "/", no "..".
[[nodiscard]] bool is_plain_file_name(const std::string& text);

/// The pickle of .metadata, for fuzzing and tests: sizes, chunks and places, without the files.
struct DcpChunk {
  TensorBox box;
  std::string file;  ///< relative to the folder, inside it
  FileRange item;    ///< an archive of torch.save; size 0: no place is known
};
struct DcpEntry {
  std::string name;
  const ElementType* type = nullptr;  ///< null: an object
  std::vector<std::int64_t> shape;
  std::vector<DcpChunk> chunks;  ///< of an object one, without a box
};
struct DcpMetadata {
  std::vector<DcpEntry> entries;
  std::vector<std::pair<std::string, std::string>> facts;
};
[[nodiscard]] Result<DcpMetadata> read_dcp_metadata(std::string_view pickle,
                                                    const std::string& where);

}  // namespace mfsdp
