// --explain network: how the step depends on the network, sharded flat and inside nodes.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "core/cli/text_style.hpp"
#include "sim/search/prediction_requests.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

/// Steps over bandwidths of a node's network for flat sharding, for HSDP with groups inside domains
/// and for the --outer-dp that was given, the machine's own bandwidth among them; and the ranges of
/// bandwidths in which each is the fastest.
/// Errors where there is one node, or a plan was given.
[[nodiscard]] Result<std::string> explain_network(const SimOptions& options,
                                                  PredictionRequests& requests,
                                                  const TextStyle& style);

}  // namespace mfsdp
