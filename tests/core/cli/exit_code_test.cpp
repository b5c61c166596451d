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

/// The printed message for an error.
std::string said(const std::string& what) {
  std::ostringstream err;
  EXPECT_EQ(report_error(err, {.where = "plan.json", .what = what}, "mfsdp-sim"), 2);
  return err.str();
}

TEST(ExitCode, AnErrorRepeatsNoMoreThanALineOfItsInput) {
  const std::string input(1'000'000, 'x');
  EXPECT_EQ(said("unknown key " + input + ", expected another"),
            "mfsdp-sim: plan.json: unknown key " + input.substr(0, 80) + "... expected another\n");
  const std::string path = "/" + input.substr(0, 250);
  EXPECT_EQ(said(path + "  is no folder"), "mfsdp-sim: plan.json: " + path + "  is no folder\n");
}

TEST(ExitCode, NoMessageIsLongerThanAScreen) {
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "some text ";
  const std::string text = said("begins: " + words + "and ends");
  EXPECT_LT(text.size(), 4100U);
  EXPECT_TRUE(text.starts_with("mfsdp-sim: plan.json: begins: some text"));
  EXPECT_TRUE(text.ends_with("some text and ends\n"));
}

}  // namespace
}  // namespace mfsdp
