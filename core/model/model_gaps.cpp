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
  if (gaps.index_topk != 0)
    lines.push_back(fmt::format(
        "sparse attention to {} tokens is planned as attention to all tokens "
        "(docs/reference/limits.md): the time and the buffers of its indexer are left out, and "
        "longer sequences may take less time",
        gaps.index_topk));
  if (gaps.chunk != 0) {
    lines.push_back(fmt::format(
        "attention in chunks of {} tokens is planned as attention to all earlier tokens "
        "(docs/reference/limits.md): longer sequences take less time",
        gaps.chunk));
    lines.emplace_back(
        "norms of queries and keys without weights, logits that grow with the position, and inputs "
        "of experts scaled by sigmoids are not computed (docs/reference/limits.md): other values, "
        "the same parameters and nearly the same memory and time; names of parameters are GLM's");
  }
  return lines;
}

}  // namespace mfsdp
