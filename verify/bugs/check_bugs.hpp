// The bug corpus: real bugs as edits of plans, and whether the proofs find them.
//
// Every row has a correct plan and one with the bug. The proofs must find nothing in the first, and
// exactly the row's rules in the second.
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
  std::vector<std::string> broken;    ///< rules that fired: errors, and the expected notes
  std::vector<std::string> fixed;     ///< errors in the plan without the bug; must be empty
  std::vector<Finding> findings;      ///< in the broken plan, the first one of each rule
  bool good = false;                  ///< `broken` equals `expected`, and `fixed` is empty
};

/// Judges every NN-name.json of a folder, by row. Errors: no rows, a malformed row, two rows of one
/// number, an id whose name has changed. They name file and place.
[[nodiscard]] Result<std::vector<BugVerdict>> check_bugs(const BugFolders& folders);

}  // namespace mfsdp::bugs
