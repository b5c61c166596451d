#include <algorithm>
#include <array>

#include "verify/traces/configuration_rules.hpp"
#include "verify/traces/fsdp_facts.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::string_view kNcclVariables =
    "NCCL user guide, Environment Variables "
    "(docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html)";
constexpr std::string_view kCudaVariables =
    "CUDA programming guide, CUDA Environment Variables "
    "(docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html)";
constexpr std::string_view kProcessGroup =
    "pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp";

Broken device_connections(const Configuration& c) {
  if (!is_sharded(c) || c.variable("CUDA_DEVICE_MAX_CONNECTIONS") != "1") return std::nullopt;
  return shown_variable(c, "CUDA_DEVICE_MAX_CONNECTIONS");
}

/// PYTORCH_ALLOC_CONF is the newer name of the same variable.
Broken expandable_segments(const Configuration& c) {
  for (const std::string_view name : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
    if (c.is_on("nccl_ub") &&
        c.variable(name).find("expandable_segments:True") != std::string_view::npos)
      return shown_variable(c, name);
  return std::nullopt;
}

Broken launch_order(const Configuration& c) {
  const bool several = c.is_on("create_all_gather_group") || c.is_on(kOwnPlan);
  if (!several || c.environment.empty() || c.variable("NCCL_LAUNCH_ORDER_IMPLICIT") == "1")
    return std::nullopt;
  return "no NCCL_LAUNCH_ORDER_IMPLICIT=1";
}

Broken launch_blocking(const Configuration& c) {
  if (c.variable("CUDA_LAUNCH_BLOCKING") != "1") return std::nullopt;
  return shown_variable(c, "CUDA_LAUNCH_BLOCKING");
}

Broken blocking_wait(const Configuration& c) {
  for (const std::string_view name : {"TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"})
    if (c.variable(name) == "1") return shown_variable(c, name);
  return std::nullopt;
}

Broken record_streams(const Configuration& c) {
  for (const std::string_view name :
       {"TORCH_NCCL_AVOID_RECORD_STREAMS", "NCCL_AVOID_RECORD_STREAMS"})
    if (!c.variable(name).empty()) return shown_variable(c, name);
  return std::nullopt;
}

Broken nvlink_sharp(const Configuration& c) {
  if (c.variable("NCCL_NVLS_ENABLE") != "0" || !(c.is_on("nccl_ub") || c.is_on("use_sharp")))
    return std::nullopt;
  return shown_variable(c, "NCCL_NVLS_ENABLE") + ", " +
         shown(c, c.is_on("nccl_ub") ? "nccl_ub" : "use_sharp");
}

Broken transport_off(const Configuration& c) {
  for (const std::string_view name : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"})
    if (c.variable(name) == "1") return shown_variable(c, name);
  return std::nullopt;
}

Broken no_symmetric_memory(const Configuration& c) {
  if (!c.is_on("nccl_ub") || c.is_on("disable_symmetric_registration")) return std::nullopt;
  for (const std::string_view name : {"NCCL_CUMEM_ENABLE", "NCCL_WIN_ENABLE"})
    if (c.variable(name) == "0") return shown_variable(c, name) + ", " + shown(c, "nccl_ub");
  return std::nullopt;
}

Broken deterministic_algorithm(const Configuration& c) {
  static constexpr std::array allowed{"Tree", "Ring", "CollnetDirect", "CollnetChain", "^NVLS"};
  if (!c.is_on("deterministic_mode") || c.environment.empty()) return std::nullopt;
  const std::string_view algorithm = c.variable("NCCL_ALGO");
  if (std::ranges::find(allowed, algorithm) != allowed.end()) return std::nullopt;
  return shown(c, "deterministic_mode") + ", " + shown_variable(c, "NCCL_ALGO");
}

constexpr std::array kEnvironmentRules{
    ConfigurationRule{"MF731",
                      "all streams share one hardware queue: gathers cannot run beside compute",
                      "leave it unset, or set it to 8 or more",
                      "NVIDIA/Megatron-LM megatron/training/arguments.py", device_connections},
    ConfigurationRule{"MF732",
                      "NCCL cannot register memory of expandable segments (before PyTorch 2.11)",
                      "leave expandable_segments out, or nccl_ub",
                      "NVIDIA/Megatron-LM megatron/core/distributed/"
                      "distributed_data_parallel_config.py",
                      expandable_segments},
    ConfigurationRule{"MF733",
                      "kernels of two communicators on one device can deadlock if ranks start them "
                      "in different orders",
                      "set NCCL_LAUNCH_ORDER_IMPLICIT=1 (NCCL 2.26 or later)", kNcclVariables,
                      launch_order},
    ConfigurationRule{"MF734", "every launch waits until its kernel ends: nothing overlaps",
                      "keep it for debugging", kCudaVariables, launch_blocking},
    ConfigurationRule{"MF735", "the host waits at every collective and cannot launch later work",
                      "keep it for debugging", kProcessGroup, blocking_wait},
    ConfigurationRule{"MF736", "it is PyTorch's default now, and the variable is deprecated",
                      "leave it out", kProcessGroup, record_streams},
    ConfigurationRule{
        "MF737", "user buffers save most SMs with NVLink SHARP, which is switched off",
        "leave NCCL_NVLS_ENABLE out where the system has it", kNcclVariables, nvlink_sharp},
    ConfigurationRule{"MF738", "a transport is switched off, which is meant for debugging",
                      "leave it out unless the machine needs it", kNcclVariables, transport_off},
    ConfigurationRule{"MF739",
                      "without cuMem and windows, symmetric registration silently falls back",
                      "leave the variable out, or disable symmetric registration",
                      "NVIDIA/nccl src/init.cc (symmetricSupport)", no_symmetric_memory},
    ConfigurationRule{"MF740", "NCCL may choose another algorithm, which sums in another order",
                      "set NCCL_ALGO to Tree, Ring, CollnetDirect, CollnetChain or ^NVLS",
                      "NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/training/config.py",
                      deterministic_algorithm},
};

}  // namespace

std::span<const ConfigurationRule> environment_rules() { return kEnvironmentRules; }

}  // namespace mfsdp::traces
