// The flags of mfsdp-sim: the common ones and its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/cli/common_options.hpp"
#include "core/cli/help.hpp"
#include "core/plan/attention_choice.hpp"
#include "core/plan/engine.hpp"
#include "core/plan/price_tables.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {

/// A longer answer to one question, printed after the usual text.
enum class Explain { memory, layout, critical_path, network };

template <>
struct Names<Explain> {
  static constexpr std::array<std::string_view, 4> values{"memory", "layout", "critical-path",
                                                          "network"};
};

/// What to look for.
enum class Find { max_micro_batch, max_seq_len, min_gpus, fastest, cheapest };

template <>
struct Names<Find> {
  static constexpr std::array<std::string_view, 5> values{"max-micro-batch", "max-seq-len",
                                                          "min-gpus", "fastest", "cheapest"};
};

/// A rank whose kernels take `factor` times as long.
struct SlowRankFlag {
  std::int64_t rank = 0;
  Rational factor{1, 1};
};

/// How a router spreads tokens over experts; balanced where it says nothing more.
struct RoutingFlag {
  std::string text;              ///< as it was given
  std::optional<Rational> zipf;  ///< the exponent of a Zipf's law
  bool is_file = false;          ///< `text` names counts
};

/// What one GPU costs for one hour.
struct GpuPrice {
  std::string gpu;  ///< catalogue name; empty: every kind
  Rational price{0, 1};
};

/// Memory to keep free: bytes, or a part of the GPU's memory.
using Reserve = std::variant<Bytes, Rational>;

struct SimOptions {
  CommonOptions common;
  std::vector<std::string> given;  ///< names of the flags on the command line
  bool memory_alone = false;       ///< no flag: times are not asked for, and may be of fp64
  // The machine.
  std::optional<PriceTables> tables;  ///< none: those that the GPU's file has as its default
  AttentionChoice attention = AttentionChoice::warpgroups;
  std::optional<std::int64_t> power_limit;  ///< watts of each GPU
  std::optional<Rational> network_gbps;     ///< of one node, per direction
  Rational jitter{0, 1};                    ///< standard deviation of kernel times, a fraction
  std::vector<SlowRankFlag> slow_ranks;
  std::int64_t seed = 1;
  bool by_rank = false;
  Reserve reserve = Bytes(0);
  std::optional<Nanos> host_launch;    ///< of the host, to launch a kernel
  std::optional<RoutingFlag> routing;  ///< none: balanced, and nothing is said of it
  // Questions.
  std::optional<Find> find;
  std::optional<std::string> tune_out;  ///< where the winner's flags become a file for --options
  std::optional<std::int64_t> tokens;   ///< to train on
  std::vector<GpuPrice> prices;         ///< empty: not asked
  bool list_models = false;
  bool list_gpus = false;
  bool list_clusters = false;
  bool require_fit = false;
  bool allow_within_error = false;  ///< of --require-fit: what barely fits passes, too
  std::optional<Explain> explain;
  std::optional<std::string> budget;      ///< limits that the run must keep
  bool allow_incomparable = false;        ///< a budget of another model or machine is no failure
  std::optional<std::string> budget_out;  ///< where the run's own values become a budget
  // Trust.
  bool fidelity = false;
  bool published = false;
  std::optional<std::string> anchor;         ///< a measured run
  std::vector<std::string> calibrate;        ///< measurements to fit
  std::optional<std::string> calibrate_out;  ///< the GPU or cluster file to write
  // Other engines.
  EngineKind engine = EngineKind::mfsdp;
  bool compare_engines = false;                ///< as a list of --engine says
  std::optional<std::string> replay;           ///< a memory snapshot of PyTorch
  std::optional<std::string> alloc_conf;       ///< as PYTORCH_CUDA_ALLOC_CONF has it
  std::optional<Bytes> memory_limit;           ///< of what is reserved
  std::optional<std::string> memory_snapshot;  ///< where the predicted allocations go
};

/// What mfsdp-sim would be asked with the common flags of another tool.
[[nodiscard]] SimOptions same_question(const CommonOptions& common,
                                       const std::vector<std::string>& given);

/// All flag groups of mfsdp-sim, bound to `options`.
[[nodiscard]] std::vector<FlagGroup> sim_flags(SimOptions& options);

/// Those of them that change what a plan costs, and no plan.
[[nodiscard]] std::vector<FlagGroup> price_flags(SimOptions& options);

/// The arguments with --compare-engines as the list of --engine that it stands for. Errors name an
/// --engine beside it.
[[nodiscard]] Result<std::vector<std::string>> with_all_engines(std::vector<std::string> args);

/// Reads the arguments (without the program's name) and checks them against each other.
[[nodiscard]] Result<SimOptions> parse_sim_options(const std::vector<std::string>& args);

/// The options of a sweep's combinations, as parse_sim_options reads them from their arguments. The
/// arguments are read once; after that only the axes' values change, a thousand times as fast.
class SweptOptions {
 public:
  [[nodiscard]] static Result<SweptOptions> parse(const Sweep& sweep);

  [[nodiscard]] Result<SimOptions> combination(std::size_t index);

 private:
  explicit SweptOptions(const Sweep& sweep);

  const Sweep* sweep_;
  std::unique_ptr<SimOptions> current_;  ///< the flags write here
  std::vector<FlagGroup> groups_;
  SimOptions first_;
};

/// The error of a flag that asks about one run where there are several (`several`: what asks for
/// them), as --trace does with a comma list.
[[nodiscard]] Result<void> check_several(const SimOptions& options, const std::string& several);

/// What --help says around the flags.
[[nodiscard]] HelpText sim_help();

}  // namespace mfsdp
