#include "core/cli/progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <thread>

namespace mfsdp {
namespace {

using ::testing::EndsWith;

constexpr std::string_view kCleanLine = "\r\x1b[K";

TEST(Progress, EndsWithACleanLineAndStaysSilent) {
  std::ostringstream err;
  Progress progress(err, "steps", 9, true);
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  progress.at(4);
  EXPECT_THAT(err.str(), EndsWith("4 of 9 steps"));
  progress.end();
  EXPECT_THAT(err.str(), EndsWith(kCleanLine));
  const std::string ended = err.str();
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  progress.at(5);
  progress.end();
  EXPECT_EQ(err.str(), ended);
}

TEST(Progress, SaysNothingWhereThereIsNoTerminal) {
  std::ostringstream err;
  {
    Progress progress(err, "steps", 9, false);
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
    progress.at(4);
  }
  EXPECT_EQ(err.str(), "");
}

}  // namespace
}  // namespace mfsdp
