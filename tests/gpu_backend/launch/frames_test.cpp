#include "gpu_backend/launch/frames.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace mfsdp {
namespace {

std::vector<std::byte> arbitrary_bytes() {
  std::vector<std::byte> bytes;
  for (const auto byte : *rc::gen::arbitrary<std::vector<std::uint8_t>>())
    bytes.push_back(static_cast<std::byte>(byte));
  return bytes;
}

RC_GTEST_PROP(Frames, ComeOutAsTheyWentInHoweverTheyAreCut, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(0, 6);
  std::vector<std::byte> stream;
  std::vector<std::vector<std::byte>> payloads;
  for (std::size_t i = 0; i < count; ++i) {
    payloads.push_back(arbitrary_bytes());
    const auto frame = PayloadWriter().bytes(payloads.back()).frame(FrameKind::give);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  FrameReader reader(4096);
  std::vector<std::vector<std::byte>> read;
  for (std::span<const std::byte> rest = stream; !rest.empty();) {
    const auto piece = *rc::gen::inRange<std::size_t>(1, rest.size() + 1);
    reader.add(rest.first(piece));
    rest = rest.subspan(piece);
    for (auto frame = reader.next(); frame.value(); frame = reader.next())
      read.push_back(PayloadReader((**frame).payload).bytes().value());
  }
  RC_ASSERT(read == payloads);
}

RC_GTEST_PROP(Frames, AHelloWithOneByteChangedIsReadOrRefused, ()) {
  const Hello hello{.rank = 3, .world_size = 8, .identity = {"run", "hash", "build"}};
  auto bytes = encode(hello);
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
  bytes[at] ^= static_cast<std::byte>(*rc::gen::inRange(1, 256));
  FrameReader reader(kMostHelloBytes);
  reader.add(bytes);
  const auto frame = reader.next();
  if (!frame || !*frame) return;  // no frame, or the rest of a longer one is awaited
  RC_ASSERT((**frame).payload.size() <= bytes.size());
  const auto read = decode_hello((**frame).payload);
  if (read && (**frame).kind == FrameKind::hello) RC_ASSERT(encode(*read) != encode(hello));
}

TEST(Frames, BytesThatBeginNoneAreRefusedAtTheFirst) {
  for (const std::string text : {"G", "MFRW", "MFRV\x7f        ", "MFRV\x01   \xff\xff\xff\x7f"}) {
    FrameReader reader(kMostHelloBytes);
    reader.add(std::as_bytes(std::span(text)));
    EXPECT_FALSE(reader.next()) << text;
  }
  FrameReader reader(kMostHelloBytes);
  EXPECT_EQ(reader.next().value(), std::nullopt);
}

TEST(Frames, LengthsBeyondThePayloadAreRefused) {
  const auto frame =
      PayloadWriter().number(0).number(0).number(0).number(-1).frame(FrameKind::hello);
  EXPECT_EQ(PayloadReader(std::span(frame).last(8)).bytes(), std::nullopt);  // -1 bytes
  const auto longer = PayloadWriter().number(9).frame(FrameKind::give);
  EXPECT_EQ(PayloadReader(std::span(longer).last(8)).text(), std::nullopt);
}

TEST(Frames, RanksAreNamedInShort) {
  EXPECT_EQ(name_ranks(std::array<std::int64_t, 1>{3}), "rank 3");
  EXPECT_EQ(name_ranks(std::array<std::int64_t, 6>{0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7-8");
}

}  // namespace
}  // namespace mfsdp
