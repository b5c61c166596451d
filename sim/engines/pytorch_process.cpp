#include "sim/engines/pytorch_process.hpp"

namespace mfsdp {
namespace {

// NCCL allocates buffers and loads code in pages of 2 MiB each.
constexpr std::int64_t kPage = std::int64_t{2} << 20;

// Measured by cudaMemGetInfo with PyTorch 2.11, CUDA 13.0 and NCCL 2.28.9 (the wheel's), with
// kernels loaded at first use, CUDA's default; total - free - reserved:
//   877,527,040    one process, no NCCL, H100 and H200 alike (2026-11-25-engines-*-measured.csv)
//   1,389,166,592  with a default group of one rank, H200: 2026-11-25-engines-measured.csv
//   1,691,222,016  with a default group of two ranks, H200: 2026-11-26-engines-3-measured.jsonl
//   406,847,488 or a page more for each further communicator of one rank, on the same H200
//   507,510,784 or a page more for each further one of two ranks and of four, 24 channels each:
//                  2026-11-21-runtime-memory.md (NCCL 2.28.3)
constexpr std::int64_t kContext = 877'527'040;
constexpr std::int64_t kCommunicator = 194 * kPage;
// (507,510,784 - 406,847,488) / 24 channels: each sends and receives.
constexpr std::int64_t kChannel = 2 * kPage;
// Remainder of the first communicators: 1,691,222,016 - 877,527,040 - 507,510,784, and, for one
// rank, which launches no collective, 1,389,166,592 - 877,527,040 - 406,847,488.
constexpr std::int64_t kNcclKernels = 306'184'192;
constexpr std::int64_t kNcclAlone = 104'792'064;

}  // namespace

std::vector<std::int64_t> communicator_sizes(EngineKind engine, const PlanConfig& config) {
  const Mesh& mesh = config.mesh;
  const std::int64_t world = mesh.world_size();
  std::vector<std::int64_t> sizes{world};
  const auto add = [&](std::int64_t size) {
    if (size != world) sizes.push_back(size);
  };
  const std::int64_t outer = mesh.size(Axis::dp_outer);
  const std::int64_t shard = mesh.size(Axis::dp_shard);
  if (traits_of(engine).has_groups_of_its_own) {
    // One of them has all ranks. Each is created at its first use.
    for (const Axis axis :
         {Axis::dp_shard, Axis::dp_outer, Axis::expt_dp, Axis::ep, Axis::cp, Axis::tp, Axis::pp})
      if (mesh.size(axis) > 1) sizes.push_back(mesh.size(axis));
    return sizes;
  }
  if (traits_of(engine).has_tensor_parallel_axis) add(1);
  for (const Axis axis : {Axis::expt_dp, Axis::ep})
    if (mesh.size(axis) > 1) add(mesh.size(axis));
  const std::int64_t tp = mesh.size(Axis::tp);
  if (outer > 1) add(outer);
  if (outer > 1 || tp > 1) add(shard);
  if (tp > 1) add(tp);
  return sizes;
}

Bytes ProcessMemory::total() const {
  Bytes sum = context + nccl;
  for (const CommunicatorMemory& communicator : communicators) sum += communicator.bytes;
  return sum;
}

ProcessMemory pytorch_process(EngineKind engine, const PlanConfig& config, std::int64_t channels) {
  ProcessMemory memory{.context = Bytes(kContext), .nccl = Bytes(kNcclAlone), .communicators = {}};
  for (const std::int64_t size : communicator_sizes(engine, config)) {
    const bool several = size > 1;
    if (several) memory.nccl = Bytes(kNcclKernels);
    memory.communicators.push_back(
        {.ranks = size, .bytes = Bytes(kCommunicator + (several ? channels * kChannel : 0))});
  }
  return memory;
}

}  // namespace mfsdp
