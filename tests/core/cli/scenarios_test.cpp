#include "core/cli/scenarios.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

class Scenarios : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(root_);
    for (const char* place : {"env", "install/share/mfsdp/scenarios", "source"})
      fs::create_directories(root_ / place / "models");
    fs::create_directories(root_ / "install/bin");
    fs::create_directories(root_ / "empty");
    places_ = {
        .environment = "", .executable_dir = root_ / "install/bin", .source_dir = root_ / "source"};
  }
  void TearDown() override { fs::remove_all(root_); }

  fs::path root_;
  ScenarioPlaces places_;
};

TEST_F(Scenarios, EnvironmentThenInstallationThenSource) {
  EXPECT_EQ(*find_scenarios(places_), root_ / "install/share/mfsdp/scenarios");
  places_.executable_dir = root_ / "empty";
  EXPECT_EQ(*find_scenarios(places_), root_ / "source");
  places_.environment = (root_ / "env").string();
  EXPECT_EQ(*find_scenarios(places_), root_ / "env");
}

TEST_F(Scenarios, AWrongEnvironmentIsNotIgnored) {
  places_.environment = (root_ / "empty").string();
  const auto found = find_scenarios(places_);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().where, "MFSDP_SCENARIOS");
  EXPECT_EQ(found.error().fault, Fault::environment);
}

TEST_F(Scenarios, TheErrorNamesThePlaces) {
  places_.executable_dir = root_ / "empty/bin";
  places_.source_dir = root_ / "empty/source";
  const auto found = find_scenarios(places_);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().fault, Fault::environment);
  EXPECT_EQ(found.error().what, "not found in " + (root_ / "empty/share/mfsdp/scenarios").string() +
                                    " and " + (root_ / "empty/source").string() +
                                    "; set MFSDP_SCENARIOS to their folder");
}

}  // namespace
}  // namespace mfsdp
