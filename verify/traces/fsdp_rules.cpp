#include <algorithm>
#include <array>

#include "verify/traces/configuration_rules.hpp"
#include "verify/traces/fsdp_facts.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::string_view kArguments = "NVIDIA/Megatron-LM megatron/training/arguments.py";
constexpr std::string_view kFullyShard =
    "NVIDIA/Megatron-LM megatron/core/distributed/fsdp/src/megatron_fsdp/fully_shard.py";
constexpr std::string_view kDdpConfig =
    "NVIDIA/Megatron-LM megatron/core/distributed/distributed_data_parallel_config.py";
constexpr std::string_view kAdapter =
    "NVIDIA/Megatron-LM megatron/core/distributed/fsdp/mcore_fsdp_adapter.py";
constexpr std::string_view kTransformerConfig =
    "NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py";
constexpr std::string_view kBridge =
    "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/training/config.py";

Broken unknown_strategy(const Configuration& c) {
  static constexpr std::array inner{"", "no_shard", "optim", "optim_grads", "optim_grads_params"};
  static constexpr std::array outer{"", "no_shard", "optim"};
  if (std::ranges::find(inner, inner_strategy(c)) == inner.end())
    return shown(c, "data_parallel_sharding_strategy");
  if (std::ranges::find(outer, outer_strategy(c)) == outer.end())
    return shown(c, "outer_dp_sharding_strategy");
  return std::nullopt;
}

Broken two_fsdp(const Configuration& c) {
  if (!is_megatron_fsdp(c) || !c.is_on("use_torch_fsdp2")) return std::nullopt;
  return shown(c, "use_megatron_fsdp") + ", " + shown(c, "use_torch_fsdp2");
}

/// Megatron-LM always requires the format, and has another default. Megatron-Bridge requires it
/// only from runs that save or load.
Broken checkpoint_format(const Configuration& c) {
  const auto format = c.find("ckpt_format");
  const bool right = format && format->value == "fsdp_dtensor";
  if (!is_megatron_fsdp(c))
    return right ? Broken(shown(c, "ckpt_format") + " without Megatron-FSDP") : std::nullopt;
  const bool used = c.find("save") || c.find("load");
  if (right || (!c.is_flag("use_megatron_fsdp") && !(used && format))) return std::nullopt;
  return shown(c, "ckpt_format");
}

Broken weight_hash(const Configuration& c) {
  constexpr std::string_view kHash = "check_weight_hash_across_dp_replicas_interval";
  if (!is_megatron_fsdp(c) || !c.find(kHash) || inner_strategy(c) != "optim_grads_params")
    return std::nullopt;
  return shown(c, kHash);
}

Broken outer_needs_inner(const Configuration& c) {
  const std::string inner = inner_strategy(c);
  if (!is_sharded(c) || outer_strategy(c) != "optim" || inner == "optim_grads_params" ||
      inner.empty())
    return std::nullopt;
  return shown(c, "outer_dp_sharding_strategy") + ", " +
         shown(c, "data_parallel_sharding_strategy");
}

Broken outer_needs_instances(const Configuration& c) {
  constexpr std::string_view kInstances = "num_distributed_optimizer_instances";
  if (!is_megatron_fsdp(c) || outer_strategy(c) != "optim") return std::nullopt;
  const bool unknown = !c.find(kInstances) && c.is_on(kInstances);  // "$GROUPS"
  if (unknown || c.number(kInstances).value_or(1) > 1) return std::nullopt;
  return shown(c, "outer_dp_sharding_strategy") + ", " + shown(c, kInstances);
}

Broken meta_init(const Configuration& c) {
  if (!is_megatron_fsdp(c) || !c.is_on("init_model_with_meta_device") ||
      inner_strategy(c) != "no_shard")
    return std::nullopt;
  return shown(c, "init_model_with_meta_device") + ", " +
         shown(c, "data_parallel_sharding_strategy");
}

Broken gather_overlap(const Configuration& c) {
  if (!c.is_on("overlap_param_gather") || c.is_on("overlap_grad_reduce")) return std::nullopt;
  if (!c.is_flag("overlap_param_gather") && !c.is_off("overlap_grad_reduce")) return std::nullopt;
  return shown(c, "overlap_param_gather") + ", " + shown(c, "overlap_grad_reduce");
}

Broken rank_mapping(const Configuration& c) {
  if (!is_megatron_fsdp(c) || !c.is_on("use_tp_pp_dp_mapping")) return std::nullopt;
  return shown(c, "use_tp_pp_dp_mapping");
}

