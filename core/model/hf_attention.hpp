// Reads attention and RoPE from a config.json: sliding windows and their layers, logit softcaps,
// the scale of attention logits, and the scaling of RoPE.
#pragma once

#include "core/model/family.hpp"
#include "core/model/hf_config.hpp"
#include "core/model/hf_fields.hpp"

namespace mfsdp {

/// Fills model.shape, whose sizes must be read already, and model.gaps for RoPE scalings whose
/// table is not computed here.
[[nodiscard]] Result<void> read_hf_attention(const HfFields& fields, const HfFamily& family,
                                             HfModel& model);

}  // namespace mfsdp
