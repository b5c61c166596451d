// Every plan that comes with the tools is proved without an error.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/read_file.hpp"
#include "core/plan/job.hpp"
#include "tests/support/scenarios.hpp"
#include "verify/proof/job.hpp"

namespace mfsdp {
namespace {

/// Files of plans, by the schema that they name; bugs' files name plans and are none.
std::vector<std::filesystem::path> shipped_plans() {
  std::vector<std::filesystem::path> plans;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(test::kScenarios)) {
    if (entry.path().extension() != ".json") continue;
    const auto text = read_file(entry.path().string(), "a scenario", std::size_t{1} << 28);
    if (text && text->find("\"mfsdp.plan/") != std::string::npos) plans.push_back(entry.path());
  }
  return plans;
}

TEST(ShippedPlans, AreRight) {
  const auto plans = shipped_plans();
  EXPECT_GE(plans.size(), 4);
  for (const std::filesystem::path& path : plans) {
    const auto text = read_file(path.string(), "a plan", std::size_t{1} << 28);
    ASSERT_TRUE(text) << path;
    const auto job = job_from_json(*text, path.string());
    ASSERT_TRUE(job) << job.error().message();
    const auto proof = prove_job(*job);
    ASSERT_TRUE(proof) << proof.error().message();
    for (const Finding& finding : proof->findings)
      EXPECT_FALSE(is_error(finding.rule))
          << path << ": " << finding.rule << ": " << finding.message;
  }
}

}  // namespace
}  // namespace mfsdp
