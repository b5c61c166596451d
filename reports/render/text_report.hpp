// A run's result as one calm screen: does it fit, where the memory goes, how fast it is.
#pragma once

#include <string>

#include "core/cli/text_style.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// At most 24 lines, wrapped to the style's width. Notes on frozen parameters and on padding of
/// more than 2 % replace blank lines. `stored` is the place of storage, as in "mfsdp.sqlite" or
/// "not stored". Memory is in GiB of 2^30 bytes, and the unit is printed.
[[nodiscard]] std::string render_text(const RunResult& run, const TextStyle& style,
                                      const std::string& stored);

/// The same job under another engine, in one line.
[[nodiscard]] std::string other_engine_text(const OtherEngine& other);

/// Text of a run of another system: a line for each thing that a log knows, "-" where this one does not; facts and steps after them.
[[nodiscard]] std::string render_partial_text(const RunResult& run, const TextStyle& style,
                                              const std::string& stored);

}  // namespace mfsdp
