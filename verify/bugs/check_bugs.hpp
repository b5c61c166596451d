// The bug corpus: bugs that happened, as edits of plans, and whether the proofs see them.
//
// Every row has a plan that is right and one with the bug. The proofs must find nothing in the
// first, and in the second exactly what the row says.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "verify/bugs/base_plan.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp::bugs {

struct BugVerdict {
  std::int64_t row = 0;  ///< of the catalogue
  std::string file;
  std::string title;
  std::string thread;
  std::string bug;
  std::vector<std::string> expected;  ///< rules and notes that must fire, ascending
  std::vector<std::string> broken;    ///< that fired: errors, and the expected notes
  std::vector<std::string> fixed;     ///< errors that the plan without the bug has: none
  std::vector<Finding> findings;      ///< in the broken plan, the first one of each rule
  bool good = false;                  ///< broken is expected, and fixed is clean
};

/// Judges every NN-name.json of a folder, by row. Errors: no rows, a malformed row, two of one
/// number, ids whose names are others by now; each names file and place.
[[nodiscard]] Result<std::vector<BugVerdict>> check_bugs(const BugFolders& folders);

}  // namespace mfsdp::bugs
