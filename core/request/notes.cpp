#include "core/request/notes.hpp"

#include "core/cli/exit_code.hpp"

namespace mfsdp {

Notes notes_on(std::ostream& err, std::string_view tool) {
  return {.note = [&err, tool](const std::string& text) { report_note(err, text, tool); },
          .warn = [&err, tool](const std::string& text) { report_warning(err, text, tool); }};
}

}  // namespace mfsdp
