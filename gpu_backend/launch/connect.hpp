// How ranks connect: all call rank 0, which accepts all of them or none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"
#include "gpu_backend/launch/frames.hpp"
#include "gpu_backend/launch/rendezvous.hpp"

namespace mfsdp {

/// A connection to another rank.
struct Peer {
  std::int64_t rank = 0;
  FileDescriptor socket;
  FrameReader reader{kMostHelloBytes};  ///< may already hold bytes after the handshake
};

/// On rank 0: connections to all other ranks, by rank. Each has proved that it knows `secret`.
/// Errors: as Rendezvous::meet; every connected rank has received the same error.
[[nodiscard]] Result<std::vector<Peer>> accept_ranks(const FileDescriptor& listener,
                                                     const Hello& own, const std::string& secret,
                                                     const RendezvousSettings& settings);

/// On any other rank: its connection to rank 0, which has proved that it knows `secret`.
[[nodiscard]] Result<Peer> connect_to_rank_0(const MeetingPoint& meeting, const Hello& own,
                                             const std::string& secret,
                                             const RendezvousSettings& settings);

}  // namespace mfsdp
