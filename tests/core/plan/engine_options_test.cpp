#include "core/plan/engine_options.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

constexpr EngineKind kZero3 = EngineKind::deepspeed_zero3;

std::string error_of(std::string_view text) {
  EngineOptions options;
  const auto set = options.set(text);
  return set ? "" : set.error().message();
}

TEST(EngineOptions, AreReadAsFrameworksWriteThem) {
  EngineOptions options;
  ASSERT_TRUE(options.set("reduce_bucket_size=5e7"));
  ASSERT_TRUE(options.set("overlap_comm=false"));
  EXPECT_EQ(options.number(kZero3, "reduce_bucket_size"), 50'000'000);
  EXPECT_FALSE(options.is_on(kZero3, "overlap_comm"));
  EXPECT_EQ(options.number(kZero3, "stage3_prefetch_bucket_size"), 50'000'000);
}

TEST(EngineOptions, DefaultsDifferByEngine) {
  const EngineOptions options;
  EXPECT_TRUE(options.is_on(kZero3, "overlap_comm"));
  EXPECT_FALSE(options.is_on(EngineKind::deepspeed_zero2, "overlap_comm"));
}

TEST(EngineOptions, ErrorsSayWhatIsExpected) {
  EXPECT_EQ(error_of("overlap_comm"),
            "--engine-option: 'overlap_comm' is not NAME=VALUE such as overlap_comm=true");
  EXPECT_EQ(error_of("overlap_comm=1"), "--engine-option: overlap_comm is true or false, not '1'");
  EXPECT_NE(error_of("overlap=true").find("'overlap' is not one of enable_fsdp_float8_all_gather"),
            std::string::npos);
  EXPECT_NE(error_of("bucket_cap_mb=0").find("from 1 to"), std::string::npos);
}

TEST(EngineOptions, ARefusalNamesAllOfThemAndTheirEngines) {
  EngineOptions options;
  ASSERT_TRUE(options.set("overlap_comm=true"));
  EXPECT_TRUE(options.check(kZero3));
  ASSERT_TRUE(options.set("--reshard-root", ""));
  const auto refused = options.check(EngineKind::ddp);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "--reshard-root: --engine ddp has no such option; engines with it: fsdp2, "
            "fsdp2-compile, fsdp2-compile-loss");
  ASSERT_EQ(refused.error().also.size(), 1U);
  EXPECT_EQ(refused.error().also[0].message(),
            "--engine-option: --engine ddp has no overlap_comm; engines with it: deepspeed-zero2, "
            "deepspeed-zero3");
}

TEST(EngineOptions, AreStatedWithDefaults) {
  EngineOptions options;
  ASSERT_TRUE(options.set("bucket_cap_mb=100"));
  EXPECT_EQ(options.statement(EngineKind::ddp),
            "options of ddp: bucket_cap_mb 100, by default gradient_as_bucket_view false, no_sync "
            "false");
  EXPECT_EQ(options.changes(EngineKind::ddp), "bucket_cap_mb=100");
  EXPECT_EQ(options.statement(EngineKind::mcore), "");
}

TEST(EngineOptions, FlagsAreOptionsToo) {
  EngineOptions options;
  ASSERT_TRUE(options.set("--modules", "TorchTitan"));
  ASSERT_TRUE(options.set("--fsdp-unit", "block"));
  ASSERT_TRUE(options.set("--bf16-loss", ""));
  EXPECT_EQ(options.get<Modules>(EngineKind::fsdp2, "--modules"), Modules::torchtitan);
  EXPECT_EQ(options.statement(EngineKind::fsdp2),
            "options of fsdp2: --modules torchtitan, --fsdp-unit block, --bf16-loss, by default no "
            "--selective-ac, no --accumulate-unsharded, no --reshard-root, no --hold-logits");
  // A default that is given changes nothing.
  EXPECT_EQ(options.changes(EngineKind::fsdp2), "--modules torchtitan --bf16-loss");
  EXPECT_EQ(EngineOptions{}.changes(EngineKind::fsdp2), "");
  EXPECT_EQ(options.set("--selective-ac", "ops").error().message(),
            "--selective-ac: 'ops' is not op or the n of every n-th block");
}

}  // namespace
}  // namespace mfsdp
