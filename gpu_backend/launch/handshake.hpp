// How a rank and rank 0 prove to each other that they know the run's secret. Neither believes the
// other before that, and no secret goes over the network.
//
//   rank                                              rank 0
//   hello: version, rank, run ..., a nonce   ──►
//                                            ◄──      challenge: another nonce
//   proof: HMAC("rank", nonces, hello)       ──►      wrong: closes without a word
//                                            ◄──      accepted: HMAC("rank 0", nonces, hello)
//
// The rank proves first: what calls rank 0's port without the secret gets nothing to guess it from.
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

/// Who proves. The two proofs differ, so that neither side can send the other's own back.
enum class Prover { rank, rank_0 };

/// HMAC-SHA256 under the secret of the prover, rank 0's nonce and the hello, which holds the
/// rank's.
[[nodiscard]] Bits256 proof_of(Prover prover, std::string_view secret, const Hello& hello,
                               const Bits256& challenge);

/// A rank that has proved that it knows the secret.
struct ProvenRank {
  Hello hello;
  Peer peer;
};

/// On rank 0: connections that have proved nothing yet. At most 256 at a time, 128 of one address,
/// for 3 s each. A new one takes the place of the oldest, one that has said nothing before one that
/// has: a flood of them keeps no rank out, since a rank answers at once and calls again if it was
/// dropped.
class PendingConnections {
 public:
  /// `listener` outlives the object.
  PendingConnections(const FileDescriptor& listener, std::string secret)
      : listener_(listener), secret_(std::move(secret)) {}

  /// Adds what poll(2) is to wait for, and brings `until` forward to the next deadline.
  void add_to(std::vector<pollfd>& waiting, Clock::time_point& until) const;
  /// Lets new ones in, reads what has come and answers. Returns those that have proved themselves.
  [[nodiscard]] std::list<ProvenRank> step();
  /// Calls that had the wrong secret or another version, to end an error's line with; else empty.
  [[nodiscard]] std::string turned_away() const;

 private:
  struct PendingConnection {
    Peer peer;
    std::string address;
    Clock::time_point since;
    std::optional<Hello> hello = {};  ///< what it claims to be, once it has said so
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

/// On any other rank: its connection to rank 0, accepted. Calls again until the meeting's deadline
/// where rank 0 drops it. Errors: nothing answers; what answers is no rank 0, is of another version
/// or does not know the secret; rank 0 drops this rank's proofs.
[[nodiscard]] Result<Peer> prove_to_rank_0(const MeetingPoint& meeting, const Hello& own,
                                           std::string_view secret, Clock::time_point deadline,
                                           Clock::time_point last);

/// What came next from rank 0: a frame, or the connection's end; neither: nothing until `until`.
struct Heard {
  std::optional<Frame> frame;
  bool ended = false;
};
/// Errors: bytes that are no frame.
[[nodiscard]] Result<Heard> hear(Peer& rank_0, Clock::time_point until);

}  // namespace mfsdp
