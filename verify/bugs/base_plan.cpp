#include "verify/bugs/base_plan.hpp"

#include <fmt/format.h>

#include "core/cli/common_options.hpp"
#include "core/request/plan_file.hpp"
#include "core/request/plan_request.hpp"

namespace mfsdp::bugs {
namespace {

Result<void> check_given(const std::vector<FlagGroup>& groups,
                         const std::vector<std::string>& given) {
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags)
      if (!flag.shapes_plan && contains(given, flag.name))
        return fail(flag.name, "expected flags that shape a plan");
  return {};
}

/// Prints no notes about models or plans.
Result<Program> program_of(const CommonOptions& options, const BugFolders& folders) {
  MFSDP_LET(program, PlanRequests(folders.scenarios).program(options, {}));
  return *program;
}

Result<Program> build_base(const std::vector<std::string>& flags, const BugFolders& folders) {
  CommonOptions options;
  const std::vector<FlagGroup> groups = common_flags(options);
  MFSDP_LET(given, parse_flags(groups, flags));
  MFSDP_TRY(check_given(groups, given));
  return program_of(options, folders);
}

}  // namespace

Result<Job> load_base(const BasePlan& base, const BugFolders& folders, const std::string& where) {
  if (base.plan) return load_job((folders.rows / *base.plan).string(), {});
  auto built = build_base(base.flags, folders);
  if (!built)
    return fail(fmt::format("{}.flags: {}", where, built.error().where), built.error().what);
  return Job{.programs = {*std::move(built)}};
}

}  // namespace mfsdp::bugs
