#include "verify/checker/check_certificate.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/plan/plan_json.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/tiny_program.hpp"
#include "verify/proof/certificate.hpp"

namespace mfsdp {
namespace {

TEST(CheckCertificate, AcceptsTheTinyProgram) {
  const Program program = test::tiny_program();
  const auto certificate = certificate_of(program);
  ASSERT_TRUE(certificate) << certificate.error().message();
  const auto checked = check_certificate(to_canonical_json(program), *certificate);
  ASSERT_TRUE(checked) << checked.error().message();
  EXPECT_EQ(checked->hash, plan_hash(program));
  EXPECT_EQ(checked->instances, 20);  // 10 ops in two steps
}

RC_GTEST_PROP(CheckCertificate, AcceptsPlannerPlans, ()) {
  const auto program = build_program(*test::any_config(), {});
  RC_ASSERT(program.has_value());
  const auto certificate = certificate_of(*program);
  RC_ASSERT(certificate.has_value());
  const auto checked = check_certificate(to_canonical_json(*program), *certificate);
  if (!checked) RC_FAIL(checked.error().message());
}

}  // namespace
}  // namespace mfsdp
