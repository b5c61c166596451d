#include "core/formats/read_events.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/formats/crc32c.hpp"
#include "tests/support/foreign_files.hpp"

namespace mfsdp {
namespace {

using test::from_hex;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Crc32c, IsThatOfRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
}

TEST(ReadEvents, ScalarsOfBothKinds) {
  const auto events = read_events(from_hex(test::kEvents), "f");
  ASSERT_TRUE(events) << events.error().message();
  const std::vector<EventScalar>* scalars = &events->scalars;
  ASSERT_EQ(scalars->size(), 11U);
  EXPECT_EQ(scalars->front().tag, "loss_metrics/global_avg_loss");
  EXPECT_EQ(scalars->front().step, 1);
  EXPECT_EQ(scalars->front().value, 8.0);
  EXPECT_EQ(scalars->front().wall_time, 1790000001.5);
  EXPECT_EQ(scalars->back().tag, "lr");
  EXPECT_EQ(scalars->back().value, 0.25);  // a tensor
}

TEST(ReadEvents, ALastRecordThatIsCutOffIsLeftOut) {
  const std::string whole = from_hex(test::kEvents);
  std::size_t most = 0;
  for (std::size_t size = 12; size < whole.size(); ++size) {
    const auto events = read_events(whole.substr(0, size), "f");
    ASSERT_TRUE(events) << size << ": " << events.error().message();
    EXPECT_GE(events->scalars.size(), most);
    most = events->scalars.size();
  }
  EXPECT_EQ(most, 10U);
}

TEST(ReadEvents, AnyChangedByteIsNoticed) {
  const std::string whole = from_hex(test::kEvents);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ 0x10);
    const auto events = read_events(bytes, "f");
    ASSERT_FALSE(events) << i;
    EXPECT_THAT(events.error().message(),
                AllOf(StartsWith("f: byte "), HasSubstr("wrong CRC"), Not(HasSubstr("\n"))));
  }
  EXPECT_FALSE(read_events("short", "f"));
}

TEST(ReadEvents, ARecordThatIsNoEventIsAnError) {
  const auto record = [](std::string data) {
    std::string head(8, '\0');
    head[0] = static_cast<char>(data.size());
    const auto sum = [](const std::string& bytes) {
      const std::uint32_t masked = masked_crc32c(bytes);
      return std::string(reinterpret_cast<const char*>(&masked), 4);
    };
    return head + sum(head) + data + sum(data);
  };
  // A string longer than what is left, a varint without an end, a kind of field that is not there.
  for (const std::string& data :
       {std::string("\x2a\x7f"
                    "a"),
        std::string(11, '\xff'), std::string("\x0f"), std::string("\x2a\x02\x0a\x70", 4)})
    EXPECT_THAT(read_events(record(data), "f").error().message(), HasSubstr("is no event"));
  EXPECT_TRUE(read_events(record(""), "f"));
}

}  // namespace
}  // namespace mfsdp
