// Parts of a config.json; hf_config.cpp reads the rest first.
#pragma once

#include "core/model/family.hpp"
#include "core/model/hf_config.hpp"
#include "core/model/hf_fields.hpp"

namespace mfsdp {

/// Attention and RoPE: sliding windows and their layers, logit softcaps, the scale of attention
/// logits, and the scaling of RoPE. Fills model.shape, whose sizes must be read already, and
/// model.gaps for RoPE scalings whose table is not computed here.
[[nodiscard]] Result<void> read_hf_attention(const HfFields& fields, const HfFamily& family,
                                             HfModel& model);

/// Experts: their number, width and layers, and the routing of tokens. Fills a shape whose sizes
/// must be read already. Does nothing for families without experts.
[[nodiscard]] Result<void> read_hf_experts(const HfFields& fields, const HfFamily& family,
                                           ModelShape& shape);

}  // namespace mfsdp
