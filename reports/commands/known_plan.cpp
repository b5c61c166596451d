#include "reports/commands/known_plan.hpp"

#include <utility>

#include "core/plan/config.hpp"
#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"

namespace mfsdp {

std::shared_ptr<const Program> KnownPlans::of(const RunHead& run) {
  const auto known = programs_.find(run.plan_hash);
  if (known != programs_.end()) return known->second;
  std::shared_ptr<const Program>& place = programs_[run.plan_hash];
  if (run.plan_hash.empty() || !validate(run.config)) return nullptr;
  auto built = build_program(
      run.config, {.model_name = run.model_name, .tool_version = "", .stored_hash = ""}, &cache_);
  if (built && plan_hash(*built) == run.plan_hash)
    place = std::make_shared<const Program>(std::move(*built));
  return place;
}

}  // namespace mfsdp
