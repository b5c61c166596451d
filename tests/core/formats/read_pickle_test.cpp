#include "core/formats/read_pickle.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/support/foreign_files.hpp"

namespace mfsdp {
namespace {

using namespace std::string_literals;

using test::from_hex;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string pickle_error(const std::string& bytes) {
  const auto document = read_pickle(bytes, "f");
  return document ? "" : document.error().message();
}

TEST(ReadPickle, DataOfEveryProtocol) {
  for (const std::string_view hex : {test::kSnapshot0, test::kSnapshot2, test::kSnapshot4}) {
    const auto document = read_pickle(from_hex(hex), "f");
    ASSERT_TRUE(document) << document.error().message();
    const PickleValue& root = *document->root;
    const PickleValue* segments = root.find("segments");
    ASSERT_NE(segments, nullptr);
    ASSERT_EQ(segments->list()->items.size(), 2U);
    const PickleValue& second = *segments->list()->items[1];
    EXPECT_EQ(*second.find("total_size")->integer(), std::int64_t{20} << 30);
    EXPECT_EQ(root.find("no"), nullptr);
    const PickleValue* settings = root.find("allocator_settings");
    EXPECT_TRUE(std::holds_alternative<std::monostate>(settings->find("a")->value));
    EXPECT_TRUE(std::get<bool>(settings->find("b")->value));
    EXPECT_EQ(std::get<double>(settings->find("c")->value), 1.5);
    EXPECT_EQ(*settings->find("d")->integer(), -7);
    EXPECT_EQ(settings->find("e")->list()->items.size(), 4U);
  }
}

TEST(ReadPickle, BinaryIntegersBeyond64BitsAreFloats) {
  const auto value = [](const std::string& bytes) { return read_pickle(bytes, "f")->root->value; };
  EXPECT_EQ(std::get<double>(value("\x8a\x09\0\0\0\0\0\0\0\x80\0."s)), 0x1p63);
  EXPECT_EQ(std::get<double>(value("\x8a\x09\0\0\0\0\0\0\0\0\xff."s)), -0x1p64);
  EXPECT_EQ(std::get<std::int64_t>(value("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\x7f\0."s)),
            std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(std::get<std::int64_t>(value("\x8a\x09\0\0\0\0\0\0\0\x80\xff."s)),
            std::numeric_limits<std::int64_t>::min());
}

TEST(ReadPickle, CodeIsNeverRun) {
  EXPECT_THAT(pickle_error(from_hex(test::kCodePickle)),
              AllOf(StartsWith("f: byte "), HasSubstr("GLOBAL runs code: expected data alone")));
  for (const char opcode : {'\x93', 'R', 'b', 'i', 'o', '\x81', '\x92', 'P', 'Q', '\x82'})
    EXPECT_THAT(pickle_error("\x80\x04)"s + opcode), HasSubstr("runs code"));
}

TEST(ReadPickle, AnEmptyFileIsToldAsThat) {
  EXPECT_EQ(pickle_error(""), "f: expected a pickle, got an empty file");
}

TEST(ReadPickle, HostileBytesAreOneLine) {
  for (const std::string_view hex : {test::kSnapshot0, test::kSnapshot4}) {
    const std::string whole = from_hex(hex);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (i > 0) {
        EXPECT_THAT(pickle_error(whole.substr(0, i)), StartsWith("f: byte "));
      }
      for (const int change : {1, 0x80, 0xff}) {
        std::string bytes = whole;
        bytes[i] = static_cast<char>(bytes[i] ^ change);
        EXPECT_THAT(pickle_error(bytes), Not(HasSubstr("\n")));
      }
    }
  }
}

TEST(ReadPickle, CountsThatCannotBeAreErrors) {
  EXPECT_THAT(pickle_error("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f."s), HasSubstr("cut off"));
  EXPECT_THAT(pickle_error("\x8b\xff\xff\xff\x7f."s), HasSubstr("cut off"));
  EXPECT_THAT(pickle_error("I99999999999999999999\n."s), HasSubstr("integer of 64 bits"));
  EXPECT_THAT(pickle_error("h\x07."s), HasSubstr("not remembered"));
  EXPECT_THAT(pickle_error("a."s), HasSubstr("too few values"));
  EXPECT_THAT(pickle_error("t."s), HasSubstr("no MARK"));
  EXPECT_THAT(pickle_error("(."s), HasSubstr("STOP with no single value"));
  EXPECT_THAT(pickle_error("K\1K\2a."s), HasSubstr("no list or dict"));
  EXPECT_THAT(pickle_error("}(K\1u."s), HasSubstr("without a value"));
}

TEST(ReadPickle, DepthAndCirclesTakeNoStack) {
  std::string deep = "\x80\x02";
  for (int i = 0; i < 300'000; ++i) deep += ']';
  for (int i = 0; i < 299'999; ++i) deep += 'a';
  EXPECT_EQ(pickle_error(deep + "."), "");
  EXPECT_EQ(pickle_error("\x80\x02]q\1h\1a."s), "");  // a list that holds itself
}

}  // namespace
}  // namespace mfsdp
