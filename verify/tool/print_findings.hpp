// Prints the findings of a judgement of mfsdp-verify, and derives the exit code.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cli/exit_code.hpp"
#include "reports/session/session.hpp"
#include "verify/findings/render_findings.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// Printed if config.model does not describe the plan's values (Proof::of_model).
inline constexpr std::string_view kOtherModel =
    "its units are not those of config.model: it is proved that all reads follow their writes, but "
    "not which values are computed\n";
/// Rest of the line about a plan of which only the structure was checked (Proof::only_structure).
inline constexpr std::string_view kOnlyStructure =
    "only the structure was checked: nothing was proved\n";

/// One line of the text about the waits that a proof found redundant.
[[nodiscard]] std::string redundant_waits_text(std::int64_t waits);

/// Returns `negative` if one of the findings is an error, or if a rule was not judged. `subject` is
/// what was judged; `figures` are its statistics.
[[nodiscard]] ExitCode print_findings(std::span<const Finding> findings, FindingsFormat format,
                                      const std::string& subject, const Session& session,
                                      std::vector<Figure> figures = {},
                                      std::vector<NotJudged> not_judged = {});

}  // namespace mfsdp
