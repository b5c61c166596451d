#include "gpu_backend/weights/peft_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"
#include "core/formats/json_fields.hpp"
#include "core/formats/safetensors.hpp"
#include "core/model/lora.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostPeftConfig = std::size_t{1} << 20;

/// Fields that change the result of adapters, or the set of trained weights. They must have PEFT's
/// default, or be missing.
constexpr std::array kUnused{"alpha_pattern",
                             "alora_invocation_tokens",
                             "corda_config",
                             "eva_config",
                             "exclude_modules",
                             "fan_in_fan_out",
                             "layer_replication",
                             "layers_pattern",
                             "layers_to_transform",
                             "lora_bias",
                             "megatron_config",
                             "modules_to_save",
                             "rank_pattern",
                             "target_parameters",
                             "trainable_token_indices",
                             "use_dora",
                             "use_qalora",
                             "use_rslora"};

bool is_unused(const Json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

/// A list of names, or one word for all of them.
Result<std::set<std::string>> targets_of(const Json& config, const ModelShape& model,
                                         const std::string& where) {
  MFSDP_LET(field, any_field(config, "target_modules", where));
  std::set<std::string> names;
  if (*field == "all-linear") {
    for (const LoraTarget& target : lora_targets(model)) names.emplace(target.name);
    return names;
  }
  if (field->is_array() &&
      std::ranges::all_of(*field, [](const Json& name) { return name.is_string(); })) {
    for (const Json& name : *field) names.insert(name.get<std::string>());
    return names;
  }
  return fail(where + ".target_modules",
              fmt::format("expected a list of names, got {}", json_excerpt(*field)));
}

}  // namespace

Result<std::string> peft_config_text(const PlanConfig& config) {
  const auto alpha = exact_double(config.lora_alpha);
  if (!alpha)
    return fail("--lora-alpha", "has no short decimal form, as adapter_config.json needs");
  nlohmann::ordered_json text{{"base_model_name_or_path", nullptr},
                              {"bias", "none"},
                              {"fan_in_fan_out", false},
                              {"inference_mode", true},
                              {"init_lora_weights", true},
                              {"lora_alpha", nullptr},
                              {"lora_dropout", 0.0},
                              {"modules_to_save", nullptr},
                              {"peft_type", "LORA"},
                              {"r", config.lora_rank},
                              {"target_modules", config.lora_targets},
                              {"task_type", "CAUSAL_LM"},
                              {"use_dora", false},
                              {"use_rslora", false}};
  if (config.lora_alpha.den == 1)
    text["lora_alpha"] = config.lora_alpha.num;
  else
    text["lora_alpha"] = *alpha;
  return text.dump(2) + "\n";
}

Result<void> check_peft_config(const std::filesystem::path& folder, const PlanConfig& config) {
  const std::filesystem::path path = folder / kPeftConfig;
  const std::string where = path.string();
  MFSDP_LET(text, read_file(path, "the configuration of PEFT's adapters", kMostPeftConfig));
  MFSDP_LET(json, parse_json(text, where));
  if (!json.is_object()) return fail(where, "expected an object, got " + json_excerpt(json));
  MFSDP_LET(type, text_field(json, "peft_type", where));
  if (type != "LORA")
    return fail(where + ".peft_type", fmt::format("expected LORA, got {}", shown_name(type)));
  for (const char* name : kUnused)
    if (json.contains(name) && !is_unused(json[name]))
      return fail(fmt::format("{}.{}", where, name),
                  fmt::format("is not modelled (docs/reference/limits.md): expected none, got {}",
                              json_excerpt(json[name])));
  if (json.contains("bias") && json["bias"] != "none")
    return fail(where + ".bias",
                fmt::format("is not modelled (docs/reference/limits.md): expected none, got {}",
                            json_excerpt(json["bias"])));
  MFSDP_LET(rank, integer_field(json, "r", where));
  if (rank != config.lora_rank)
    return fail(where + ".r",
                fmt::format("expected {}, as --lora-rank sets, got {}", config.lora_rank, rank));
  MFSDP_LET(alpha, number_field(json, "lora_alpha", where));
  if (alpha != config.lora_alpha.value())
    return fail(where + ".lora_alpha", fmt::format("expected {}, as --lora-alpha sets, got {}",
                                                   config.lora_alpha.value(), alpha));
  MFSDP_LET(targets, targets_of(json, config.model, where));
  if (targets != std::set<std::string>(config.lora_targets.begin(), config.lora_targets.end()))
    return fail(where + ".target_modules",
                fmt::format("expected {}, as --lora-targets sets, got {}",
                            fmt::join(config.lora_targets, ","), fmt::join(targets, ",")));
  return {};
}

}  // namespace mfsdp
