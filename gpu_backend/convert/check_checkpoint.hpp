// Is a checkpoint complete and sound?
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/model/model.hpp"
#include "gpu_backend/convert/checkpoint.hpp"

namespace mfsdp {

/// Kinds of faults of a checkpoint.
enum class CheckpointFlaw {
  file,     ///< a file is missing, too short or damaged
  hole,     ///< elements that no box holds
  overlap,  ///< elements that two boxes hold, or bytes that two boxes share
  finite,   ///< NaN or infinity in a weight or a state
  step,     ///< parts are of different steps
  moments,  ///< states that weights do not have, or lack, or that are zero after steps
  layers,   ///< gaps in the numbers of layers or experts
  tied,     ///< a head that a tied model does not have, or that is not the embedding
  model,    ///< not the parameters of config.json
};

constexpr auto value_names(CheckpointFlaw) {
  return name_array("file", "hole", "overlap", "finite", "step", "moments", "layers", "tied",
                    "model");
}

struct CheckpointFinding {
  CheckpointFlaw flaw = CheckpointFlaw::file;
  std::string place;  ///< tensor or file
  std::string what;
};

/// Bytes that were read so far.
using ReadProgress = std::function<void(std::int64_t bytes)>;

/// All findings, by flaw. `model`: of config.json, to compare with; `reads`: whether to read the
/// elements too. Errors are those of reading.
[[nodiscard]] Result<std::vector<CheckpointFinding>> check_checkpoint(
    const Checkpoint& checkpoint, const std::optional<Model>& model, bool reads,
    const ReadProgress& progress = {});

}  // namespace mfsdp
