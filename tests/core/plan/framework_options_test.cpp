#include "core/plan/framework_options.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

constexpr EngineKind kZero3 = EngineKind::deepspeed_zero3;

std::string error_of(std::string_view text) {
  FrameworkOptions options;
  const auto set = options.set(text);
  return set ? "" : set.error().message();
}

TEST(FrameworkOptions, AreReadAsFrameworksWriteThem) {
  FrameworkOptions options;
  ASSERT_TRUE(options.set("reduce_bucket_size=5e7"));
  ASSERT_TRUE(options.set("overlap_comm=false"));
  EXPECT_EQ(options.number(kZero3, FrameworkWord::reduce_bucket_size), 50'000'000);
  EXPECT_FALSE(options.is_on(kZero3, FrameworkWord::overlap_comm));
  EXPECT_EQ(options.number(kZero3, FrameworkWord::stage3_prefetch_bucket_size), 50'000'000);
}

TEST(FrameworkOptions, DefaultsDifferByEngine) {
  const FrameworkOptions options;
  EXPECT_TRUE(options.is_on(kZero3, FrameworkWord::overlap_comm));
  EXPECT_FALSE(options.is_on(EngineKind::deepspeed_zero2, FrameworkWord::overlap_comm));
}

TEST(FrameworkOptions, ErrorsSayWhatIsExpected) {
  EXPECT_EQ(error_of("overlap_comm"),
            "--engine-option: 'overlap_comm' is not NAME=VALUE such as overlap_comm=true");
  EXPECT_EQ(error_of("overlap_comm=1"), "--engine-option: overlap_comm is true or false, not '1'");
  EXPECT_NE(error_of("overlap=true").find("'overlap' is not one of bucket_cap_mb"),
            std::string::npos);
  EXPECT_NE(error_of("bucket_cap_mb=0").find("from 1 to"), std::string::npos);
  FrameworkOptions options;
  ASSERT_TRUE(options.set("overlap_comm=true"));
  EXPECT_TRUE(options.check(kZero3));
  EXPECT_EQ(options.check(EngineKind::ddp).error().message(),
            "--engine-option: --engine ddp has no overlap_comm; it has bucket_cap_mb, "
            "gradient_as_bucket_view, no_sync");
  EXPECT_EQ(options.check(EngineKind::fsdp2).error().message(),
            "--engine-option: --engine fsdp2 has no overlap_comm; it has no options");
}

TEST(FrameworkOptions, AreStatedWithDefaults) {
  FrameworkOptions options;
  ASSERT_TRUE(options.set("bucket_cap_mb=100"));
  EXPECT_EQ(options.statement(EngineKind::ddp),
            "options of ddp: bucket_cap_mb 100, by default gradient_as_bucket_view false, no_sync "
            "false");
  EXPECT_EQ(options.statement(EngineKind::fsdp2), "");
}

}  // namespace
}  // namespace mfsdp
