// A run's result as one calm screen: does it fit, where the memory goes, how fast it is.
#pragma once

#include <string>

#include "core/cli/text_style.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// At most 24 lines, wrapped to the style's width; blank lines give way to notes on what is frozen
/// and on padding of more than 2 %. `stored` says where the run was stored, as in "mfsdp.sqlite" or
/// "not stored". Memory is in GiB of 2^30 bytes throughout, and says so.
[[nodiscard]] std::string render_text(const RunResult& run, const TextStyle& style,
                                      const std::string& stored);

}  // namespace mfsdp
