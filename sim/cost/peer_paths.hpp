// The links that sends and receives of a class of ranks cross.
#pragma once

#include <map>
#include <utility>

#include "core/plan/plan.hpp"
#include "sim/cost/collective.hpp"
#include "sim/hardware/cluster.hpp"

namespace mfsdp {

/// Finds each peer's path once. One thread at a time.
class PeerPaths {
 public:
  /// Both must outlive the object.
  PeerPaths(const Program& program, const Cluster& cluster)
      : program_(program), cluster_(cluster) {}

  /// The parts that all ranks of the program share with that peer of theirs. A pair that crosses
  /// more than others decides, as all send at once. Ranks without such a peer are left out.
  [[nodiscard]] const PeerPath& of(const PeerStep& peer);

  [[nodiscard]] const Program& program() const { return program_; }

 private:
  [[nodiscard]] PeerPath find(const PeerStep& peer) const;

  const Program& program_;
  const Cluster& cluster_;
  std::map<std::pair<Axis, std::int64_t>, PeerPath> known_;
};

}  // namespace mfsdp
