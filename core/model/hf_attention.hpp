// What a config.json says of attention and RoPE: windows and which layers have them, soft caps, the
// scale of scores, and how positions turn.
#pragma once

#include "core/model/family.hpp"
#include "core/model/hf_config.hpp"
#include "core/model/hf_fields.hpp"

namespace mfsdp {

/// Reads into model.shape, whose sizes are read already, and model.gaps: scalings of RoPE whose
/// table nothing here makes.
[[nodiscard]] Result<void> read_hf_attention(const HfFields& fields, const HfFamily& family,
                                             HfModel& model);

}  // namespace mfsdp
