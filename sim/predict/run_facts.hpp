// What a prediction was made from beside its plan, as facts of its record.
#pragma once

#include "reports/record/facts.hpp"
#include "reports/record/result.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/simulator/ranks.hpp"

namespace mfsdp {

/// The machine: what a GPU does, what joins the GPUs of a domain, and the network between domains.
/// Bandwidths are per direction, in GB/s (10^9 bytes).
[[nodiscard]] Facts cluster_facts(const Cluster& cluster);

/// How ranks differ: the jitter with its seed, and slow ranks. None where they do not.
[[nodiscard]] Facts variation_facts(const RankVariation& variation);

/// How tokens are spread over experts, as stores keep it.
[[nodiscard]] Facts routing_facts(const RoutingReport& routing);

}  // namespace mfsdp
