// Settings of a config.json that change values but no size: plans ignore them.
#pragma once

#include <string>
#include <vector>

namespace mfsdp {

struct ModelGaps {
  std::string rope_type = {};  ///< RoPE scaling whose table is not computed: "yarn"
  std::string rope_why = {};   ///< the fields that prevent it, where it is not the type

  friend bool operator==(const ModelGaps&, const ModelGaps&) = default;
};

/// One line for each gap: what a plan does not compute, and the effect on a prediction.
[[nodiscard]] std::vector<std::string> gap_lines(const ModelGaps& gaps);

}  // namespace mfsdp
