// The corpus of bugs that comes with the tools.
#pragma once

#include "tests/support/scenarios.hpp"
#include "verify/bugs/base_plan.hpp"

namespace mfsdp::test {

inline const bugs::BugFolders kBugFolders{.rows = kScenarios / "bugs", .scenarios = kScenarios};

}  // namespace mfsdp::test
