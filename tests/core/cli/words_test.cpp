#include "core/cli/words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<FlagGroup> some_flags() {
  const auto apply = [](const std::string&) -> Result<void> { return {}; };
  return {{.title = "",
           .flags = {{.name = "--db", .value = "FILE", .help = "", .apply = apply},
                     {.name = "--yes", .value = "", .help = "", .apply = apply},
                     {.name = "--kineto",
                      .value = "FILE...",
                      .help = "",
                      .apply = apply,
                      .takes_several = true}}}};
}

TEST(Words, AreToldFromFlagsAndTheirValues) {
  const auto parts = split_words(some_flags(), {"a", "--db", "b", "c", "--yes", "d", "--db=e"});
  EXPECT_THAT(parts.words, ElementsAre("a", "c", "d"));
  EXPECT_THAT(parts.flags, ElementsAre("--db", "b", "--yes", "--db=e"));
}

TEST(Words, AListTakesAllUpToTheNextFlag) {
  const auto parts = split_words(some_flags(), {"--kineto", "a", "b", "--yes", "c"});
  EXPECT_THAT(parts.words, ElementsAre("c"));
  EXPECT_THAT(parts.flags, ElementsAre("--kineto", "a", "b", "--yes"));
}

TEST(Words, UnknownFlagsStayWithTheFlags) {
  const auto parts = split_words(some_flags(), {"-h", "--modle", "x", "-"});
  EXPECT_THAT(parts.flags, ElementsAre("-h", "--modle"));
  EXPECT_THAT(parts.words, ElementsAre("x", "-"));
  EXPECT_THAT(split_words(some_flags(), {"--db"}).flags, ElementsAre("--db"));
  EXPECT_THAT(split_words(some_flags(), {"--db", "--yes"}).words, IsEmpty());
}

}  // namespace
}  // namespace mfsdp
