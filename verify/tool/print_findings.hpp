// How every judgement of mfsdp-verify ends: its findings on session.out, and what they come to.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/cli/exit_code.hpp"
#include "core/cli/verify_options.hpp"
#include "reports/tool/session.hpp"
#include "verify/findings/render_findings.hpp"

namespace mfsdp {

/// `negative` where one of the findings is an error. `subject` was judged; `figures` were found.
[[nodiscard]] ExitCode print_findings(std::span<const Finding> findings, FindingsFormat format,
                                      const std::string& subject, const Session& session,
                                      std::vector<Figure> figures = {});

}  // namespace mfsdp
