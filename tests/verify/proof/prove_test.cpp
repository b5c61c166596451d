#include "verify/proof/prove.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <iostream>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

TEST(Prove, TinyProgramIsClean) {
  const auto proof = prove(test::tiny_program());
  ASSERT_TRUE(proof.has_value());
  for (const Finding& f : proof->findings) std::cerr << f.rule << " " << f.message << "\n";
}

RC_GTEST_PROP(Prove, PlannerPlansAreClean, ()) {
  const PlanConfig config = *test::any_config();
  const auto program = build_program(config, {});
  RC_ASSERT(program.has_value());
  const auto proof = prove(*program);
  RC_ASSERT(proof.has_value());
  for (const Finding& f : proof->findings) {
    if (f.rule != "MF604") RC_FAIL(f.rule + " " + f.message);
    RC_CLASSIFY(true, f.places.front().name);
  }
}

}  // namespace
}  // namespace mfsdp
