#include "gpu_backend/launch/secret.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "tests/gpu_backend/launch/ranks.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

std::string hex_hmac(const std::string& key, const std::string& message) {
  std::string text;
  for (const std::byte byte :
       hmac_sha256(std::as_bytes(std::span(key)), std::as_bytes(std::span(message))))
    text += fmt::format("{:02x}", byte);
  return text;
}

TEST(Secret, HmacHasTheVectorsOfRfc4231) {
  EXPECT_EQ(hex_hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex_hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // A key longer than a block.
  EXPECT_EQ(
      hex_hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Secret, NoKeyIsAKeyToo) {  // of FIPS 198-1: as if it were zeros
  EXPECT_EQ(hex_hmac("", "x"), hex_hmac(std::string(64, '\0'), "x"));
}

TEST(Secret, ComparesAllBytes) {
  const Bits256 bits = random_bits();
  EXPECT_TRUE(equal_in_constant_time(bits, bits));
  for (std::size_t i = 0; i < bits.size(); ++i) {
    Bits256 other = bits;
    other.at(i) ^= std::byte{1};
    EXPECT_FALSE(equal_in_constant_time(bits, other)) << i;
  }
}

// ---- where it comes from -----------------------------------------------------------------------

RankLaunch launch_of(std::int64_t local_world, std::int64_t world, bool starts_ranks) {
  RankLaunch launch;
  launch.place.world_size = world;
  launch.place.local_world_size = local_world;
  launch.starts_ranks = starts_ranks;
  launch.meeting = {.address = "node0", .port = 29600};
  return launch;
}

/// The launch as settle_secret leaves it, or its error's line.
tl::expected<RankLaunch, std::string> settled(const Environment& environment, RankLaunch launch,
                                              bool insecure = false) {
  const auto outcome = settle_secret(environment, insecure, launch);
  if (!outcome) return tl::unexpected<std::string>(outcome.error().message());
  return launch;
}

const std::string kSixteen(16, 's');

TEST(Secret, RanksOfOneSupervisorGetARandomOne) {
  const auto one = settled({}, launch_of(8, 8, true));
  const auto other = settled({}, launch_of(8, 8, true));
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->secret->size(), 64u);  // hexadecimal digits of 32 bytes
  EXPECT_NE(one->secret, other->secret);
}

TEST(Secret, SeveralHostsNeedOne) {
  for (const bool starts_ranks : {true, false}) {
    const auto without = settled({}, launch_of(4, 8, starts_ranks));
    ASSERT_FALSE(without);
    EXPECT_THAT(without.error(), HasSubstr("environment, MFSDP_SECRET: is not set"));
    const auto with = settled({{"MFSDP_SECRET", kSixteen}}, launch_of(4, 8, starts_ranks));
    ASSERT_TRUE(with) << with.error();
    EXPECT_EQ(with->secret, kSixteen);
    EXPECT_EQ(with->meeting.address, "node0");
    const auto insecure = settled({}, launch_of(4, 8, starts_ranks), true);
    ASSERT_TRUE(insecure) << insecure.error();
    EXPECT_EQ(insecure->secret, "");
  }
}

TEST(Secret, RanksOfAnotherLauncherOnOneHostMeetOnLoopback) {
  const auto launch = settled({}, launch_of(4, 4, false));
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->secret, "");
  EXPECT_EQ(launch->meeting.address, "127.0.0.1");
  EXPECT_EQ(settled({{"MFSDP_SECRET", kSixteen}}, launch_of(4, 4, false))->meeting.address,
            "node0");
}

TEST(Secret, ContradictionsAreRefused) {
  const RankLaunch launch = launch_of(4, 8, false);
  EXPECT_THAT(settled({{"MFSDP_SECRET", kSixteen}}, launch, true).error(),
              HasSubstr("--insecure-rendezvous: contradicts MFSDP_SECRET"));
  EXPECT_THAT(settled({{"MFSDP_SECRET", kSixteen}, {"MFSDP_SECRET_FILE", "x"}}, launch).error(),
              HasSubstr("environment, MFSDP_SECRET_FILE: is set beside MFSDP_SECRET"));
  for (const std::string& secret : {std::string(15, 's'), std::string(4097, 's'), std::string()}) {
    const std::string said = settled({{"MFSDP_SECRET", secret}}, launch).error();
    EXPECT_THAT(said, HasSubstr(fmt::format("16 to 4096 bytes, got {} bytes", secret.size())));
    EXPECT_EQ(said.find("sss"), std::string::npos) << "the secret is in the message";
  }
}

TEST(Secret, AFileThatItsOwnerAloneMayRead) {
  const test::ScratchFolder folder;
  const std::string path = folder / "secret";
  const auto read = [&] { return settled({{"MFSDP_SECRET_FILE", path}}, launch_of(1, 2, false)); };
  EXPECT_THAT(read().error(), HasSubstr("cannot be opened"));
  test::write_file(path, kSixteen + "\n");
  ::chmod(path.c_str(), 0640);
  EXPECT_THAT(read().error(), HasSubstr("has mode 0640"));
  ::chmod(path.c_str(), 0600);
  ASSERT_TRUE(read()) << read().error();
  EXPECT_EQ(read()->secret, kSixteen);
  test::write_file(path, std::string(5000, 's'));
  EXPECT_THAT(read().error(), HasSubstr("16 to 4096 bytes"));
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(read().error(), HasSubstr("is no regular file"));
}

}  // namespace
}  // namespace mfsdp
