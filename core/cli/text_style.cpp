#include "core/cli/text_style.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::size_t columns_of_stdout() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::optional<std::size_t> width_of(const Terminal& terminal) {
  constexpr std::size_t kUnknown = 80;
  constexpr std::size_t kLeast = 20;
  if (!terminal.is_tty) return std::nullopt;
  std::size_t wanted = 0;
  const char* end = terminal.columns.data() + terminal.columns.size();
  const auto [stop, code] = std::from_chars(terminal.columns.data(), end, wanted);
  if (code == std::errc() && stop == end && wanted > 0) return std::max(wanted, kLeast);
  return std::max(terminal.window > 0 ? terminal.window : kUnknown, kLeast);
}

}  // namespace

Terminal describe_stdout() {
  Terminal terminal{.is_tty = isatty(STDOUT_FILENO) != 0,
                    .no_colour = !variable("NO_COLOR").empty(),
                    .term = variable("TERM"),
                    .locale = "",
                    .columns = variable("COLUMNS"),
                    .window = columns_of_stdout()};
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    terminal.locale = variable(name);
    if (!terminal.locale.empty()) break;
  }
  return terminal;
}

TextStyle style_of(const Terminal& terminal) {
  const std::string locale = lower_case(terminal.locale);
  const bool utf8 =
      locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  const bool colour = terminal.is_tty && !terminal.no_colour && terminal.term != "dumb";
  return {.colour = colour, .unicode = utf8, .width = width_of(terminal)};
}

std::string coloured(std::string_view text, Colour colour, const TextStyle& style) {
  // Indexed by Colour: select graphic rendition codes.
  constexpr std::array<std::string_view, 7> codes{"0", "1", "2", "32", "31", "33", "34"};
  if (!style.colour || colour == Colour::plain) return std::string(text);
  return "\x1b[" + std::string(codes.at(static_cast<std::size_t>(colour))) + "m" +
         std::string(text) + "\x1b[0m";
}

std::string bar(double fraction, std::size_t columns, const TextStyle& style) {
  constexpr std::array<std::string_view, 8> eighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double clamped = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const double length = clamped * static_cast<double>(columns);
  std::string out;
  if (!style.unicode) return std::string(static_cast<std::size_t>(std::lround(length)), '#');
  const auto steps = static_cast<std::size_t>(std::lround(length * 8));
  for (std::size_t i = 0; i < steps / 8; ++i) out += "█";
  return out + std::string(eighths.at(steps % 8));
}

}  // namespace mfsdp