Broken manual_registration(const Configuration& c) {
  if (!c.is_on("fsdp_manual_registration") || c.is_on("nccl_ub")) return std::nullopt;
  return shown(c, "fsdp_manual_registration") + ", " + shown(c, "nccl_ub");
}

Broken average_in_collective(const Configuration& c) {
  const bool on = c.is_on("average_in_collective") || c.is_on("ddp_average_in_collective");
  if (!is_megatron_fsdp(c) || !on || !c.is_on("nccl_ub") ||
      c.is_on("disable_symmetric_registration"))
    return std::nullopt;
  return shown(
      c, c.find("average_in_collective") ? "average_in_collective" : "ddp_average_in_collective");
}

Broken mxfp8_buffer(const Configuration& c) {
  if (!is_megatron_fsdp(c) || !c.is_on("reuse_grad_buf_for_mxfp8_param_ag")) return std::nullopt;
  return shown(c, "reuse_grad_buf_for_mxfp8_param_ag");
}

Broken unsupported_optimizer(const Configuration& c) {
  const auto name = c.find("optimizer");
  if (!is_megatron_fsdp(c) || !name || name->value == "adam" || name->value == "sgd")
    return std::nullopt;
  return shown(c, "optimizer");
}

Broken grouped_weight(const Configuration& c) {
  for (const std::string_view name : {"moe_single_grouped_weight", "moe_single_grouped_bias"})
    if (is_megatron_fsdp(c) && c.is_on(name)) return shown(c, name);
  return std::nullopt;
}

Broken hybrid_context(const Configuration& c) {
  if (!is_megatron_fsdp(c) || !c.is_on("hybrid_context_parallel")) return std::nullopt;
  return shown(c, "hybrid_context_parallel");
}

Broken distributed_optimizer(const Configuration& c) {
  if (!is_megatron_fsdp(c) || is_version_2(c) || !c.is_off("use_distributed_optimizer"))
    return std::nullopt;
  return shown(c, "use_distributed_optimizer");
}

Broken other_parallelism(const Configuration& c) {
  if (is_version_2(c)) return std::nullopt;  // reported by MF726
  for (const std::string_view name : {"tensor_model_parallel_size", "context_parallel_size"})
    if (is_sharded(c) && c.number(name).value_or(1) > 1) return shown(c, name);
  return std::nullopt;
}

Broken accumulation_fusion(const Configuration& c) {
  constexpr std::string_view kFusion = "gradient_accumulation_fusion";
  const bool version_1 = is_megatron_fsdp(c) && !is_version_2(c);
  if (!version_1 || !inner_strategy(c).starts_with("optim_grads") || c.is_off(kFusion))
    return std::nullopt;
  if (!c.is_flag("use_megatron_fsdp") && !c.is_on(kFusion)) return std::nullopt;
  return c.is_on(kFusion) ? shown(c, kFusion) : "no --no-gradient-accumulation-fusion";
}

Broken torch_fsdp2(const Configuration& c) {
  if (!c.is_on("use_torch_fsdp2")) return std::nullopt;
  for (const std::string_view name : {"pipeline_model_parallel_size", "expert_model_parallel_size"})
    if (c.number(name).value_or(1) > 1) return shown(c, name);
  for (const std::string_view name : {"use_distributed_optimizer", "fp16"})
    if (c.is_on(name)) return shown(c, name);
  if (!c.is_flag("use_torch_fsdp2")) return std::nullopt;
  if (!c.is_off("gradient_accumulation_fusion")) return "no --no-gradient-accumulation-fusion";
  if (!c.is_on("untie_embeddings_and_output_weights"))
    return "no --untie-embeddings-and-output-weights";
  const auto format = c.find("ckpt_format");
  if (format && format->value != "torch_dist" && format->value != "torch_dcp")
    return shown(c, "ckpt_format");
  return std::nullopt;
}

Broken async_save(const Configuration& c) {
  const auto format = c.find("ckpt_format");
  if (!c.is_on("async_save") || !format || format->value == "torch_dist" ||
      format->value == "fsdp_dtensor")
    return std::nullopt;
  return shown(c, "async_save") + ", " + shown(c, "ckpt_format");
}

