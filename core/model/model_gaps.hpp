// What a config.json asks for that changes values and no byte: plans are made as if it were not
// there.
#pragma once

#include <string>
#include <vector>

namespace mfsdp {

struct ModelGaps {
  std::string rope_type = {};  ///< of RoPE's scaling, where the table is not made: "yarn"
  std::string rope_why = {};   ///< in the file's words, where it is not for the type alone

  friend bool operator==(const ModelGaps&, const ModelGaps&) = default;
};

/// What a plan does not compute, a line each, with what that does to a prediction.
[[nodiscard]] std::vector<std::string> gap_lines(const ModelGaps& gaps);

}  // namespace mfsdp
