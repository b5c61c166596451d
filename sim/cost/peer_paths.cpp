#include "sim/cost/peer_paths.hpp"

#include "core/plan/job.hpp"

namespace mfsdp {

const PeerPath& PeerPaths::of(const PeerStep& peer) {
  const auto [at, is_new] = known_.try_emplace({peer.axis, peer.step});
  if (is_new) at->second = find(peer);
  return at->second;
}

PeerPath PeerPaths::find(const PeerStep& peer) const {
  const Mesh& mesh = program_.config.mesh;
  const std::int64_t apart = checked_mul(peer.step, mesh.stride(peer.axis));
  const std::int64_t leaf = cluster_.nodes_per_leaf
                                ? checked_mul(*cluster_.nodes_per_leaf, cluster_.gpus_per_node)
                                : mesh.world_size();
  PeerPath path{.domain = true, .leaf = true, .place = apart % cluster_.gpus_per_node == 0};
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    const std::int64_t index = mesh.index(rank, peer.axis) + peer.step;
    if (index < 0 || index >= mesh.size(peer.axis)) continue;
    if (!program_.classes.empty() && !runs_on(program_, rank)) continue;
    path.domain &= rank / cluster_.domain == (rank + apart) / cluster_.domain;
    path.leaf &= rank / leaf == (rank + apart) / leaf;
  }
  return path;
}

}  // namespace mfsdp