/// An unset strategy counts only in Megatron-Bridge's form: the command line has another default,
/// and verl sets its own.
Broken unsharded(const Configuration& c) {
  const std::string inner = inner_strategy(c);
  if (!is_megatron_fsdp(c)) {
    const bool asked = !inner.empty() && inner != "no_shard";
    if (!asked || c.is_on("use_torch_fsdp2") || c.is_on(kOwnPlan)) return std::nullopt;
    return shown(c, "data_parallel_sharding_strategy") + " without Megatron-FSDP";
  }
  const auto setting = c.find("use_megatron_fsdp");
  const bool nested =
      setting && (setting->place.starts_with("ddp.") || setting->place.starts_with("dist."));
  if (inner == "no_shard" || (inner.empty() && nested))
    return shown(c, "data_parallel_sharding_strategy");
  return std::nullopt;
}

Broken version_2_optimizer(const Configuration& c) {
  if (!is_version_2(c) || !c.is_on("use_distributed_optimizer")) return std::nullopt;
  return shown(c, "use_distributed_optimizer");
}

/// The setting that enables CUDA graphs of layers or of the iteration; none if they are not used.
/// The scope full_iteration is the former name of an implementation.
struct CudaGraphs {
  std::string_view setting;
  bool of_layers = true;
};
std::optional<CudaGraphs> cuda_graphs(const Configuration& c) {
  for (const std::string_view name : {"cuda_graph_scope", "cuda_graph_modules"}) {
    const auto scope = c.find(name);
    if (scope && (scope->value == "full_iteration" || scope->value == R"(["full_iteration"])"))
      return CudaGraphs{.setting = name, .of_layers = false};
  }
  if (const auto implementation = c.find("cuda_graph_impl"))
    return CudaGraphs{.setting = "cuda_graph_impl",
                      .of_layers = implementation->value != "full_iteration"};
  for (const std::string_view name : {"enable_cuda_graph", "external_cuda_graph"})
    if (c.is_on(name)) return CudaGraphs{.setting = name};
  return std::nullopt;
}

/// Defaults of Megatron-LM's command line that version 2 rejects: no_shard, fused accumulation,
/// and manual registration with --use-nccl-ub.
Broken version_2_defaults(const Configuration& c) {
  if (!c.is_flag("use_megatron_fsdp")) return std::nullopt;
  if (!c.is_on("data_parallel_sharding_strategy"))
    return "no --data-parallel-sharding-strategy optim_grads_params";
  if (!c.is_off("gradient_accumulation_fusion")) return "no --no-gradient-accumulation-fusion";
  if (c.is_flag("nccl_ub") && c.is_on("nccl_ub"))
    return shown(c, "nccl_ub") + " (registers buffers manually)";
  return std::nullopt;
}

