// The flags of mfsdp-verify: the common ones and its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cli/common_options.hpp"
#include "core/cli/help.hpp"

namespace mfsdp {

/// How findings are printed; SARIF is what code hosts read.
enum class FindingsFormat { text, json, md, sarif };

constexpr auto value_names(FindingsFormat) { return name_array("text", "json", "md", "sarif"); }

/// NAME=VALUE
struct EnvironmentVariable {
  std::string name;
  std::string value;
};

/// DB:RUN, a run of a store.
struct RunName {
  std::string store;  ///< path
  std::string run;    ///< "latest", or a word that find_run() takes: id, beginning of one, name
};

/// The last colon separates store and run, except the colon of "row:12", "id:3fa9" and "name:TEXT".
/// RUN without a store is a run of mfsdp.sqlite.
[[nodiscard]] Result<RunName> parse_run_name(const std::string& text);

/// The value of --bugs that stands for scenarios/bugs.
inline constexpr std::string_view kShippedBugs = "shipped";

struct VerifyOptions {
  CommonOptions common;
  std::vector<std::string> given;  ///< names of the flags on the command line
  FindingsFormat output = FindingsFormat::text;
  std::vector<std::string> kineto;               ///< traces of PyTorch's profiler, a rank each
  std::vector<std::string> flight_recorder;      ///< dumps of PyTorch, a rank each, or folders
  std::vector<std::string> nccl_inspector;       ///< logs of NCCL's inspector, or folders
  std::vector<std::string> config;               ///< configurations of other trainers
  std::optional<RunName> run;                    ///< a recorded run
  std::vector<EnvironmentVariable> environment;  ///< variables of the run
  bool list_rules = false;
  bool expand = false;                     ///< prove every rank by itself, too
  std::optional<std::string> certificate;  ///< file to write
  std::optional<std::string> check;        ///< certificate to re-check
  bool mutate = false;                     ///< judge the plan's mutants instead
  bool mutate_fields = false;              ///< judge changes of every field instead
  bool mutate_pairs = false;               ///< judge pairs of edits instead
  std::int64_t per_field = 32;             ///< changes of a field or pattern, at most
  std::optional<std::int64_t> mutant;      ///< write this change of a field to `mutant_out`
  std::optional<std::string> mutant_out;   ///< file
  std::optional<std::int64_t> mutants;     ///< number of mutants to judge, drawn with `seed`
  std::int64_t seed = 0;
  std::optional<std::string> bugs;  ///< folder of a bug corpus, or kShippedBugs

  /// Whether plans are changed and run.
  [[nodiscard]] bool runs_mutants() const { return mutate_fields || mutate_pairs; }
};

/// All flag groups of mfsdp-verify, bound to `options`.
[[nodiscard]] std::vector<FlagGroup> verify_flags(VerifyOptions& options);

/// Reads the arguments (without the program's name) and checks them against each other.
[[nodiscard]] Result<VerifyOptions> parse_verify_options(const std::vector<std::string>& args);

/// The text of --help around the flags.
[[nodiscard]] HelpText verify_help();

}  // namespace mfsdp
