// The angles of rotary position embedding, as the plan's persistent buffer "rope_table" holds them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model.hpp"

namespace mfsdp {

/// [seq_len, head_dim]: for each position the cosines of its head_dim / 2 angles, then their sines.
/// Angle i of position p is p * theta^(-2i / head_dim), its frequency scaled as in Llama 3.1 where
/// the model says so. Worked out in double, rounded once.
[[nodiscard]] std::vector<float> make_rope_table(const ModelShape& model, std::int64_t seq_len);

/// The frequencies, radians per position: head_dim / 2 of them.
[[nodiscard]] std::vector<double> rope_frequencies(const ModelShape& model);

}  // namespace mfsdp
