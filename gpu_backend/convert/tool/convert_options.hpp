// The flags of mfsdp-convert.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cli/help.hpp"
#include "gpu_backend/convert/convert_checkpoint.hpp"

namespace mfsdp {

enum class ConvertOutput { text, json };
constexpr auto value_names(ConvertOutput) { return name_array("text", "json"); }

enum class OptimizerFate { keep, drop };
constexpr auto value_names(OptimizerFate) { return name_array("keep", "drop"); }

struct ConvertOptions {
  std::vector<std::string> words;  ///< IN OUT, or those of an action
  bool inspect = false;
  bool check = false;
  bool diff = false;
  std::optional<CheckpointFormat> to;
  std::optional<NameStyle> names;
  std::optional<std::string> config;  ///< config.json or its folder
  std::optional<DType> dtype;
  OptimizerFate optimizer = OptimizerFate::keep;
  std::int64_t ranks = 1;
  std::int64_t memory = std::int64_t{2} << 30;
  bool dry_run = false;
  bool skip_elements = false;  ///< --check without reading elements
  ConvertOutput output = ConvertOutput::text;
  bool help = false;
  std::optional<HelpFormat> help_format;
  bool version = false;
  std::vector<std::string> notes;
};

[[nodiscard]] std::vector<FlagGroup> convert_flags(ConvertOptions& options);
/// Reads the arguments (without the program's name) and checks them against each other.
[[nodiscard]] Result<ConvertOptions> parse_convert_options(const std::vector<std::string>& args);
[[nodiscard]] Manual convert_manual();

}  // namespace mfsdp
