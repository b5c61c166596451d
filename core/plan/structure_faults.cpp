#include "core/plan/structure_faults.hpp"

#include <utility>

#include "core/plan/structure_state.hpp"

namespace mfsdp {

std::vector<StructureFault> structure_faults(const Program& program, std::size_t most) {
  structure::State state{.program = program, .most = most};
  check_lists(state);
  for (state.plan = 0; state.plan < program.plans.size(); ++state.plan)
    check_plan(state, program.plans[state.plan]);
  return std::move(state.faults);
}

}  // namespace mfsdp
