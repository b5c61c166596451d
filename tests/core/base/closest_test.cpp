#include "core/base/closest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp {
namespace {

TEST(Closest, DistanceCountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);  // k->s, e->i, +g
  EXPECT_EQ(edit_distance("modle", "model"), 1u);     // one swap
  EXPECT_EQ(edit_distance("seq_len", "SEQ-LEN"), 0u);
}

TEST(Closest, PrefersWhatTheWordAbbreviates) {
  // "--gpu-" is one edit from "--gpus", but it begins "--gpu-name".
  EXPECT_EQ(closest_to("--gpu-", {"--gpus", "--gpu-name", "--gpu"}), "--gpu-name");
  EXPECT_EQ(closest_to("--g", {"--gpus", "--gpu", "--grad"}), "--gpu");
  EXPECT_EQ(closest_to("--modle", {"--gpus", "--model"}), "--model");
  EXPECT_EQ(closest_to("x", {}), "");
}

TEST(Closest, NamesComeInTheOrderOfTheirLikelihood) {
  // "qwen3" begins the last two, the shorter first; "qwen" is one letter away, "llama" more.
  EXPECT_THAT(closest_names("qwen3", {"llama", "qwen", "Qwen3-32b", "qwen3_8b"}, 3),
              testing::ElementsAre("qwen3_8b", "Qwen3-32b", "qwen"));
  EXPECT_THAT(closest_names("x", {"b", "a"}, 3), testing::ElementsAre("b", "a"));  // equals
  EXPECT_THAT(closest_names("x", {"b", "a"}, 0), testing::IsEmpty());
}

TEST(Closest, HugeWordsAreCheap) {
  EXPECT_EQ(closest_to(std::string(1'000'000, 'q'), {"--gpus", "--db"}), "--gpus");
}

}  // namespace
}  // namespace mfsdp
