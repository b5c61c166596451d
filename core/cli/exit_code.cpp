#include "core/cli/exit_code.hpp"

#include <ostream>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"

namespace mfsdp {

ExitCode exit_code_of(const Error& error) {
  return error.fault == Fault::input ? ExitCode::input : ExitCode::environment;
}

int report_error(std::ostream& err, const Error& error, std::string_view tool) {
  err << tool << ": " << printable(error.message()) << '\n';
  return static_cast<int>(exit_code_of(error));
}

void report_note(std::ostream& err, std::string_view text, std::string_view tool) {
  err << tool << ": note: " << printable(text) << '\n';
}

void report_warning(std::ostream& err, std::string_view text, std::string_view tool) {
  err << tool << ": warning: " << printable(text) << '\n';
}

}  // namespace mfsdp
