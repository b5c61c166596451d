#include "gpu_backend/launch/handshake.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>
#include <tuple>
#include <utility>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostStrangers = 256;
constexpr std::size_t kMostOfAnAddress = 128;
/// Connections that are accepted before the pending ones are read again. Even if many ranks connect
/// at once, a rank is answered before it becomes the oldest connection, which is the first to be
/// dropped.
constexpr std::size_t kMostAtOnce = 16;
/// From the connection to the proof. A rank answers as soon as it reads.
constexpr std::chrono::seconds kStrangerTime{3};
constexpr std::chrono::milliseconds kBetweenCalls{50};
/// After this number of dropped proofs a rank concludes that its secret is wrong. Fewer may have
/// been dropped because of a flood of unauthenticated connections.
constexpr int kMostDroppedProofs = 10;

std::string_view label_of(Prover prover) {
  return prover == Prover::rank ? "mfsdp rendezvous 2: rank" : "mfsdp rendezvous 2: rank 0";
}

std::vector<std::byte> frame_of(FrameKind kind, const Bits256& bits) {
  return PayloadWriter().bytes(bits).frame(kind);
}

/// None if the frame holds something else.
std::optional<Bits256> bits_of(const Frame& frame) {
  PayloadReader reader(frame.payload);
  const auto bytes = reader.bytes();
  Bits256 bits{};
  if (!bytes || bytes->size() != bits.size() || !reader.rest().empty()) return std::nullopt;
  std::ranges::copy(*bytes, bits.begin());
  return bits;
}

}  // namespace

Bits256 proof_of(Prover prover, std::string_view secret, const Hello& hello,
                 const Bits256& challenge) {
  const std::vector<std::byte> message =
      PayloadWriter().text(label_of(prover)).bytes(challenge).bytes(encode(hello)).payload();
  return hmac_sha256(std::as_bytes(std::span(secret)), message);
}

// ---- rank 0 ------------------------------------------------------------------------------------

void PendingConnections::add_to(std::vector<pollfd>& waiting, Clock::time_point& until) const {
  waiting.push_back({listener_.number(), POLLIN, 0});
  for (const PendingConnection& pending_connection : pending_) {
    waiting.push_back({pending_connection.peer.socket.number(), POLLIN, 0});
    until = std::min(until, pending_connection.since + kStrangerTime);
  }
}

void PendingConnections::make_room(const std::string& address) {
  const auto is_same = [&](const PendingConnection& pending_connection) {
    return pending_connection.address == address;
  };
  const bool too_many_of_it =
      std::cmp_greater_equal(std::ranges::count_if(pending_, is_same), kMostOfAnAddress);
  if (!too_many_of_it && pending_.size() < kMostStrangers) return;
  // The lowest value is dropped first: connections without a hello before those with one, older
  // ones before newer ones, candidates last.
  const auto order = [&](const PendingConnection& pending_connection) {
    return std::tuple(too_many_of_it && !is_same(pending_connection),
                      pending_connection.hello.has_value(), pending_connection.since);
  };
  pending_.erase(std::ranges::min_element(pending_, {}, order));
}

void PendingConnections::let_in() {
  for (std::size_t i = 0; i < kMostAtOnce; ++i) {
    FileDescriptor socket = accept_from(listener_);
    if (!socket) return;
    std::string address = address_of_peer(socket);
    make_room(address);
    PendingConnection& pending_connection = pending_.emplace_back();
    pending_connection.peer.socket = std::move(socket);
    pending_connection.address = std::move(address);
    pending_connection.since = Clock::now();
  }
}

