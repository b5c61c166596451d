// The flags that mfsdp-sim, mfsdp-verify and mfsdp-exec share, as one struct and as flag groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/vocabulary.hpp"
#include "core/cli/flags.hpp"
#include "core/cli/help.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

enum class OutputFormat { text, json, jsonl, csv, md };

constexpr auto value_names(OutputFormat) {
  return name_array("text", "json", "jsonl", "csv", "md");
}

/// The user's flags. Absent optional members were not given; their defaults depend on the model.
struct CommonOptions {
  std::string model = {};  ///< built-in name, config.json or its directory; empty with --plan
  std::int64_t gpus = 8;
  std::string gpu = "h100";                 ///< catalogue name or TOML file
  std::optional<std::string> cluster = {};  ///< TOML file, instead of `gpu`
  std::optional<std::int64_t> gpus_per_node = {};
  /// The fields as their flags set them. make_plan_config fills in the model, the mesh, the
  /// sequence length, the number of microbatches and the loss scale from the members below.
  PlanConfig config = {};
  std::int64_t outer_dp = 1;                      ///< groups of ranks
  std::int64_t context_parallel = 1;              ///< ranks that share each sequence
  std::int64_t tensor_parallel = 1;               ///< ranks that share the weights of each block
  std::int64_t pipeline_parallel = 1;             ///< stages of a pipeline
  MeshRules mesh_rules = MeshRules::planner;      ///< of the engine that trains
  std::optional<Strategy> outer_asked = {};       ///< by --strategy hsdp or hfsdp
  std::optional<std::int64_t> seq_len = {};       ///< tokens
  std::optional<std::int64_t> global_batch = {};  ///< sequences per step, over all ranks
  std::optional<std::int64_t> batch_tokens = {};  ///< tokens per step instead: --global-batch 4M
  std::optional<Rational> loss_scale = {};        ///< --loss-scale; 0 for "none"
  bool dynamic_loss_scale = false;                ///< --loss-scale dynamic
  std::optional<std::int64_t> loss_scale_window = {};
  std::optional<std::string> plan = {};          ///< take this plan instead of building one
  std::optional<std::string> options_file = {};  ///< with_options_file() has read it
  OutputFormat output = OutputFormat::text;
  std::optional<std::string> db = {};
  bool no_save = false;
  std::string name = {};
  std::optional<std::string> plan_out = {};
  std::optional<std::string> trace = {};
  std::optional<std::string> memory_trace = {};
  bool help = false;
  std::optional<HelpFormat> help_format = {};
  bool version = false;
  std::vector<std::string> notes = {};  ///< on the flags, for stderr

  /// The user asks for help or the version, and the tool does nothing else.
  [[nodiscard]] bool asks_about_tool() const { return help || help_format || version; }
  /// GPUs of a node if neither a cluster file nor the GPU's states their number.
  [[nodiscard]] std::int64_t node_size() const { return gpus_per_node.value_or(8); }
  /// Where results are stored: --db, else mfsdp.sqlite in the current folder.
  [[nodiscard]] std::string store_path() const { return db.value_or("mfsdp.sqlite"); }
};

/// --help-format, which every tool has.
[[nodiscard]] Flag help_format_flag(std::optional<HelpFormat>& target);

/// The flags of the model, its machine and the configuration, bound as common_flags() are.
[[nodiscard]] std::vector<FlagGroup> plan_flags(CommonOptions& options);

/// The groups of common flags, bound to `options`, which must outlive the parsing. Tools append
/// their own.
[[nodiscard]] std::vector<FlagGroup> common_flags(CommonOptions& options);

/// Contradictions between common flags. `given` are the names that parse_flags returned.
[[nodiscard]] Result<void> check_common(const CommonOptions& options,
                                        const std::vector<FlagGroup>& groups,
                                        const std::vector<std::string>& given);

/// Rewrites the error for the flags that the user gave: --gpus and --world-size mean the same, and
/// if only one was given, the error names that one. `arguments`: the command line.
[[nodiscard]] Error in_given_flags(Error error, const std::vector<std::string>& arguments);

}  // namespace mfsdp
