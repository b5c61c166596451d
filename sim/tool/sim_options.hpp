// The flags of mfsdp-sim: the common ones and its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cli/common_options.hpp"
#include "core/cli/help.hpp"
#include "sim/search/job_options.hpp"

namespace mfsdp {

/// A longer answer to one question, printed after the usual text.
enum class Explain { memory, layout, critical_path, network };

template <>
struct Names<Explain> {
  static constexpr std::array<std::string_view, 4> values{"memory", "layout", "critical-path",
                                                          "network"};
};

/// The goal of --find.
enum class Find { max_micro_batch, max_seq_len, min_gpus, fastest, cheapest, pareto };

/// Whether the goal is the best of all settings, and no limit of one number.
[[nodiscard]] constexpr bool chooses(Find find) { return find >= Find::fastest; }

template <>
struct Names<Find> {
  static constexpr std::array<std::string_view, 6> values{
      "max-micro-batch", "max-seq-len", "min-gpus", "fastest", "cheapest", "pareto"};
};

struct SimOptions : JobOptions {
  // Questions.
  std::optional<Find> find;
  std::vector<std::string> axes;        ///< further fields that --find chooses: "tp"
  std::optional<std::string> tune_out;  ///< where the winner's flags become a file for --options
  std::optional<std::int64_t> tokens;   ///< to train on
  bool list_models = false;
  bool list_gpus = false;
  bool list_clusters = false;
  bool require_fit = false;
  bool allow_within_error = false;  ///< --require-fit accepts a fit within the error
  std::optional<Explain> explain;
  std::optional<std::string> budget;      ///< limits that the run must keep
  bool allow_incomparable = false;        ///< a budget of another model or machine is no failure
  std::optional<std::string> budget_out;  ///< where the run's own values become a budget
  // Trust.
  bool fidelity = false;
  bool published = false;
  std::vector<std::string> calibrate;        ///< measurements to fit
  std::optional<std::string> calibrate_out;  ///< the GPU or cluster file to write
  // Other engines.
  bool compare_engines = false;                ///< expanded to a list of --engine
  std::optional<std::string> replay;           ///< a memory snapshot of PyTorch
  std::optional<std::string> memory_snapshot;  ///< where the predicted allocations go
};

/// All flag groups of mfsdp-sim, bound to `options`.
[[nodiscard]] std::vector<FlagGroup> sim_flags(SimOptions& options);

/// Those of them that change what a plan costs, and no plan.
[[nodiscard]] std::vector<FlagGroup> price_flags(SimOptions& options);

/// The arguments with --compare-engines as the list of --engine that it stands for. Errors name an
/// --engine beside it.
[[nodiscard]] Result<std::vector<std::string>> with_all_engines(std::vector<std::string> args);

/// Reads the arguments (without the program's name) and checks them against each other.
[[nodiscard]] Result<SimOptions> parse_sim_options(const std::vector<std::string>& args);

/// The errors of options that exclude or need each other. `groups`: those of sim_flags().
[[nodiscard]] Result<void> check_sim_options(const SimOptions& options,
                                             const std::vector<FlagGroup>& groups);

/// The error of a flag that asks about one run where there are several (`several`: what asks for
/// them), as --trace does with a comma list.
[[nodiscard]] Result<void> check_several(const SimOptions& options, const std::string& several);

/// The text of --help around the flags.
[[nodiscard]] HelpText sim_help();

}  // namespace mfsdp
