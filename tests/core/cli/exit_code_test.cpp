#include "core/cli/exit_code.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace mfsdp {
namespace {

TEST(ExitCode, FaultDecides) {
  std::ostringstream err;
  EXPECT_EQ(report_error(err, {.where = "--gpus", .what = "is wrong"}, "mfsdp-sim"), 2);
  EXPECT_EQ(report_error(err, {.where = "", .what = "disk full", .fault = Fault::environment},
                         "mfsdp-sim"),
            3);
  EXPECT_EQ(err.str(), "mfsdp-sim: --gpus: is wrong\nmfsdp-sim: disk full\n");
}

TEST(ExitCode, MessagesAreOneLine) {
  std::ostringstream err;
  report_warning(err, "no store in 'a\nb'", "mfsdp-sim");
  EXPECT_EQ(err.str(), "mfsdp-sim: warning: no store in 'a\\nb'\n");
}

TEST(ExitCode, NoMessageIsLongerThanAScreen) {
  std::ostringstream err;
  const std::string input(1'000'000, 'x');
  EXPECT_EQ(report_error(err, {.where = "plan.json", .what = "unknown key " + input}, "mfsdp-sim"),
            2);
  EXPECT_LT(err.str().size(), 4100U);
  EXPECT_TRUE(err.str().ends_with("xxx ...\n"));
}

}  // namespace
}  // namespace mfsdp