bool PendingConnections::answer_hello(PendingConnection& pending_connection, const Frame& frame) {
  auto hello = decode_hello(frame.payload);
  if (!hello) return false;
  if (hello->version != kRendezvousVersion) {
    ++other_versions_;
    const std::string text = fmt::format(
        "rank 0 speaks version {} of the rendezvous, this rank version {}: expected the same "
        "mfsdp-exec on all hosts",
        kRendezvousVersion, hello->version);
    static_cast<void>(send_to(pending_connection.peer.socket,
                              PayloadWriter().text(text).frame(FrameKind::refused)));
    return false;
  }
  pending_connection.hello = std::move(*hello);
  pending_connection.challenge = random_bits();
  // A few bytes on a new connection fit into its send buffer, so this does not block.
  static_cast<void>(send_to(pending_connection.peer.socket,
                            frame_of(FrameKind::challenge, pending_connection.challenge)));
  return true;
}

bool PendingConnections::answer_proof(PendingConnection& pending_connection, const Frame& frame) {
  const auto proof = bits_of(frame);
  const auto right =
      proof_of(Prover::rank, secret_, *pending_connection.hello, pending_connection.challenge);
  if (!proof || !equal_in_constant_time(*proof, right)) {
    ++wrong_proofs_;
    last_wrong_ = pending_connection.address;
    return false;
  }
  const auto own =
      proof_of(Prover::rank_0, secret_, *pending_connection.hello, pending_connection.challenge);
  static_cast<void>(send_to(pending_connection.peer.socket, frame_of(FrameKind::accepted, own)));
  pending_connection.has_proved = true;
  return true;
}

/// False if the protocol does not expect this frame now.
bool PendingConnections::answer(PendingConnection& pending_connection, const Frame& frame) {
  if (!pending_connection.hello)
    return frame.kind == FrameKind::hello && answer_hello(pending_connection, frame);
  return frame.kind == FrameKind::proof && answer_proof(pending_connection, frame);
}

void PendingConnections::read(PendingConnection& pending_connection) {
  std::array<std::byte, kMostHelloBytes> bytes{};
  const Transfer came = receive_from(pending_connection.peer.socket, bytes);
  pending_connection.peer.reader.add(std::span(bytes).first(came.bytes));
  while (!pending_connection.has_proved) {
    const auto frame = pending_connection.peer.reader.next();
    if (frame && !*frame && !came.ended) return;
    if (!frame || !*frame || !answer(pending_connection, **frame))
      return pending_connection.peer.socket.close();
  }
}

std::list<ProvenRank> PendingConnections::step() {
  let_in();
  std::list<ProvenRank> proven;
  for (PendingConnection& pending_connection : pending_) {
    read(pending_connection);
    if (pending_connection.has_proved)
      proven.push_back({.hello = std::move(*pending_connection.hello),
                        .peer = std::move(pending_connection.peer)});
  }
  const Clock::time_point now = Clock::now();
  pending_.remove_if([&](const PendingConnection& pending_connection) {
    return !pending_connection.peer.socket || now - pending_connection.since > kStrangerTime;
  });
  return proven;
}

std::string PendingConnections::turned_away() const {
  std::string text;
  if (wrong_proofs_ > 0)
    text += fmt::format("; {} {} from {} had another secret", wrong_proofs_,
                        wrong_proofs_ == 1 ? "call" : "calls, the last", last_wrong_);
  if (other_versions_ > 0)
    text += fmt::format("; {} {} of another mfsdp-exec", other_versions_,
                        other_versions_ == 1 ? "call was" : "calls were");
  return text;
}

// ---- other ranks -------------------------------------------------------------------------------

Result<Heard> hear(Peer& rank_0, Clock::time_point until) {
  std::array<std::byte, kMostHelloBytes> bytes{};
  while (true) {
    MFSDP_LET(frame, rank_0.reader.next());
    if (frame) return Heard{.frame = std::move(frame), .ended = false};
    if (Clock::now() >= until) return Heard{};
    pollfd waiting{.fd = rank_0.socket.number(), .events = POLLIN, .revents = 0};
    static_cast<void>(::poll(&waiting, 1, poll_wait_until(until)));
    const Transfer came = receive_from(rank_0.socket, bytes);
    rank_0.reader.add(std::span(bytes).first(came.bytes));
    if (came.ended) return Heard{.frame = std::nullopt, .ended = true};
  }
}

