// What goes over a rendezvous's connections: frames of a kind and some bytes.
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

/// Raised with every change of what frames hold, but for the first three fields of a Hello.
inline constexpr std::int64_t kRendezvousVersion = 2;

enum class FrameKind : std::uint8_t {
  hello = 1,  ///< Hello; first of all, to rank 0
  welcome,    ///< all ranks have come and agree
  refused,    ///< text: they do not
  ping,       ///< a sign of life
  give,       ///< to rank 0: number and kind of a collective, bytes
  result,     ///< from rank 0: what the collective gave
  failed,     ///< rank, text
  stop,       ///< to rank 0: a rank would like the run to end
  grant,      ///< from rank 0: TurnGrant
  goodbye,    ///< the last frame of a rank that leaves in order
  challenge,  ///< from rank 0, after a hello: 32 bytes that are used once
  proof,      ///< to rank 0: 32 bytes (handshake.hpp)
  accepted    ///< from rank 0: 32 bytes, its own proof
};

struct Frame {
  FrameKind kind = FrameKind::ping;
  std::vector<std::byte> payload;
};

/// A payload, field by field.
class PayloadWriter {
 public:
  PayloadWriter& number(std::int64_t value);
  /// With its length before it.
  PayloadWriter& text(std::string_view value);
  PayloadWriter& bytes(std::span<const std::byte> value);
  [[nodiscard]] const std::vector<std::byte>& payload() const { return payload_; }
  /// The frame as it is sent.
  [[nodiscard]] std::vector<std::byte> frame(FrameKind kind) const;

 private:
  std::vector<std::byte> payload_;
};

/// Reads what a PayloadWriter wrote. None where the payload is too short.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const std::byte> payload) : rest_(payload) {}

  [[nodiscard]] std::optional<std::int64_t> number();
  [[nodiscard]] std::optional<std::string> text();
  [[nodiscard]] std::optional<std::vector<std::byte>> bytes();
  /// All that is left.
  [[nodiscard]] std::span<const std::byte> rest() const { return rest_; }

 private:
  [[nodiscard]] std::optional<std::span<const std::byte>> take(std::size_t count);
  std::span<const std::byte> rest_;
};

/// Frames out of a stream of bytes.
class FrameReader {
 public:
  /// Payloads of at most `limit` bytes.
  explicit FrameReader(std::size_t limit) : limit_(limit) {}

  void allow(std::size_t limit) { limit_ = limit; }
  void add(std::span<const std::byte> bytes);
  /// The next frame, if all of it has come. Errors: bytes that begin no frame, a frame beyond the
  /// limit; nothing can be read after that.
  [[nodiscard]] Result<std::optional<Frame>> next();

 private:
  std::size_t limit_;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;  ///< of what has not been read, in bytes_
};

/// Who calls, and for which run. Nothing of it is believed before the caller has proved that it
/// knows the run's secret.
struct Hello {
  std::int64_t version = kRendezvousVersion;
  std::int64_t rank = 0;
  std::int64_t world_size = 0;
  MeetingIdentity identity;
  std::array<std::byte, 32> nonce{};  ///< drawn for this connection
};

/// Most bytes of a frame before all ranks are welcome.
inline constexpr std::size_t kMostHelloBytes = 4096;

[[nodiscard]] std::vector<std::byte> encode(const Hello& hello);
/// None where the payload is none. Of another version all fields but the first three are empty.
[[nodiscard]] std::optional<Hello> decode_hello(std::span<const std::byte> payload);

[[nodiscard]] std::vector<std::byte> encode(const RankFailure& failure);
[[nodiscard]] std::optional<RankFailure> decode_failure(std::span<const std::byte> payload);

/// Numbers of ranks for messages: "rank 3", "ranks 1, 4-7". `ranks` is sorted.
[[nodiscard]] std::string name_ranks(std::span<const std::int64_t> ranks);

}  // namespace mfsdp
