// How every judgement of mfsdp-verify ends: its findings on session.out, and what they come to.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "verify/findings/render_findings.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// Of a plan whose values no model says (Proof::of_model).
inline constexpr std::string_view kOtherModel =
    "its units are not those of config.model: that what is read was written is proved, and not "
    "what "
    "is computed\n";
/// Of a plan (Proof::only_structure): the rest of its line.
inline constexpr std::string_view kOnlyStructure =
    "only the structure was checked: nothing was proved\n";

/// `negative` where one of the findings is an error, or a rule was not judged. `subject` was
/// judged; `figures` were found.
[[nodiscard]] ExitCode print_findings(std::span<const Finding> findings, FindingsFormat format,
                                      const std::string& subject, const Session& session,
                                      std::vector<Figure> figures = {},
                                      std::vector<NotJudged> not_judged = {});

}  // namespace mfsdp