namespace {

/// One rank's attempts to connect to rank 0.
class Caller {
 public:
  Caller(const MeetingPoint& meeting, const Hello& own, std::string_view secret,
         Clock::time_point deadline, Clock::time_point last)
      : meeting_(meeting), own_(own), secret_(secret), deadline_(deadline), last_(last) {}

  Result<Peer> call() {
    while (true) {
      MFSDP_LET(socket, connect_to(meeting_, deadline_));
      Peer peer;
      peer.socket = std::move(socket);
      MFSDP_LET(is_accepted, prove(peer));
      if (is_accepted) return peer;
      if (dropped_proofs_ == kMostDroppedProofs)
        return refuse(
            "drops this rank: expected the same secret on all hosts (MFSDP_SECRET or "
            "MFSDP_SECRET_FILE)");
      if (Clock::now() >= deadline_) return refuse("drops the connection");
      std::this_thread::sleep_for(kBetweenCalls);
    }
  }

 private:
  [[nodiscard]] tl::unexpected<Error> refuse(std::string_view what) const {
    return fail("rendezvous",
                fmt::format("rank 0 at {} port {} {}", meeting_.address, meeting_.port, what),
                Fault::environment);
  }

  [[nodiscard]] tl::unexpected<Error> refuse_other(std::string_view what) const {
    return fail("rendezvous",
                fmt::format("what answers at {} port {} {}", meeting_.address, meeting_.port, what),
                Fault::environment);
  }

  /// The next frame, of the given kind. None: rank 0 has closed the connection.
  Result<std::optional<Bits256>> expect(Peer& peer, FrameKind kind) {
    constexpr std::string_view kNoRank0 = "is no rank 0 of mfsdp";
    const auto heard = hear(peer, last_);
    if (!heard) return refuse_other(kNoRank0);
    if (heard->ended) return std::nullopt;
    if (!heard->frame) return refuse("does not answer");
    const Frame& frame = *heard->frame;
    if (frame.kind == FrameKind::refused)  // sent by a rank 0 of an earlier version
      return refuse_other(fmt::format("refuses this rank: {}",
                                      printable(PayloadReader(frame.payload).text().value_or(""))));
    const auto bits = bits_of(frame);
    if (frame.kind != kind || !bits) return refuse_other(kNoRank0);
    return bits;
  }

  /// False if rank 0 has dropped the connection.
  Result<bool> prove(Peer& peer) {
    Hello hello = own_;
    hello.nonce = random_bits();
    static_cast<void>(send_to(peer.socket, encode(hello)));
    MFSDP_LET(challenge, expect(peer, FrameKind::challenge));
    if (!challenge) return false;
    const Bits256 proof = proof_of(Prover::rank, secret_, hello, *challenge);
    static_cast<void>(send_to(peer.socket, frame_of(FrameKind::proof, proof)));
    MFSDP_LET(answer, expect(peer, FrameKind::accepted));
    if (!answer) {
      ++dropped_proofs_;
      return false;
    }
    if (!equal_in_constant_time(*answer, proof_of(Prover::rank_0, secret_, hello, *challenge)))
      return refuse_other("does not know this run's secret (MFSDP_SECRET or MFSDP_SECRET_FILE)");
    return true;
  }

  const MeetingPoint& meeting_;
  const Hello& own_;
  std::string_view secret_;
  Clock::time_point deadline_;
  Clock::time_point last_;
  int dropped_proofs_ = 0;
};

}  // namespace

Result<Peer> prove_to_rank_0(const MeetingPoint& meeting, const Hello& own, std::string_view secret,
                             Clock::time_point deadline, Clock::time_point last) {
  return Caller(meeting, own, secret, deadline, last).call();
}

}  // namespace mfsdp
