#include "verify/traces/shell_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp::traces {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ShellWords, SplitsLikeAShell) {
  EXPECT_THAT(shell_words("a  b\tc\nd"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(shell_words("torchrun x.py \\\n  --flag 1 # --not\n--next"),
              ElementsAre("torchrun", "x.py", "--flag", "1", "--next"));
  EXPECT_THAT(shell_words("A='b c' \"d \\\"e\\\"\" f\\ g h#i"),
              ElementsAre("A=b c", "d \"e\"", "f g", "h#i"));
  EXPECT_THAT(shell_words("ARGS=(--x 1); run & | y"), ElementsAre("ARGS=", "--x", "1", "run", "y"));
  EXPECT_THAT(shell_words("''"), ElementsAre(""));
  EXPECT_THAT(shell_words(" # nothing"), IsEmpty());
  EXPECT_THAT(shell_words("'open"), ElementsAre("open"));
  EXPECT_THAT(shell_words("end\\"), ElementsAre("end"));
}

}  // namespace
}  // namespace mfsdp::traces
