// What one run of PyTorch took, kernel by kernel: its profiler's trace, for --calibrate.
//
// Kernels are told by the operator that launched them, and shapes by its inputs
// (record_shapes=True). Times are those of kernels beside which no collective runs, where there are
// any: contention is the simulation's to add. Collectives wait for other ranks, so the shortest of
// a size counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/formats/kineto.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {

/// Kernels of one shape.
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

/// Time of GPUs that no price is made of.
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
  std::optional<double> launch_ns;  ///< of the host's calls that launch kernels, the median
  std::int64_t launches = 0;
  double kernel_ns = 0;                    ///< of all kernels and copies but NCCL's
  std::vector<Unattributed> unattributed;  ///< largest first
};

/// Errors name the trace: one without kernels, or whose operators have no shapes.
[[nodiscard]] Result<TraceRun> read_trace_run(const traces::Trace& trace);

}  // namespace mfsdp
