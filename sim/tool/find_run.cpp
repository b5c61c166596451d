#include "sim/tool/find_run.hpp"

#include "core/cli/path_check.hpp"
#include "sim/tool/find_best.hpp"
#include "sim/tool/find_limit.hpp"

namespace mfsdp {

Result<ExitCode> run_find(const SweptArguments& swept, const SimOptions& options,
                          const Session& session) {
  MFSDP_TRY(check_several(options, "--find"));
  MFSDP_TRY(check_paths(options.common, session.scenarios,
                        {.read = {}, .written = {{"--tune-out", options.tune_out}}}));
  return chooses(*options.find) ? find_best(swept, options, session)
                                : find_limits(swept, options, session);
}

}  // namespace mfsdp
