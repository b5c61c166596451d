#include "verify/traces/known_settings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/parse_json.hpp"
#include "core/base/text.hpp"

namespace mfsdp::traces {
namespace {

/// All names that rules look up in a Configuration (fsdp_rules.cpp, environment_rules.cpp,
/// axis_rules.cpp, fsdp_facts.hpp). A test compares them with these sources.
constexpr auto kSettings =
    std::to_array<std::string_view>({"async_save",
                                     "average_in_collective",
                                     "calculate_per_token_loss",
                                     "check_weight_hash_across_dp_replicas_interval",
                                     "ckpt_format",
                                     "context_parallel_size",
                                     "cp_comm_type",
                                     "cpu_offloading",
                                     "cpu_offloading_num_layers",
                                     "create_all_gather_group",
                                     "cuda_graph_impl",
                                     "cuda_graph_modules",
                                     "cuda_graph_scope",
                                     "data_parallel_sharding_strategy",
                                     "ddp_average_in_collective",
                                     "delay_wgrad_compute",
                                     "deterministic_mode",
                                     "disable_symmetric_registration",
                                     "enable_cuda_graph",
                                     "expert_model_parallel_size",
                                     "external_cuda_graph",
                                     "ffn_hidden_size",
                                     "fine_grained_activation_offloading",
                                     "fp4_format",
                                     "fp4_param_gather",
                                     "fp8_format",
                                     "fp8_param_gather",
                                     "fsdp_db_use_persist_buf_on_alloc_fail",
                                     "fsdp_double_buffer",
                                     "fsdp_manual_registration",
                                     "gradient_accumulation_fusion",
                                     "hybrid_context_parallel",
                                     "init_model_with_meta_device",
                                     "megatron_fsdp_cuda_graph_mode",
                                     "megatron_fsdp_enable_fine_grained_param_gather",
                                     "megatron_fsdp_max_pool_double_buffer",
                                     "megatron_fsdp_use_decoupled_grad",
                                     "megatron_fsdp_version",
                                     "moe_single_grouped_bias",
                                     "moe_single_grouped_weight",
                                     "nccl_ub",
                                     "nnodes",
                                     "nproc_per_node",
                                     "num_distributed_optimizer_instances",
                                     "num_query_groups",
                                     "outer_dp_sharding_strategy",
                                     "overlap_grad_reduce",
                                     "overlap_moe_expert_parallel_comm",
                                     "overlap_param_gather",
                                     "pipeline_model_parallel_size",
                                     "recompute_granularity",
                                     "reuse_grad_buf_for_mxfp8_param_ag",
                                     "seq_length",
                                     "sequence_parallel",
                                     "suggested_communication_unit_size",
                                     "tensor_model_parallel_size",
                                     "tp_comm_overlap",
                                     "untie_embeddings_and_output_weights",
                                     "use_distributed_optimizer",
                                     "use_megatron_fsdp",
                                     "use_megatron_fsdp_v2",
                                     "use_precision_aware_optimizer",
                                     "use_torch_fsdp2",
                                     "use_tp_pp_dp_mapping"});

/// Names that also occur in other trainers' configurations.
constexpr auto kCommonSettings = std::to_array<std::string_view>(
    {"bucket_size", "fp16", "fp4", "fp8", "hidden_size", "load", "nnodes", "nproc_per_node",
     "num_attention_heads", "num_buckets", "optimizer", "recompute_activations", "save",
     "use_sharp", "window_size"});

constexpr auto kVariables = std::to_array<std::string_view>(
    {"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "NCCL_ALGO",
     "NCCL_AVOID_RECORD_STREAMS", "NCCL_BLOCKING_WAIT", "NCCL_CUMEM_ENABLE", "NCCL_IB_DISABLE",
     "NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_NVLS_ENABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE",
     "NCCL_WIN_ENABLE", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
     "TORCH_NCCL_AVOID_RECORD_STREAMS", "TORCH_NCCL_BLOCKING_WAIT"});

bool is_in(const auto& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// A file of another program, recognised by one of its keys.
struct OtherFile {
  std::string_view key;
  std::string_view what;
};

constexpr std::string_view kDeepSpeed = "a configuration of DeepSpeed";
constexpr std::string_view kHfModel = "the config.json of a model (mfsdp-sim --model reads it)";
constexpr std::string_view kAccelerate = "a configuration of Accelerate";
constexpr std::string_view kTrainer = "arguments of transformers' Trainer";
constexpr std::string_view kAdapters = "a configuration of PEFT's adapters";

constexpr std::array kOtherFiles{
    OtherFile{"zero_optimization", kDeepSpeed},
    OtherFile{"train_micro_batch_size_per_gpu", kDeepSpeed},
    OtherFile{"zero_allow_untested_optimizer", kDeepSpeed},
    OtherFile{"deepspeed_config", kAccelerate},
    OtherFile{"fsdp_config", kAccelerate},
    OtherFile{"distributed_type", kAccelerate},
    OtherFile{"compute_environment", kAccelerate},
    OtherFile{"peft_type", kAdapters},
    OtherFile{"per_device_train_batch_size", kTrainer},
    OtherFile{"log_history", "the state of transformers' Trainer (mfsdp-report import reads it)"},
    OtherFile{"model_type", kHfModel},
    OtherFile{"architectures", kHfModel},
    OtherFile{"weight_map", "an index of safetensors"},
    OtherFile{"traceEvents", "a trace of PyTorch's profiler (--kineto reads it)"},
    OtherFile{"pg_config", "a dump of the flight recorder (--flight-recorder reads it)"},
    OtherFile{"config_hash", "a plan or result of mfsdp"},
    OtherFile{"schema", "a file with a schema, as results of mfsdp are"},
};

/// Sections of torchtitan's TOML.
constexpr auto kTorchtitanSections =
    std::to_array<std::string_view>({"[parallelism]", "[job]", "[training]"});

std::string with_sign(std::string_view what, std::string_view sign) {
  return fmt::format("{} (it has {})", what, sign);
}

std::optional<std::string> text_of_others(std::string_view text) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    for (const std::string_view section : kTorchtitanSections)
      if (line.starts_with(section)) return with_sign("a configuration of torchtitan", section);
    for (const OtherFile& other : kOtherFiles)
      if (line.starts_with(other.key) && line.substr(other.key.size()).starts_with(':'))
        return with_sign(fmt::format("{}, in YAML", other.what), other.key);
  }
  return std::nullopt;
}

std::string names_words(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 10;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kMost));
  std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return printable(text);
}

}  // namespace

