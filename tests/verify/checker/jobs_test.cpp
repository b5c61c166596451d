// The certificates of pipelines: the checker accepts those that are shipped. It reads passes,
// instances, lags and peers from the plan's JSON.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/plan/instances.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/pipeline.hpp"
#include "tests/support/sealed.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

class ShippedPipelines : public testing::TestWithParam<const char*> {};

TEST_P(ShippedPipelines, AreCertified) {
  const Job job = test::pipeline(GetParam());
  const auto certificate = certificate_of(job);
  ASSERT_TRUE(certificate) << certificate.error().message();
  const auto checked = check_certificate(to_canonical_json(job), *certificate);
  ASSERT_TRUE(checked) << checked.error().message();
  EXPECT_EQ(checked->hash, plan_hash(job));
  EXPECT_GT(checked->orderings, 100);
  EXPECT_GT(checked->gradients, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ShippedPipelines,
                         testing::Values("1f1b_2x4.json", "1f1b_2x4_dp2.json", "1f1b_4x8.json",
                                         "interleaved_2x2x4.json", "zero_bubble_2x4.json"));

/// Two steps of all ops with their repetitions, and once more in each for what the host does at a
/// port: tokens at both stages, step blocks, and the report.
TEST(JobCertificates, CoverAllRepetitions) {
  const Job job = test::pipeline();
  std::int64_t runs = 0;
  for (const Program& program : job.programs)
    for_each_instance(program.plans[0], {.steps = 2}, [&](const OpRun&, const Op&) { ++runs; });
  const std::int64_t host_work = 2 * (2 * 4 + 2 + 1);
  EXPECT_EQ(test::checked(job)->instances, runs + host_work);
}

/// Plans of one class may call passes, too. Here each segment is one.
TEST(JobCertificates, PlansOfOneClassMayHavePasses) {
  Program program = build_program(test::small_config(2), {}).value();
  ASSERT_EQ(test::checker_refusal(program), "");
  for (Plan& plan : program.plans)
    for (Segment& segment : plan.segments) {
      const PassId id(static_cast<std::uint32_t>(plan.passes.size()));
      plan.passes.push_back({.id = id, .name = segment.name, .ops = segment.ops});
      segment.ops.clear();
      segment.calls.push_back({.pass = id});
    }
  EXPECT_EQ(test::checker_refusal(program), "");
}

/// A plan whose name is another than its role states the role, in all classes the same.
TEST(JobCertificates, PlansMayStateTheirRole) {
  Job job = test::pipeline();
  for (Program& program : job.programs) {
    program.plans[0].name = "fit";
    program.plans[0].stated_role = PlanRole::train;
  }
  EXPECT_EQ(test::checker_refusal(job), "");
  job.programs[1].plans[0].stated_role.reset();
  EXPECT_THAT(test::checker_refusal(job), HasSubstr("neither train nor eval nor logprob"));
  job.programs[1].plans[0].stated_role = PlanRole::eval;
  EXPECT_NE(test::checker_refusal(job), "");
}

/// A claim of one class that another class could make is refused.
TEST(JobCertificates, AreOfTheirClasses) {
  const Job job = test::pipeline();
  nlohmann::json certificate = nlohmann::json::parse(unproved_certificate(job).value());
  std::swap(certificate["claims"]["classes"][0], certificate["claims"]["classes"][1]);
  EXPECT_FALSE(check_certificate(to_canonical_json(job), test::sealed(certificate)));
  certificate["claims"]["classes"].erase(1);
  EXPECT_FALSE(check_certificate(to_canonical_json(job), test::sealed(certificate)));
  certificate["claims"]["plans"] = certificate["claims"]["classes"][0]["plans"];
  certificate["claims"].erase("classes");
  EXPECT_FALSE(check_certificate(to_canonical_json(job), test::sealed(certificate)));
}

}  // namespace
}  // namespace mfsdp
