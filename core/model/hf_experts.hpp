// What a config.json says of experts: how many, how wide, in which layers, and how tokens are
// routed to them.
#pragma once

#include "core/model/family.hpp"
#include "core/model/hf_fields.hpp"
#include "core/model/model.hpp"

namespace mfsdp {

/// Reads it into a shape whose sizes are read already. Nothing for families without experts.
[[nodiscard]] Result<void> read_hf_experts(const HfFields& fields, const HfFamily& family,
                                           ModelShape& shape);

}  // namespace mfsdp
