#include "core/plan/engine.hpp"

#include <gtest/gtest.h>

#include <set>

namespace mfsdp {
namespace {

TEST(Engines, AreReadByTheirNamesAndByThoseOfResults) {
  EXPECT_EQ(parse<EngineKind>("megatron-fsdp-v1"), EngineKind::megatron_fsdp_v1);
  EXPECT_EQ(parse<EngineKind>("mfsdp1"), EngineKind::megatron_fsdp_v1);
  EXPECT_EQ(parse<EngineKind>("mfsdp2-eager"), EngineKind::megatron_fsdp_v2_eager);
  EXPECT_FALSE(parse<EngineKind>("mfsdp3"));
  EXPECT_FALSE(parse<EngineKind>(""));
  EXPECT_EQ(stored_name(EngineKind::megatron_fsdp_v2), "mfsdp2");
  EXPECT_EQ(stored_name(EngineKind::mcore), "mcore");
  EXPECT_EQ(shown_engine("mfsdp2"), "megatron-fsdp-v2");
  EXPECT_EQ(shown_engine("torchtitan"), "torchtitan");
}

TEST(Engines, NoTwoShareAName) {
  std::set<std::string_view> names;
  for (const EngineTraits& engine : kEngines) {
    EXPECT_TRUE(names.insert(engine.name).second) << engine.name;
    EXPECT_TRUE(engine.stored.empty() || names.insert(engine.stored).second) << engine.stored;
  }
}

TEST(Engines, OfOthersHaveFewChoices) {
  EXPECT_TRUE(has_choice(EngineKind::mfsdp, "--prefetch"));
  EXPECT_FALSE(has_choice(EngineKind::fsdp2, "--prefetch"));
  EXPECT_TRUE(has_choice(EngineKind::fsdp2, "--micro-batch"));
  EXPECT_TRUE(has_choice(EngineKind::megatron_fsdp_v1, "--allocator"));
  EXPECT_FALSE(has_choice(EngineKind::megatron_fsdp_v2, "--allocator"));
}

}  // namespace
}  // namespace mfsdp
