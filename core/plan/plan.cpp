#include "core/plan/plan.hpp"

namespace mfsdp {

std::int64_t PlacedParameter::elements() const { return product_of(shape); }

std::int64_t Group::used_elements() const {
  std::int64_t used = 0;
  for (const PlacedParameter& parameter : parameters)
    used = checked_add(used, parameter.elements());
  return used;
}

std::optional<PlanRole> Plan::role() const {
  return stated_role ? stated_role : parse<PlanRole>(name);
}

const Plan* Program::find_plan(std::string_view name) const {
  for (const Plan& plan : plans)
    if (plan.name == name) return &plan;
  return nullptr;
}

const Plan* Program::find_plan(PlanRole role) const {
  for (const Plan& plan : plans)
    if (plan.role() == role) return &plan;
  return nullptr;
}

}  // namespace mfsdp
