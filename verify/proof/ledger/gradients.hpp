// The gradient ledger: it executes a step on symbols, with one term for each contribution of a
// kernel to a gradient.
//
// Host order is one of the orders that the plan allows, and where nothing races (races.hpp) all of
// them compute the same. Ranks of pure data parallelism run one plan, so one rank's ledger is that
// of all: a sum over an axis turns a term of this rank into one of every rank.
//
//   kernel                       ledger
//   layers.0.qkv.wgrad, beta 0   slot[qkv] = g(only)
//   layers.0.zero_padding        slot[padding] = 0
//   layers.0.reduce_scatter      slot[own slice] = sum of g(only) over dp_shard
//   layers.0.accumulate, beta 1  main[qkv] += that
//   layers.0.adamw               main[qkv] is to be g of every microbatch of every rank, once
//
// By copy engines, which cannot add, the sum is a kernel's:
//
//   layers.0.all_to_all          parts[own slice] = g(only) of each rank of dp_shard, separately
//   layers.0.sum_ranks, beta 0   main[own slice] = sum of that over dp_shard
//
// Each forward kernel that uses a parameter must contribute one gradient to it; recomputation does
// not count.
#pragma once

#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Follows gradients of a plan to the norm's partials and the optimizer's updates. Finds MF301 to
/// MF306, MF308 to MF310 and MF505, at most one of a rule for each group.
void check_gradients(const UnrolledPlan& unrolled, const Layouts& layouts,
                     const FollowedOps& followed, FindingList& findings);

}  // namespace mfsdp
