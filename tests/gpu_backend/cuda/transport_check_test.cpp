// Requirements of a machine for registered memory, and the check of the kernels that NCCL queued.
#include "gpu_backend/cuda/transport_check.hpp"

#include <gtest/gtest.h>

namespace mfsdp::cuda {
namespace {

using Names = std::vector<std::string>;

std::string error_of(const Result<void>& result) {
  return result ? "no error" : result.error().message();
}

TEST(TransportCheck, KnowsNcclsKernels) {
  const Names ring{"ncclDevKernel_AllGather_RING_LL"};
  const Names symmetric{"ncclSymkDevKernel_ReduceScatter_LD_sum_bf16"};
  EXPECT_TRUE(check_transport(Transport::nccl, ring));
  EXPECT_TRUE(check_transport(Transport::copy_engine, Names{}));
  EXPECT_TRUE(check_transport(Transport::symmetric, symmetric));
  EXPECT_EQ(error_of(check_transport(Transport::copy_engine, ring)),
            "NCCL does not use copy_engine: it queues ncclDevKernel_AllGather_RING_LL");
  EXPECT_EQ(error_of(check_transport(Transport::symmetric, ring)),
            "NCCL does not use symmetric: it queues ncclDevKernel_AllGather_RING_LL");
  EXPECT_EQ(error_of(check_transport(Transport::symmetric, Names{})),
            "NCCL does not use symmetric: it queues no kernel");
  EXPECT_EQ(transport_text(Transport::copy_engine, Names{}), "copy engines");
  EXPECT_EQ(transport_text(Transport::symmetric, symmetric), symmetric.front());
}

TEST(TransportCheck, NeedsNcclAndOneHost) {
  const Names one{"a", "a"};
  const Names two{"a", "a", "b"};
  EXPECT_TRUE(check_windows_possible(Transport::nccl, 22703, two));
  EXPECT_TRUE(check_windows_possible(Transport::copy_engine, 22803, one));
  EXPECT_EQ(error_of(check_windows_possible(Transport::symmetric, 22705, one)),
            "symmetric needs NCCL 2.28.3 or later; this one is 2.27.5");
  EXPECT_EQ(error_of(check_windows_possible(Transport::copy_engine, 23107, two)),
            "copy_engine reaches the GPUs of one host; members are on a and b");
}

}  // namespace
}  // namespace mfsdp::cuda
