// Parts of a config.json that plans leave out: settings that change values but no size, and sparse
// attention.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp {

struct ModelGaps {
  std::string rope_type = {};   ///< RoPE scaling whose table is not computed: "yarn"
  std::string rope_why = {};    ///< the fields that prevent it, where it is not the type
  std::int64_t index_topk = 0;  ///< tokens that a query of sparse attention sees; 0: all
  std::int64_t chunk = 0;       ///< tokens of a chunk of Llama 4's attention; 0: none of it

  friend bool operator==(const ModelGaps&, const ModelGaps&) = default;
};

/// One line for each gap: what a plan does not compute, and the effect on a prediction.
[[nodiscard]] std::vector<std::string> gap_lines(const ModelGaps& gaps);

}  // namespace mfsdp
