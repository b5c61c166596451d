#include "core/cli/exit_code.hpp"

#include <fmt/format.h>

#include <ostream>
#include <string>

#include "core/base/excerpt.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"

namespace mfsdp {
namespace {

/// Bytes of a word, such as a path, that is shown whole.
constexpr std::size_t kLongestWord = 300;
/// Bytes of a message, and those of its end that stay where it is longer.
constexpr std::size_t kLongestMessage = 4000;
constexpr std::size_t kLongestEnd = 500;

/// On one printable line, however much of its input an error repeats: longer words are cut to an
/// excerpt, a longer message loses its middle.
std::string shortened(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    line += word.size() > kLongestWord ? excerpt(word) : printable(word);
    text.remove_prefix(word.size());
    const std::string_view blanks = text.substr(0, text.find_first_not_of(' '));
    line += blanks;
    text.remove_prefix(blanks.size());
  }
  if (line.size() <= kLongestMessage) return line;
  const std::string_view whole = line;
  return printable(whole.substr(0, kLongestMessage - kLongestEnd)) + " ... " +
         printable(whole.substr(whole.size() - kLongestEnd));
}

/// In one piece: other processes write to the same place.
void write_line(std::ostream& err, std::string_view tool, std::string_view kind,
                std::string_view text) {
  err << fmt::format("{}: {}{}\n", tool, kind, shortened(text));
}

}  // namespace

ExitCode exit_code_of(const Error& error) {
  return error.fault == Fault::input ? ExitCode::input : ExitCode::environment;
}

int report_error(std::ostream& err, const Error& error, std::string_view tool) {
  write_line(err, tool, "", error.message());
  for (const Error& other : error.also) write_line(err, tool, "", other.message());
  return static_cast<int>(exit_code_of(error));
}

void report_note(std::ostream& err, std::string_view text, std::string_view tool) {
  write_line(err, tool, "note: ", text);
}

void report_warning(std::ostream& err, std::string_view text, std::string_view tool) {
  write_line(err, tool, "warning: ", text);
}

}  // namespace mfsdp
