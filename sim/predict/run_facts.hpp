// Inputs of a prediction other than its plan, as facts of its record.
#pragma once

#include "reports/record/facts.hpp"
#include "reports/record/result.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/simulator/ranks.hpp"

namespace mfsdp {

/// The machine: the GPU's rates, the link within a domain, and the network between domains.
/// Bandwidths are per direction, in GB/s (10^9 bytes).
[[nodiscard]] Facts cluster_facts(const Cluster& cluster);

/// How ranks differ: the jitter with its seed, and slow ranks. Empty if they do not differ.
[[nodiscard]] Facts variation_facts(const RankVariation& variation);

/// How tokens are distributed over experts, in the form in which stores keep it.
[[nodiscard]] Facts routing_facts(const RoutingReport& routing);

}  // namespace mfsdp
