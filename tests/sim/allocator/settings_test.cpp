#include "sim/allocator/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp {
namespace {

using testing::Each;
using testing::HasSubstr;

std::string settings_error(const std::string& text) {
  const auto settings = parse_allocator_settings(text, "--alloc-conf");
  return settings ? "" : settings.error().message();
}

TEST(AllocatorSettings, AsPyTorchReadsThem) {
  const auto settings = parse_allocator_settings(
      "max_split_size_mb:128, garbage_collection_threshold:0.8,expandable_segments:True,"
      "pinned_num_register_threads:4,backend:native,roundup_power2_divisions:[2:8,8:4,>:1]",
      "x");
  ASSERT_TRUE(settings) << settings.error().message();
  EXPECT_EQ(settings->max_split_size, 128 * AllocatorSettings::kMebibyte);
  EXPECT_EQ(settings->garbage_collection_threshold, 0.8);
  EXPECT_TRUE(settings->expandable_segments);
  const auto& divisions = settings->power2_divisions;
  EXPECT_THAT((std::vector(divisions.begin(), divisions.begin() + 5)),
              testing::ElementsAre(8, 8, 4, 4, 1));
  EXPECT_EQ(divisions.back(), 1);
  EXPECT_THAT(parse_allocator_settings("roundup_power2_divisions:16", "x")->power2_divisions,
              Each(16));
  EXPECT_FALSE(parse_allocator_settings("", "x")->expandable_segments);
}

TEST(AllocatorSettings, ErrorsNameTheSetting) {
  EXPECT_EQ(settings_error("max_split_size_mb:20"),
            "--alloc-conf: max_split_size_mb: expected 21 to 1073741824 MiB, got 20");
  EXPECT_EQ(settings_error("max_split_size_mb:99999999999999999999"),
            "--alloc-conf: max_split_size_mb: expected 21 to 1073741824 MiB, got "
            "99999999999999999999");
  EXPECT_THAT(settings_error("garbage_collection_threshold:1"), HasSubstr("between 0 and 1"));
  EXPECT_THAT(settings_error("expandable_segments:yes"),
              HasSubstr("expected True or False, got yes"));
  EXPECT_THAT(settings_error("backend:cudaMallocAsync"), HasSubstr("expected native"));
  EXPECT_THAT(settings_error("roundup_power2_divisions:3"), HasSubstr("power of two, got 3"));
  EXPECT_THAT(settings_error("roundup_power2_divisions:[256:1"),
              HasSubstr("expected a list in [ and ]"));
  EXPECT_THAT(settings_error("roundup_power2_divisions:[256]"), HasSubstr("expected MiB:N"));
  EXPECT_THAT(settings_error("roundup_power2_divisions:[300:2]"),
              HasSubstr("a power of two in MiB"));
  EXPECT_THAT(settings_error("split"), HasSubstr("expected name:value, got split"));
  EXPECT_THAT(settings_error("max_split:3"), HasSubstr("is not a setting"));
}

}  // namespace
}  // namespace mfsdp
