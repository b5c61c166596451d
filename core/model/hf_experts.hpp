// Reads experts from a config.json: their number, width and layers, and the routing of tokens.
#pragma once

#include "core/model/family.hpp"
#include "core/model/hf_fields.hpp"
#include "core/model/model.hpp"

namespace mfsdp {

/// Fills a shape whose sizes must be read already. Does nothing for families without experts.
[[nodiscard]] Result<void> read_hf_experts(const HfFields& fields, const HfFamily& family,
                                           ModelShape& shape);

}  // namespace mfsdp
