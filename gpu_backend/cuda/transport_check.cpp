#include "gpu_backend/cuda/transport_check.hpp"

#include <cuda.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "core/plan/transport.hpp"
#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {
namespace {

/// Prefix of the names of all of NCCL's symmetric kernels.
constexpr std::string_view kSymmetricKernel = "ncclSymk";

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

/// A function of the driver, which this program does not link.
template <class Function>
Result<Function*> driver_function(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  MFSDP_TRY(
      check(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status),
            "cudaGetDriverEntryPointByVersion", name));
  if (status != cudaDriverEntryPointSuccess || found == nullptr)
    return fail(name, "the driver lacks it", Fault::environment);
  return reinterpret_cast<Function*>(found);
}

Result<void> check_driver(CUresult status, std::string_view call) {
  if (status == CUDA_SUCCESS) return {};
  return check_failed(call, "", fmt::format("the driver's error {}", static_cast<int>(status)));
}

/// Whether a node is a kernel. The runtime has no name for memory operations, by which copy engines
/// wait for each other, and returns an error for such a node.
Result<bool> is_kernel(cudaGraphNode_t node) {
  MFSDP_LET(type_of,
            driver_function<CUresult(CUgraphNode, CUgraphNodeType*)>("cuGraphNodeGetType", 10000));
  CUgraphNodeType type{};
  MFSDP_TRY(check_driver(type_of(node, &type), "cuGraphNodeGetType"));
  return type == CU_GRAPH_NODE_TYPE_KERNEL;
}

/// The name of a node that is a kernel.
Result<std::string> kernel_name(cudaGraphNode_t node) {
  using Params = CUDA_KERNEL_NODE_PARAMS_v2;
  MFSDP_LET(params_of,
            driver_function<CUresult(CUgraphNode, Params*)>("cuGraphKernelNodeGetParams", 12000));
  Params params{};
  MFSDP_TRY(check_driver(params_of(node, &params), "cuGraphKernelNodeGetParams"));
  const char* name = nullptr;
  if (params.func != nullptr) {
    MFSDP_LET(name_of, driver_function<CUresult(const char**, CUfunction)>("cuFuncGetName", 12030));
    MFSDP_TRY(check_driver(name_of(&name, params.func), "cuFuncGetName"));
  } else {
    MFSDP_LET(name_of, driver_function<CUresult(const char**, CUkernel)>("cuKernelGetName", 12030));
    MFSDP_TRY(check_driver(name_of(&name, params.kern), "cuKernelGetName"));
  }
  return std::string(name);
}

Result<std::vector<std::string>> kernels_of(cudaGraph_t graph) {
  std::size_t count = 0;
  MFSDP_TRY(check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes"));
  std::vector<cudaGraphNode_t> nodes(count);
  MFSDP_TRY(check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes"));
  std::vector<std::string> names;
  for (const cudaGraphNode_t node : nodes) {
    MFSDP_LET(runs, is_kernel(node));
    if (!runs) continue;
    MFSDP_LET(name, kernel_name(node));
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> queued_kernels(cudaStream_t stream,
                                                const std::function<Result<void>()>& queue) {
  // Relaxed: NCCL may allocate while it queues.
  MFSDP_TRY(check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed),
                  "cudaStreamBeginCapture"));
  const Result<void> queued = queue();
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  const Graph graph(captured);
  MFSDP_TRY(queued);
  MFSDP_TRY(check(ended, "cudaStreamEndCapture"));
  return kernels_of(graph.get());
}

Result<void> check_transport(Transport transport, std::span<const std::string> kernels) {
  const bool symmetric = std::ranges::any_of(kernels, [](const std::string& name) {
    return name.find(kSymmetricKernel) != std::string::npos;
  });
  const TransportTraits& traits = traits_of(transport);
  const bool is_so = !traits.uses_windows || (traits.holds_sms ? symmetric : kernels.empty());
  if (is_so) return {};
  return fail(
      "",
      fmt::format("NCCL does not use {}: it queues {}", to_string(transport),
                  kernels.empty() ? "no kernel" : fmt::format("{}", fmt::join(kernels, ", "))),
      Fault::environment);
}

std::string transport_text(Transport transport, std::span<const std::string> kernels) {
  if (!traits_of(transport).holds_sms) return "copy engines";
  return fmt::format("{}", fmt::join(kernels, ", "));
}

Result<void> check_windows_possible(Transport transport, int nccl_version,
                                    std::span<const std::string> hosts) {
  if (!traits_of(transport).uses_windows) return {};
  constexpr int kMajor = 10'000;
  constexpr int kMinor = 100;
  if (nccl_version < kWindowsSince)
    return fail(
        "",
        fmt::format("{} needs NCCL 2.28.3 or later; this one is {}.{}.{}", to_string(transport),
                    nccl_version / kMajor, nccl_version % kMajor / kMinor, nccl_version % kMinor),
        Fault::environment);
  const auto other =
      std::ranges::find_if(hosts, [&](const std::string& host) { return host != hosts.front(); });
  if (other == hosts.end()) return {};
  return fail("",
              fmt::format("{} reaches the GPUs of one host; members are on {} and {}",
                          to_string(transport), hosts.front(), *other),
              Fault::environment);
}

}  // namespace mfsdp::cuda
