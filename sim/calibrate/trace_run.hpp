// Kernel times of one run of PyTorch, from its profiler's trace, for --calibrate.
//
// A kernel is classified by the operator that launched it, its shape by the operator's inputs
// (record_shapes=True). If possible, only kernels without a concurrent collective count, because
// the simulation adds contention. Collectives include waits for other ranks, so the shortest time
// of a size counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/kineto.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {

/// GEMMs of one shape.
struct TracedGemm {
  GemmKind kind = GemmKind::forward;
  std::int64_t m = 0;  ///< tokens
  std::int64_t n = 0;  ///< output features
  std::int64_t k = 0;  ///< input features
  std::int64_t count = 0;
  double ns = 0;  ///< of one of them, the median
};

struct TracedAttention {
  bool backward = false;
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t seq = 0;
  std::int64_t head_dim = 0;
  std::int64_t count = 0;
  double ns = 0;
};

struct TracedCopy {
  std::int64_t bytes = 0;  ///< copied
  double ns = 0;
};

struct TracedCollective {
  CollectiveKind kind = CollectiveKind::all_gather;
  std::int64_t ranks = 0;
  Bytes bytes;  ///< of the full buffer
  std::int64_t count = 0;
  double ns = 0;  ///< the shortest
};

/// GPU time of kernels without a fitted price.
struct Unattributed {
  std::string name;  ///< of the kernel
  double ns = 0;
};

struct TraceRun {
  std::string where;
  std::vector<TracedGemm> gemms;
  std::vector<TracedAttention> attentions;
  std::vector<TracedCopy> copies;
  std::vector<TracedCollective> collectives;
  std::optional<double> launch_ns;  ///< median of the host's calls that launch kernels
  std::int64_t launches = 0;
  double kernel_ns = 0;                    ///< of all kernels and copies but NCCL's
  std::vector<Unattributed> unattributed;  ///< largest first
};

/// Errors name the trace: it has no kernels, or its operators have no shapes.
[[nodiscard]] Result<TraceRun> read_trace_run(const traces::Trace& trace);

}  // namespace mfsdp