/// Settings that the constructor of version 2's wrapper rejects.
Broken version_2_limits(const Configuration& c) {
  if (!is_version_2(c)) return std::nullopt;
  for (const std::string_view name :
       {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"})
    if (c.number(name).value_or(1) > 1) return shown(c, name);
  const std::string inner = inner_strategy(c);
  if (!inner.empty() && inner != "optim_grads_params")
    return shown(c, "data_parallel_sharding_strategy");
  if (outer_strategy(c) == "optim") return shown(c, "outer_dp_sharding_strategy");
  for (const std::string_view name :
       {"gradient_accumulation_fusion", "calculate_per_token_loss", "fp8_format", "fp8",
        "fp4_format", "fp4", "fp8_param_gather", "fp4_param_gather",
        "megatron_fsdp_cuda_graph_mode", "fsdp_db_use_persist_buf_on_alloc_fail",
        "fsdp_manual_registration", "delay_wgrad_compute", "suggested_communication_unit_size",
        "num_buckets", "megatron_fsdp_use_decoupled_grad",
        "megatron_fsdp_enable_fine_grained_param_gather", "megatron_fsdp_max_pool_double_buffer"})
    if (c.is_on(name)) return shown(c, name);
  if (const auto graphs = cuda_graphs(c)) return shown(c, graphs->setting);
  if (c.is_on("nccl_ub") && c.is_on("disable_symmetric_registration"))
    return shown(c, "disable_symmetric_registration");
  return version_2_defaults(c);
}

/// Offload of some layers' activations to the host, overlapped with the compute of others.
Broken offloaded_activations(const Configuration& c) {
  constexpr std::string_view kLayers = "cpu_offloading_num_layers";
  const bool by_layers = c.is_flag(kLayers) && c.number(kLayers).value_or(0) > 0;
  if (!c.is_on("cpu_offloading") && !by_layers) return std::nullopt;
  const std::string offloaded = shown(c, by_layers ? kLayers : "cpu_offloading") + ", ";
  if (c.number("pipeline_model_parallel_size").value_or(1) > 1)
    return offloaded + shown(c, "pipeline_model_parallel_size");
  for (const std::string_view name :
       {"recompute_granularity", "recompute_activations", "fine_grained_activation_offloading"})
    if (c.is_on(name)) return offloaded + shown(c, name);
  if (const auto graphs = cuda_graphs(c); graphs && graphs->of_layers)
    return offloaded + shown(c, graphs->setting);
  return std::nullopt;
}

/// Judges only command lines: they contain all settings, so a missing flag means off.
Broken gather_of_whole_weights(const Configuration& c) {
  constexpr std::string_view kOverlap = "overlap_param_gather";
  const bool asked = c.is_flag(kOverlap) && c.is_on(kOverlap);
  if (!asked || c.is_on("use_distributed_optimizer") || is_megatron_fsdp(c)) return std::nullopt;
  const auto optimizer = c.find("optimizer");
  if (optimizer && optimizer->value == "dist_muon") return std::nullopt;
  return shown(c, kOverlap) + ", no --use-distributed-optimizer";
}

Broken unknown_version(const Configuration& c) {
  const auto version = c.find("megatron_fsdp_version");
  if (!version || version->value == "1" || version->value == "2") return std::nullopt;
  return shown(c, "megatron_fsdp_version");
}

Broken buckets(const Configuration& c) {
  if (!c.find("num_buckets")) return std::nullopt;
  if (c.find("bucket_size")) return shown(c, "num_buckets") + ", " + shown(c, "bucket_size");
  if (c.number("num_buckets").value_or(1) < 1) return shown(c, "num_buckets");
  return std::nullopt;
}

/// --use-nccl-ub enables the double buffer; nccl_ub in other places does not.
Broken expert_overlap(const Configuration& c) {
  const bool version_1 = is_megatron_fsdp(c) && !is_version_2(c);
  if (!version_1 || !c.is_on("overlap_moe_expert_parallel_comm")) return std::nullopt;
  for (const std::string_view name : {"fsdp_double_buffer", "megatron_fsdp_max_pool_double_buffer"})
    if (c.is_on(name)) return shown(c, name);
  if (c.is_flag("nccl_ub") && c.is_on("nccl_ub")) return shown(c, "nccl_ub");
  if (const auto graphs = cuda_graphs(c); graphs && graphs->of_layers)
    return shown(c, graphs->setting);
  return std::nullopt;
}

Broken precision_aware(const Configuration& c) {
  constexpr std::string_view kAware = "use_precision_aware_optimizer";
  if (!c.is_on(kAware)) return std::nullopt;
  const auto optimizer = c.find("optimizer");
  if (optimizer && optimizer->value != "adam")
    return shown(c, kAware) + ", " + shown(c, "optimizer");
  const bool unsharded =
      c.is_flag(kAware) && !is_megatron_fsdp(c) && !c.is_on("use_distributed_optimizer");
  if (unsharded) return shown(c, kAware) + ", no --use-distributed-optimizer";
  return std::nullopt;
}

constexpr std::array kConfigurationRules{
    ConfigurationRule{"MF701", "there is no such sharding strategy",
                      "use no_shard, optim, optim_grads or optim_grads_params (outer: no_shard or "
                      "optim)",
                      kFullyShard, unknown_strategy},
    ConfigurationRule{"MF702", "Megatron-FSDP and PyTorch's FSDP2 cannot be combined",
                      "switch one of them off",
                      "NVIDIA/Megatron-LM megatron/training/models/dist_utils.py", two_fsdp},
    ConfigurationRule{"MF703", "only Megatron-FSDP saves fsdp_dtensor, and it saves nothing else",
                      "set ckpt_format to fsdp_dtensor, and to torch_dist without Megatron-FSDP",
                      kArguments, checkpoint_format},
    ConfigurationRule{"MF704", "with optim_grads_params no rank holds full weights to hash",
                      "leave the weight hash check out", kArguments, weight_hash},
    ConfigurationRule{"MF705", "an outer optim needs an inner optim_grads_params",
                      "use optim_grads_params inside, or no_shard outside", kFullyShard,
                      outer_needs_inner},
    ConfigurationRule{"MF706", "there is no outer axis: the strategy has no effect or fails",
                      "set num_distributed_optimizer_instances to the number of groups", kDdpConfig,
                      outer_needs_instances},
    ConfigurationRule{"MF707", "no_shard keeps full weights, which meta tensors do not have",
                      "shard, or leave init_model_with_meta_device out", kFullyShard, meta_init},
    ConfigurationRule{"MF708", "gathers overlap only where reductions do",
                      "set overlap_grad_reduce too", kArguments, gather_overlap},
    ConfigurationRule{"MF709", "Megatron-FSDP needs the standard order of ranks",
                      "leave use_tp_pp_dp_mapping out", kBridge, rank_mapping},
    ConfigurationRule{"MF710", "only NCCL's user buffers are registered",
                      "set nccl_ub (--use-nccl-ub) too", kArguments, manual_registration},
    ConfigurationRule{"MF712",
                      "symmetric reduce-scatters only sum: averaging in the collective is switched "
                      "off",
                      "leave it out, or disable symmetric registration", kBridge,
                      average_in_collective},
    ConfigurationRule{"MF713", "Megatron-FSDP has no such buffer: the setting is switched off",
                      "leave it out", kBridge, mxfp8_buffer},
    ConfigurationRule{"MF714", "Megatron-FSDP supports only adam and sgd",
                      "use adam, or no Megatron-FSDP", kArguments, unsupported_optimizer},
    ConfigurationRule{"MF715", "Megatron-FSDP cannot remap weights that experts share",
                      "leave it out", kArguments, grouped_weight},
    ConfigurationRule{"MF716", "hybrid context parallelism does not support Megatron-FSDP",
                      "use context_parallel_size", kArguments, hybrid_context},
    ConfigurationRule{"MF717",
                      "version 1 of Megatron-FSDP always enables the distributed optimizer",
                      "leave it out", kBridge, distributed_optimizer},
    ConfigurationRule{"MF718",
                      "before Blackwell tensor and context parallelism need "
                      "CUDA_DEVICE_MAX_CONNECTIONS=1, which FSDP forbids",
                      "prefer one of them", kArguments, other_parallelism},
    ConfigurationRule{"MF719",
                      "fused accumulation adds to gradients that FSDP must overwrite, unless "
                      "Transformer Engine supports it",
                      "use --no-gradient-accumulation-fusion with an older Transformer Engine",
                      kArguments, accumulation_fusion},
    ConfigurationRule{"MF720", "PyTorch's FSDP2 does not support it in Megatron-LM",
                      "change it, or use Megatron-FSDP", kArguments, torch_fsdp2},
    ConfigurationRule{"MF721", "only torch_dist and fsdp_dtensor support asynchronous saves",
                      "change ckpt_format, or leave async_save out", kBridge, async_save},
    ConfigurationRule{"MF722", "nothing is sharded",
                      "set data_parallel_sharding_strategy and use_megatron_fsdp together",
                      kDdpConfig, unsharded},
    ConfigurationRule{"MF723",
                      "version 2 of Megatron-FSDP has its own optimizer and rejects this one",
                      "leave use_distributed_optimizer out", kArguments, version_2_optimizer},
    ConfigurationRule{"MF724",
                      "overlapped expert communication cannot be combined with Megatron-FSDP's "
                      "double buffer or CUDA graphs of layers",
                      "leave it out, or overlap_moe_expert_parallel_comm", kAdapter,
                      expert_overlap},
    ConfigurationRule{"MF725", "the precision-aware optimizer needs adam and sharded states",
                      "use adam, sharded, or leave it out",
                      "NVIDIA/Megatron-LM megatron/core/optimizer/{__init__,optimizer_config}.py",
                      precision_aware},
    ConfigurationRule{"MF726", "version 2 of Megatron-FSDP does not support it",
                      "change it, or use version 1", kAdapter, version_2_limits},
    ConfigurationRule{"MF727",
                      "offload of activations cannot be combined with recomputation, pipeline "
                      "stages, fine-grained offload or CUDA graphs of layers",
                      "leave one of them out", kTransformerConfig, offloaded_activations},
    ConfigurationRule{"MF728", "unsharded weights are not gathered: there is nothing to overlap",
                      "use the distributed optimizer or Megatron-FSDP, or leave it out", kArguments,
                      gather_of_whole_weights},
    ConfigurationRule{"MF729", "Megatron-FSDP has only versions 1 and 2", "use 1 or 2", kDdpConfig,
                      unknown_version},
    ConfigurationRule{"MF730", "the size of buckets follows from their number, at least 1",
                      "set one of num_buckets and bucket_size", kDdpConfig, buckets},
};

}  // namespace

std::span<const ConfigurationRule> configuration_rules() { return kConfigurationRules; }

}  // namespace mfsdp::traces
