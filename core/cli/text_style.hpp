// The style of printed text: colour, Unicode, width.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

struct TextStyle {
  bool colour = false;
  bool unicode = false;
  /// Columns of the terminal. None in a pipe or a file, where lines are not wrapped.
  std::optional<std::size_t> width = std::nullopt;
};

/// The inputs of the style, separate so that tests can set them.
struct Terminal {
  bool is_tty = false;
  bool no_colour = false;    ///< NO_COLOR is set and not empty
  std::string term;          ///< $TERM
  std::string locale;        ///< the first set of $LC_ALL, $LC_CTYPE, $LANG
  std::string columns = {};  ///< $COLUMNS
  std::size_t window = 0;    ///< columns that the terminal reports; 0: unknown
};

/// Standard output of this process.
[[nodiscard]] Terminal describe_stdout();

/// Colour is used on a terminal that supports it, unless the user disabled it; Unicode in a UTF-8
/// locale. The width of a terminal is $COLUMNS if that is a number, else the terminal's own value,
/// else 80, and at least 20. Outside a terminal there is no width, even if $COLUMNS is set.
[[nodiscard]] TextStyle style_of(const Terminal& terminal);

enum class Colour { plain, bold, dim, green, red, yellow, blue };

/// The text in that colour if the style permits colours.
[[nodiscard]] std::string coloured(std::string_view text, Colour colour, const TextStyle& style);

/// A bar that fills `fraction` (0 to 1, clamped) of `columns`; with Unicode in eighths of a column.
[[nodiscard]] std::string bar(double fraction, std::size_t columns, const TextStyle& style);

}  // namespace mfsdp
