// Wraps lines to the width of the terminal. Outside a terminal (a pipe, a file) lines stay
// unchanged.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/cli/text_style.hpp"

namespace mfsdp {

/// The line broken at blanks into pieces of at most `width` columns. Pieces after the first begin
/// with `hang` blanks. A word is never broken and a number keeps its unit ("46.68 GiB"), so a piece
/// can be wider. Colour escapes have no width.
[[nodiscard]] std::string wrap_line(std::string_view line, std::size_t width, std::size_t hang);

/// Columns of the widest piece that wrap_line does not break.
[[nodiscard]] std::size_t longest_word(std::string_view line);

/// Wraps every line of the text to the style's width. If the first field is a short label
/// ("Time   853 ms ..."), continuation lines begin at the second field. Otherwise they begin two
/// columns deeper than the line. Unchanged if the style has no width.
[[nodiscard]] std::string wrap_text(std::string_view text, const TextStyle& style);

}  // namespace mfsdp
