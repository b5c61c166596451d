#include "gpu_backend/launch/frames.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kMagic = "MFRV";
constexpr std::size_t kHeader = 12;
constexpr std::size_t kKindAt = 4;
constexpr std::size_t kLengthAt = 8;

template <class Integer>
std::array<std::byte, sizeof(Integer)> little_endian(Integer value) {
  std::array<std::byte, sizeof(Integer)> bytes{};
  for (std::size_t i = 0; i < sizeof value; ++i)
    bytes.at(i) = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  return bytes;
}

std::uint64_t from_little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value |= static_cast<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

}  // namespace

PayloadWriter& PayloadWriter::number(std::int64_t value) {
  const auto bytes = little_endian(value);
  payload_.insert(payload_.end(), bytes.begin(), bytes.end());
  return *this;
}

PayloadWriter& PayloadWriter::text(std::string_view value) {
  return bytes(std::as_bytes(std::span(value)));
}

PayloadWriter& PayloadWriter::bytes(std::span<const std::byte> value) {
  number(static_cast<std::int64_t>(value.size()));
  payload_.insert(payload_.end(), value.begin(), value.end());
  return *this;
}

std::vector<std::byte> PayloadWriter::frame(FrameKind kind) const {
  std::vector<std::byte> frame(kHeader + payload_.size());
  std::memcpy(frame.data(), kMagic.data(), kMagic.size());
  frame[kKindAt] = static_cast<std::byte>(kind);
  const auto length = little_endian(static_cast<std::uint32_t>(payload_.size()));
  std::ranges::copy(length, frame.begin() + kLengthAt);
  std::ranges::copy(payload_, frame.begin() + kHeader);
  return frame;
}

std::optional<std::span<const std::byte>> PayloadReader::take(std::size_t count) {
  if (count > rest_.size()) return std::nullopt;
  const auto taken = rest_.first(count);
  rest_ = rest_.subspan(count);
  return taken;
}

std::optional<std::int64_t> PayloadReader::number() {
  const auto bytes = take(sizeof(std::int64_t));
  if (!bytes) return std::nullopt;
  return static_cast<std::int64_t>(from_little_endian(*bytes));
}

std::optional<std::vector<std::byte>> PayloadReader::bytes() {
  const auto length = number();
  if (!length || *length < 0) return std::nullopt;
  const auto taken = take(static_cast<std::size_t>(*length));
  if (!taken) return std::nullopt;
  return std::vector<std::byte>(taken->begin(), taken->end());
}

std::optional<std::string> PayloadReader::text() {
  const auto taken = bytes();
  if (!taken) return std::nullopt;
  return std::string(reinterpret_cast<const char*>(taken->data()), taken->size());
}

void FrameReader::add(std::span<const std::byte> bytes) {
  bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
  begin_ = 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

Result<std::optional<Frame>> FrameReader::next() {
  const auto rest = std::span<const std::byte>(bytes_).subspan(begin_);
  if (rest.empty()) return std::nullopt;
  const std::size_t known = std::min(rest.size(), kMagic.size());
  if (std::memcmp(rest.data(), kMagic.data(), known) != 0)
    return fail("rendezvous", "what came is no frame of mfsdp", Fault::environment);
  if (rest.size() < kHeader) return std::nullopt;
  const auto kind = static_cast<FrameKind>(rest[kKindAt]);
  const auto zeros = rest.subspan(kKindAt + 1, kLengthAt - kKindAt - 1);
  if (from_little_endian(zeros) != 0 || kind < FrameKind::hello || kind > FrameKind::accepted)
    return fail("rendezvous",
                fmt::format("a frame of kind {}: expected 1 to {}", static_cast<int>(kind),
                            static_cast<int>(FrameKind::accepted)),
                Fault::environment);
  const std::uint64_t length = from_little_endian(rest.subspan(kLengthAt, kHeader - kLengthAt));
  if (length > limit_)
    return fail("rendezvous",
                fmt::format("a frame of {} bytes: expected at most {}", length, limit_),
                Fault::environment);
  if (rest.size() - kHeader < length) return std::nullopt;
  const auto payload = rest.subspan(kHeader, static_cast<std::size_t>(length));
  begin_ += kHeader + payload.size();
  return Frame{.kind = kind, .payload = {payload.begin(), payload.end()}};
}

std::vector<std::byte> encode(const Hello& hello) {
  return PayloadWriter()
      .number(hello.version)
      .number(hello.rank)
      .number(hello.world_size)
      .text(hello.identity.run_id)
      .text(hello.identity.plan_hash)
      .text(hello.identity.build_id)
      .bytes(hello.nonce)
      .frame(FrameKind::hello);
}

std::optional<Hello> decode_hello(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  const auto version = reader.number();
  const auto rank = reader.number();
  const auto world_size = reader.number();
  if (!version || !rank || !world_size) return std::nullopt;
  Hello hello{
      .version = *version, .rank = *rank, .world_size = *world_size, .identity = {}, .nonce = {}};
  if (hello.version != kRendezvousVersion) return hello;
  for (std::string* field :
       {&hello.identity.run_id, &hello.identity.plan_hash, &hello.identity.build_id}) {
    const auto text = reader.text();
    if (!text) return std::nullopt;
    *field = *text;
  }
  const auto nonce = reader.bytes();
  if (!nonce || nonce->size() != hello.nonce.size()) return std::nullopt;
  std::ranges::copy(*nonce, hello.nonce.begin());
  if (!reader.rest().empty()) return std::nullopt;
  return hello;
}

std::vector<std::byte> encode(const RankFailure& failure) {
  return PayloadWriter().number(failure.rank).text(failure.message).frame(FrameKind::failed);
}

std::optional<RankFailure> decode_failure(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  const auto rank = reader.number();
  const auto message = reader.text();
  if (!rank || !message) return std::nullopt;
  return RankFailure{.rank = *rank, .message = printable(*message)};
}

std::string name_ranks(std::span<const std::int64_t> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    text +=
        end - i == 1 ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace mfsdp
