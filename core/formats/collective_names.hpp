// Recognises the collective of an NCCL kernel by its name.
#pragma once

#include <string_view>

#include "core/formats/kineto.hpp"

namespace mfsdp::traces {

[[nodiscard]] bool is_nccl_kernel(std::string_view name);
/// Uses the kernel's name ("ncclDevKernel_AllGather_RING_LL"), else the profiler's name of the
/// collective ("_allgather_base"). A kernel for sends and receives may be an all-to-all: the
/// profiler's name decides that.
[[nodiscard]] CollectiveOp collective_op(std::string_view kernel, std::string_view collective);

}  // namespace mfsdp::traces
