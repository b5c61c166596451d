// Lines no wider than the terminal. Where there is none (a pipe, a file) lines stay as they are.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/cli/text_style.hpp"

namespace mfsdp {

/// The line broken at blanks into pieces of at most `width` columns; pieces after the first begin
/// with `hang` blanks. A word is never broken and a number keeps its unit ("46.68 GiB"), so a piece
/// is wider where one of them is. Colour escapes take no columns.
[[nodiscard]] std::string wrap_line(std::string_view line, std::size_t width, std::size_t hang);

/// Columns of the widest piece that wrap_line keeps whole.
[[nodiscard]] std::size_t longest_word(std::string_view line);

/// Every line of the text wrapped to the style's width. What goes on stands under the line's second
/// field where the first is a short label ("Time   853 ms ..."), else two columns deeper than the
/// line. Unchanged where the style has no width.
[[nodiscard]] std::string wrap_text(std::string_view text, const TextStyle& style);

}  // namespace mfsdp
