// How a rank and rank 0 prove to each other that they know the run's secret. Neither trusts the
// other before that, and the secret is never sent over the network.
//
//   rank                                              rank 0
//   hello: version, rank, run ..., a nonce   ──►
//                                            ◄──      challenge: another nonce
//   proof: HMAC("rank", nonces, hello)       ──►      wrong: closes, sends nothing
//                                            ◄──      accepted: HMAC("rank 0", nonces, hello)
//
// The rank proves first. A caller without the secret receives nothing from which it could guess it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file_descriptor.hpp"
#include "gpu_backend/launch/connect.hpp"
#include "gpu_backend/launch/secret.hpp"
#include "gpu_backend/launch/sockets.hpp"

namespace mfsdp {

/// Who proves. The two proofs differ, so that neither side can send back the other's proof.
enum class Prover { rank, rank_0 };

/// HMAC-SHA256, keyed with the secret, of the prover, rank 0's nonce and the hello (which contains
/// the rank's nonce).
[[nodiscard]] Bits256 proof_of(Prover prover, std::string_view secret, const Hello& hello,
                               const Bits256& challenge);

/// A rank that has proved that it knows the secret.
struct ProvenRank {
  Hello hello;
  Peer peer;
};

/// On rank 0: connections that have proved nothing yet. At most 256 at a time, 128 from one
/// address, for 3 s each. A new connection replaces the oldest, and connections without a hello are
/// replaced first. A flood of them keeps no rank out: a rank answers at once and connects again if
/// it was dropped.
class PendingConnections {
 public:
  /// `listener` outlives the object.
  PendingConnections(const FileDescriptor& listener, std::string secret)
      : listener_(listener), secret_(std::move(secret)) {}

  /// Adds the sockets for poll(2), and moves `until` forward to the next deadline.
  void add_to(std::vector<pollfd>& waiting, Clock::time_point& until) const;
  /// Accepts new connections, reads available bytes and answers. Returns the ranks that have proved
  /// themselves.
  [[nodiscard]] std::list<ProvenRank> step();
  /// The end of an error message: calls that had the wrong secret or another version. Empty if
  /// none.
  [[nodiscard]] std::string turned_away() const;

 private:
  struct PendingConnection {
    Peer peer;
    std::string address;
    Clock::time_point since;
    std::optional<Hello> hello = {};  ///< the rank that it claims to be; none before its hello
    Bits256 challenge{};
    bool has_proved = false;
  };

  void let_in();
  void make_room(const std::string& address);
  void read(PendingConnection& pending_connection);
  [[nodiscard]] bool answer(PendingConnection& pending_connection, const Frame& frame);
  [[nodiscard]] bool answer_hello(PendingConnection& pending_connection, const Frame& frame);
  [[nodiscard]] bool answer_proof(PendingConnection& pending_connection, const Frame& frame);

  const FileDescriptor& listener_;
  std::string secret_;
  std::list<PendingConnection> pending_;  ///< the oldest first
  std::int64_t wrong_proofs_ = 0;
  std::string last_wrong_;  ///< address
  std::int64_t other_versions_ = 0;
};

/// On any other rank: its connection to rank 0, after both proofs. Connects again until the
/// rendezvous's deadline if rank 0 drops it. Errors: nothing answers; the process that answers is
/// no rank 0, has another version or does not know the secret; rank 0 drops this rank's proofs.
[[nodiscard]] Result<Peer> prove_to_rank_0(const MeetingPoint& meeting, const Hello& own,
                                           std::string_view secret, Clock::time_point deadline,
                                           Clock::time_point last);

/// The next event from rank 0: a frame, or the connection's end; neither if nothing came until
/// `until`.
struct Heard {
  std::optional<Frame> frame;
  bool ended = false;
};
/// Errors: bytes that are no frame.
[[nodiscard]] Result<Heard> hear(Peer& rank_0, Clock::time_point until);

}  // namespace mfsdp
