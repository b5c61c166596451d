// A job to predict, as a caller asks for it: names of model and machine, and what is set of the
// configuration. PredictionRequests turns it into a prediction request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/rational.hpp"
#include "core/base/vocabulary.hpp"
#include "core/cli/common_options.hpp"
#include "core/plan/attention_choice.hpp"
#include "core/plan/engine.hpp"
#include "core/plan/engine_options.hpp"
#include "core/plan/price_tables.hpp"

namespace mfsdp {

/// A rank whose kernels take `factor` times as long.
struct SlowRankFlag {
  std::int64_t rank = 0;
  Rational factor{1, 1};
};

/// How a router spreads tokens over experts; balanced unless a member is set.
struct RoutingFlag {
  std::string text;              ///< as it was given
  std::optional<Rational> zipf;  ///< the exponent of a Zipf distribution
  bool is_file = false;          ///< `text` names a file of counts
};

/// Price of one GPU for one hour.
struct GpuPrice {
  std::string gpu;  ///< catalogue name; empty: every kind
  Rational price{0, 1};
};

/// Failures of GPUs, after which a job starts again from its last save. Seconds, but for mtbf_hours.
struct Failures {
  std::optional<double> mtbf_hours;     ///< between failures of one GPU; none: nothing fails
  std::optional<double> save_interval;  ///< of training between saves; none: the best one
  double save_time = 30;                ///< for which a save stops training
  double restart_time = 600;            ///< from a failure to training again
};

/// Memory to keep free: bytes, or a part of the GPU's memory.
using Reserve = std::variant<Bytes, Rational>;

struct JobOptions {
  CommonOptions common;  ///< model, machine, configuration
  /// Names of the flags that were set. Searches vary none of them, and engines that do not know
  /// one refuse the job.
  std::vector<std::string> given;
  EngineKind engine = EngineKind::mfsdp;
  EngineOptions engine_options;  ///< of engines of others
  bool memory_alone = false;     ///< predict no times, which fp64 has none of
  // The machine in detail.
  std::optional<PriceTables> tables;  ///< none: the default of the GPU's file
  AttentionChoice attention = AttentionChoice::warpgroups;
  std::optional<std::int64_t> power_limit;  ///< watts of each GPU
  std::optional<Rational> network_gbps;     ///< of one node, per direction
  Rational jitter{0, 1};                    ///< standard deviation of kernel times, a fraction
  std::vector<SlowRankFlag> slow_ranks;
  std::int64_t seed = 1;
  bool by_rank = false;
  Reserve reserve = Bytes(0);
  std::optional<Nanos> host_launch;       ///< time of the host to launch a kernel
  std::optional<RoutingFlag> routing;     ///< none: balanced, and not reported
  std::optional<std::string> alloc_conf;  ///< PYTORCH_CUDA_ALLOC_CONF
  std::optional<Bytes> memory_limit;      ///< of what the allocator reserves
  // What predictions are compared with.
  std::optional<std::string> anchor;  ///< file of a measured run that scales predictions
  std::vector<GpuPrice> prices;       ///< empty: no costs are asked for
  Failures failures;                  ///< that days and costs count
};

}  // namespace mfsdp
