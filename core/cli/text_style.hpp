// How text may look where it is printed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

struct TextStyle {
  bool colour = false;
  bool unicode = false;
  /// Columns of the terminal. None in a pipe or a file, where lines are as long as they are.
  std::optional<std::size_t> width = std::nullopt;
};

/// What decides the style, apart so that tests can state it.
struct Terminal {
  bool is_tty = false;
  bool no_colour = false;    ///< NO_COLOR is set and not empty
  std::string term;          ///< $TERM
  std::string locale;        ///< the first set of $LC_ALL, $LC_CTYPE, $LANG
  std::string columns = {};  ///< $COLUMNS
  std::size_t window = 0;    ///< columns that the terminal says it has; 0: it does not say
};

/// Standard output of this process.
[[nodiscard]] Terminal describe_stdout();

/// Colour only on a terminal that knows it and where the user has nothing against it; Unicode only
/// in a UTF-8 locale. A terminal's width is $COLUMNS where that is a number, else what the terminal
/// says, else 80, and never below 20; what is no terminal has none, whatever $COLUMNS is.
[[nodiscard]] TextStyle style_of(const Terminal& terminal);

enum class Colour { plain, bold, dim, green, red, yellow, blue };

/// The text in that colour if the style has colours.
[[nodiscard]] std::string coloured(std::string_view text, Colour colour, const TextStyle& style);

/// A bar of `fraction` (0 to 1, clamped) of `columns`, eighths of a column where Unicode is there.
[[nodiscard]] std::string bar(double fraction, std::size_t columns, const TextStyle& style);

}  // namespace mfsdp
