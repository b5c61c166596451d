#include "verify/bugs/base_plan.hpp"

#include <fmt/format.h>

#include "core/base/read_file.hpp"
#include "core/cli/common_options.hpp"
#include "core/cli/plan_options.hpp"
#include "core/model/hf_config.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"

namespace mfsdp::bugs {
namespace {

constexpr std::size_t kMostPlanBytes = std::size_t{64} << 20;

Result<void> check_given(const std::vector<FlagGroup>& groups,
                         const std::vector<std::string>& given) {
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags)
      if (!flag.shapes_plan && contains(given, flag.name))
        return fail(flag.name, "expected flags that shape a plan");
  return {};
}

Result<Program> build_base(const std::vector<std::string>& flags,
                           const std::filesystem::path& models) {
  CommonOptions options;
  const std::vector<FlagGroup> groups = common_flags(options);
  MFSDP_LET(given, parse_flags(groups, flags));
  MFSDP_TRY(check_given(groups, given));
  MFSDP_LET(model, load_model(options.model, models));
  MFSDP_LET(config, make_plan_config(options, model.shape));
  return build_program(config, {});
}

}  // namespace

Result<Program> load_base(const BasePlan& base, const BugFolders& folders,
                          const std::string& where) {
  if (base.plan) {
    const std::filesystem::path path = folders.rows / *base.plan;
    MFSDP_LET(text, read_file(path, "a plan", kMostPlanBytes));
    return program_from_json(text, path.string());
  }
  auto built = build_base(base.flags, folders.models);
  if (!built)
    return fail(fmt::format("{}.flags: {}", where, built.error().where), built.error().what);
  return built;
}

}  // namespace mfsdp::bugs