SettingsSeen settings_seen(std::span<const Configuration> configurations) {
  std::set<std::string> looked_at;
  std::set<std::string> passed_over;
  SettingsSeen seen;
  for (const Configuration& configuration : configurations) {
    for (const auto& [name, setting] : configuration.settings) {
      const bool is_own = is_in(kSettings, name);
      seen.is_known_trainer = seen.is_known_trainer || is_own;
      (is_own || is_in(kCommonSettings, name) ? looked_at : passed_over).insert(name);
    }
    for (const auto& [name, value] : configuration.environment) {
      if (!is_in(kVariables, name)) continue;
      seen.is_known_trainer = true;
      looked_at.insert(name);
    }
  }
  seen.looked_at.assign(looked_at.begin(), looked_at.end());
  seen.passed_over.assign(passed_over.begin(), passed_over.end());
  return seen;
}

std::string settings_words(const SettingsSeen& seen) {
  std::string text = "settings looked at: " + names_words(seen.looked_at);
  if (!seen.passed_over.empty()) text += "; ignored: " + names_words(seen.passed_over);
  return text;
}

std::optional<std::string> configuration_of_others(std::string_view text) {
  const auto json = parse_python_json(text, "");
  if (!json) return text_of_others(text);
  if (!json->is_object()) return std::nullopt;
  for (const OtherFile& other : kOtherFiles)
    if (json->contains(other.key)) return with_sign(other.what, other.key);
  return std::nullopt;
}

}  // namespace mfsdp::traces
