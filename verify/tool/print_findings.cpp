#include "verify/tool/print_findings.hpp"

#include <utility>

#include "core/cli/help.hpp"
#include "core/cli/wrap.hpp"

namespace mfsdp {

ExitCode print_findings(std::span<const Finding> findings, FindingsFormat format,
                        const std::string& subject, const Session& session,
                        std::vector<Figure> figures) {
  const FindingsOf of{.subject = subject,
                      .tool = std::string(session.tool),
                      .version = std::string(version()),
                      .figures = std::move(figures)};
  switch (format) {
    case FindingsFormat::text:
      session.out << wrap_text(render_findings_text(findings, session.style.width), session.style);
      break;
    case FindingsFormat::json: session.out << render_findings_json(findings, of); break;
    case FindingsFormat::md: session.out << render_findings_markdown(findings, of); break;
    case FindingsFormat::sarif: session.out << render_findings_sarif(findings, of); break;
  }
  return has_errors(findings) ? ExitCode::negative : ExitCode::good;
}

}  // namespace mfsdp
