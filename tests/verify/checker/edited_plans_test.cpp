// Plans that were edited at random, with all that can truly be claimed for them: the checker
// accepts what proves clean and refuses what the proofs find, where it re-checks it. The two share
// no code.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/random_configurations.hpp"
#include "tests/support/random_edits.hpp"
#include "tests/support/samples.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {
namespace {

using test::Edit;

/// Whether an accepted certificate rules out findings of that rule.
bool is_covered(const std::string& rule) {
  return std::ranges::any_of(coverage(), [&](const Coverage& row) {
    return row.covered && row.rules.find(rule) != std::string_view::npos;
  });
}

RC_GTEST_PROP(EditedPlans, AreRefusedWhereTheProofsFindThemWrong, ()) {
  const auto built = build_program(*test::any_config(), {});
  RC_ASSERT(built.has_value());
  for (int i = 0; i < test::cases(4); ++i) {
    Program program = *built;
    if (*rc::gen::inRange(0, 3) == 0) test::edit_rightly(program);
    const Edit edited = test::edit(program);
    const bool twice = edited == Edit::twice;
    const auto proof = prove(program);
    if (!proof) continue;
    std::set<std::string> errors;
    for (const Finding& finding : proof->findings)
      if (is_error(finding.rule)) errors.insert(finding.rule);
    // A kernel that runs twice counts as two uses there, or as tokens of two microbatches; here it
    // is one step of the model, whose values are made again.
    if (twice)
      for (const char* rule : {"MF301", "MF307", "MF312"}) errors.erase(rule);
    if (errors.empty() && twice) continue;
    // Queries and keys may be rotated before or after an adapter has added to the values: the
    // checker knows these columns as one value, and takes the planner's order alone.
    const bool commutes = edited == Edit::rotation && program.config.lora_rank > 0;
    if (errors.empty() && commutes) continue;
    if (!errors.empty() && *errors.begin() <= "MF005") continue;  // no plan at all
    const auto checked = test::checked(program);
    const bool wrong = std::ranges::any_of(errors, is_covered);
    if (errors.empty() && !checked) RC_FAIL(checked.error().message());
    if (wrong && checked)
      RC_FAIL("accepts " + *errors.begin() + ": " +
              std::ranges::find(proof->findings, *errors.begin(), &Finding::rule)->message);
  }
}

/// Prover and checker accept plans that are correct in another way.
RC_GTEST_PROP(EditedPlans, AreAcceptedWhereTheyAreRightInAnotherWay, ()) {
  const auto built = build_program(*test::any_config(), {});
  RC_ASSERT(built.has_value());
  for (int i = 0; i < test::cases(1); ++i) {
    Program program = *built;
    if (!test::edit_rightly(program)) continue;
    const auto proof = prove(program);
    RC_ASSERT(proof.has_value());
    for (const Finding& finding : proof->findings)
      if (is_error(finding.rule)) RC_FAIL(finding.rule + ": " + finding.message);
    const auto checked = test::checked(program);
    if (!checked) RC_FAIL(checked.error().message());
  }
}

}  // namespace
}  // namespace mfsdp
