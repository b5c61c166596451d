#include "core/plan/plan.hpp"

namespace mfsdp {

const Plan* Program::find_plan(std::string_view name) const {
  for (const Plan& plan : plans)
    if (plan.name == name) return &plan;
  return nullptr;
}

}  // namespace mfsdp
