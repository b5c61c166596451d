#include "verify/tool/print_findings.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/cli/help.hpp"
#include "core/cli/wrap.hpp"

namespace mfsdp {

std::string redundant_waits_text(std::int64_t waits) {
  return fmt::format("{} waits are redundant: the same order follows without them\n", waits);
}

ExitCode print_findings(std::span<const Finding> findings, FindingsFormat format,
                        const std::string& subject, const Session& session,
                        std::vector<Figure> figures, std::vector<NotJudged> not_judged) {
  const FindingsOf of{.subject = subject,
                      .tool = std::string(session.tool),
                      .version = std::string(version()),
                      .figures = std::move(figures),
                      .not_judged = std::move(not_judged)};
  switch (format) {
    case FindingsFormat::text:
      session.out << wrap_text(render_findings_text(findings, session.style.width) +
                                   render_not_judged_text(of.not_judged),
                               session.style);
      break;
    case FindingsFormat::json: session.out << render_findings_json(findings, of); break;
    case FindingsFormat::md: session.out << render_findings_markdown(findings, of); break;
    case FindingsFormat::sarif: session.out << render_findings_sarif(findings, of); break;
  }
  const bool good = of.not_judged.empty() && !has_errors(findings);
  return good ? ExitCode::good : ExitCode::negative;
}

}  // namespace mfsdp
