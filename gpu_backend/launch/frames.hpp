// Format of the frames on a rendezvous's connections: a kind and a payload.
//
//   magic (4 bytes) | kind (1) | zero (3) | length (4) | payload; integers little-endian
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/launch/rendezvous.hpp"

namespace mfsdp {

/// Increases with every change of the frames' contents. The first three fields of a Hello never
/// change.
inline constexpr std::int64_t kRendezvousVersion = 2;

enum class FrameKind : std::uint8_t {
  hello = 1,  ///< Hello; first of all, to rank 0
  welcome,    ///< all ranks are connected and agree
  refused,    ///< text: why the ranks do not start
  ping,       ///< heartbeat
  give,       ///< to rank 0: number and kind of a collective, bytes
  result,     ///< from rank 0: the result of a collective
  failed,     ///< rank, text
  stop,       ///< to rank 0: a rank requests the end of the run
  grant,      ///< from rank 0: TurnGrant
  goodbye,    ///< the last frame of a rank that leaves normally
  challenge,  ///< from rank 0, after a hello: a nonce of 32 bytes
  proof,      ///< to rank 0: 32 bytes (handshake.hpp)
  accepted    ///< from rank 0: 32 bytes, its own proof
};

struct Frame {
  FrameKind kind = FrameKind::ping;
  std::vector<std::byte> payload;
};

/// Writes a payload field by field.
class PayloadWriter {
 public:
  PayloadWriter& number(std::int64_t value);
  /// Writes the length, then the bytes.
  PayloadWriter& text(std::string_view value);
  PayloadWriter& bytes(std::span<const std::byte> value);
  [[nodiscard]] const std::vector<std::byte>& payload() const { return payload_; }
  /// The frame: header and payload.
  [[nodiscard]] std::vector<std::byte> frame(FrameKind kind) const;

 private:
  std::vector<std::byte> payload_;
};

/// Reads the fields that a PayloadWriter wrote. None if the payload is too short.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const std::byte> payload) : rest_(payload) {}

  [[nodiscard]] std::optional<std::int64_t> number();
  [[nodiscard]] std::optional<std::string> text();
  [[nodiscard]] std::optional<std::vector<std::byte>> bytes();
  /// All bytes that are left.
  [[nodiscard]] std::span<const std::byte> rest() const { return rest_; }

 private:
  [[nodiscard]] std::optional<std::span<const std::byte>> take(std::size_t count);
  std::span<const std::byte> rest_;
};

/// Splits a stream of bytes into frames.
class FrameReader {
 public:
  /// Accepts payloads of at most `limit` bytes.
  explicit FrameReader(std::size_t limit) : limit_(limit) {}

  void allow(std::size_t limit) { limit_ = limit; }
  void add(std::span<const std::byte> bytes);
  /// The next frame, if it is complete. Errors: bytes that begin no frame, a frame longer than the
  /// limit. After an error nothing more can be read.
  [[nodiscard]] Result<std::optional<Frame>> next();

 private:
  std::size_t limit_;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;  ///< index of the first unread byte of bytes_
};

/// The rank that connects and its run. Rank 0 trusts no field before the sender has proved that it
/// knows the run's secret.
struct Hello {
  std::int64_t version = kRendezvousVersion;
  std::int64_t rank = 0;
  std::int64_t world_size = 0;
  MeetingIdentity identity;
  std::array<std::byte, 32> nonce{};  ///< drawn for this connection
};

/// Maximum length of a frame before all ranks are accepted.
inline constexpr std::size_t kMostHelloBytes = 4096;

[[nodiscard]] std::vector<std::byte> encode(const Hello& hello);
/// None if the payload is no Hello. For another version all fields except the first three are
/// empty.
[[nodiscard]] std::optional<Hello> decode_hello(std::span<const std::byte> payload);

[[nodiscard]] std::vector<std::byte> encode(const RankFailure& failure);
[[nodiscard]] std::optional<RankFailure> decode_failure(std::span<const std::byte> payload);

/// Rank numbers for messages: "rank 3", "ranks 1, 4-7". `ranks` is sorted.
[[nodiscard]] std::string name_ranks(std::span<const std::int64_t> ranks);

}  // namespace mfsdp
