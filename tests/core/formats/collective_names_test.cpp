#include "core/formats/collective_names.hpp"

#include <gtest/gtest.h>

namespace mfsdp::traces {
namespace {

TEST(CollectiveOp, ByKernelThenByWord) {
  using enum CollectiveOp;
  EXPECT_EQ(collective_op("ncclDevKernel_AllGather_RING_LL(x)", ""), all_gather);
  EXPECT_EQ(collective_op("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", ""), reduce_scatter);
  EXPECT_EQ(collective_op("ncclKernel_AllReduce_RING_LL_Sum_float", ""), all_reduce);
  EXPECT_EQ(collective_op("ncclDevKernel_Reduce_Sum_f32_RING_LL", ""), reduce);
  EXPECT_EQ(collective_op("ncclDevKernel_SendRecv", "all_to_allv"), all_to_all);
  EXPECT_EQ(collective_op("ncclDevKernel_SendRecv", "send"), send_receive);
  EXPECT_EQ(collective_op("ncclDevKernel_Generic", "_allgather_base"), all_gather);
  EXPECT_EQ(collective_op("ncclDevKernel_Generic", ""), other);
}

TEST(CollectiveOp, OfNcclsKernelsAlone) {
  EXPECT_TRUE(is_nccl_kernel("ncclDevKernel_AllGather_RING_LL(x)"));
  EXPECT_TRUE(is_nccl_kernel("NCCLKernel"));
  EXPECT_FALSE(is_nccl_kernel("nvjet_tst_128x256"));
}

}  // namespace
}  // namespace mfsdp::traces
