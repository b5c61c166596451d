// Writes a checkpoint in another format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "core/model/model.hpp"
#include "gpu_backend/convert/check_checkpoint.hpp"
#include "gpu_backend/convert/checkpoint.hpp"
#include "gpu_backend/convert/model_names.hpp"

namespace mfsdp {

struct ConvertSettings {
  CheckpointFormat to = CheckpointFormat::hf;
  /// None: hf's for hf, Megatron's for Megatron's formats, the checkpoint's own for dcp.
  std::optional<NameStyle> names = {};
  std::optional<Model> model = {};  ///< of config.json; names other than the own need it
  std::optional<DType> dtype = {};  ///< of weights, floating; none: as they are
  bool keeps_optimizer = true;      ///< not for hf, which has no place for it
  std::int64_t ranks = 1;           ///< files of dcp, each with rows of every tensor
  std::int64_t memory = std::int64_t{2} << 30;  ///< bytes of elements at a time, at most
  std::int64_t shard_bytes = 5'000'000'000;     ///< of a file of hf
  std::string config_text = {};                 ///< of config.json, for hf; empty: none
  bool is_dry = false;                          ///< nothing is written
};

struct ConvertOutcome {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;  ///< of elements
  std::int64_t files = 0;
  std::vector<std::string> dropped = {};  ///< kinds of what the format has no place for
};

/// Writes to a folder beside `out` and renames it, so that `out` is complete or not there; it must
/// not exist, or be empty. Elements are read, rounded to the dtype if one is given, and written
/// again in pieces. Errors: those of names; a checkpoint with problems or holes; a tensor that the
/// format cannot have; what cannot be written.
[[nodiscard]] Result<ConvertOutcome> convert_checkpoint(const Checkpoint& checkpoint,
                                                        const std::filesystem::path& out,
                                                        const ConvertSettings& settings,
                                                        const ReadProgress& progress = {});

}  // namespace mfsdp
