#include "core/cli/exit_code.hpp"

#include <fmt/format.h>

#include <ostream>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"

namespace mfsdp {
namespace {

/// Bytes of a line that says anything: whatever an error quotes of its input, no more than a
/// screen.
constexpr std::size_t kLongestLine = 4000;

/// In one piece: other processes write to the same place.
void write_line(std::ostream& err, std::string_view tool, std::string_view kind,
                std::string_view text) {
  const std::string shown = printable(text.substr(0, kLongestLine));
  const std::string_view rest = text.size() > kLongestLine ? " ..." : "";
  err << fmt::format("{}: {}{}{}\n", tool, kind, shown, rest);
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
