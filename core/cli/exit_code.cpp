#include "core/cli/exit_code.hpp"

#include <fmt/format.h>

#include <ostream>
#include <string>

#include "core/base/excerpt.hpp"
#include "core/base/text.hpp"

namespace mfsdp {
namespace {

/// Longest word in bytes, such as a path, that is not shortened.
constexpr std::size_t kLongestWord = 300;
/// Longest message in bytes, and the bytes that are kept from the end of a longer one.
constexpr std::size_t kLongestMessage = 4000;
constexpr std::size_t kLongestEnd = 500;

/// One printable line, even if an error repeats much of its input: long words become an excerpt,
/// and a long message loses its middle.
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

/// One write, because other processes write to the same file.
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
