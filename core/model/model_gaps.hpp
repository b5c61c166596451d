// What a config.json asks for that changes values and no byte: plans are made as if it were not
// there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model.hpp"

namespace mfsdp {

struct ModelGaps {
  /// Tokens that attention sees at most, in `sliding_layers` of the layers.
  std::optional<std::int64_t> sliding_window = {};
  std::int64_t sliding_layers = 0;
  std::string rope_type = {};  ///< of RoPE's scaling, where the table is not made: "yarn"

  friend bool operator==(const ModelGaps&, const ModelGaps&) = default;
};

/// What a plan of sequences of `seq_len` tokens does not compute, a line each, with what that does
/// to a prediction. A window that no sequence reaches is no gap.
[[nodiscard]] std::vector<std::string> gap_lines(const ModelGaps& gaps, const ModelShape& shape,
                                                 std::int64_t seq_len);

}  // namespace mfsdp
