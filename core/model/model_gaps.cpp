#include "core/model/model_gaps.hpp"

#include <fmt/format.h>

namespace mfsdp {

std::vector<std::string> gap_lines(const ModelGaps& gaps) {
  std::vector<std::string> lines;
  if (!gaps.rope_type.empty())
    lines.push_back(fmt::format(
        "RoPE scaling '{}' is not computed{} (docs/reference/limits.md): other values, the same "
        "memory and time",
        gaps.rope_type, gaps.rope_why.empty() ? "" : ", as " + gaps.rope_why));
  return lines;
}

}  // namespace mfsdp
