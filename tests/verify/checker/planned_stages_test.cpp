// Pipelines that the planner makes are proved, and the checker accepts their certificates.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/random_configurations.hpp"
#include "verify/proof/job.hpp"

namespace mfsdp {
namespace {

/// The first error of a job, of its structure or of its proof.
std::string first_job_error(const Job& job) {
  if (const auto sound = check_structure(job); !sound) return sound.error().message();
  const auto proof = prove_job(job);
  if (!proof) return proof.error().message();
  for (const Finding& finding : proof->findings)
    if (is_error(finding.rule)) return finding.rule + ": " + finding.message;
  return "";
}

RC_GTEST_PROP(PlannedStages, AllPlansAreClean, ()) {
  const PlanConfig config = test::over_stages(*test::any_config());
  const auto job = build_job(config, {});
  if (!job) RC_FAIL(job.error().message());
  RC_ASSERT(first_job_error(*job) == "");
  RC_ASSERT(test::checker_refusal(*job) == "");
}

}  // namespace
}  // namespace mfsdp
