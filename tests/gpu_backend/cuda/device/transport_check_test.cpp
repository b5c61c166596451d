// Names the kernels of a stream without running them.
#include "gpu_backend/cuda/transport_check.hpp"

#include <gtest/gtest.h>

#include "gpu_backend/cuda/kernels/test_kernels.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {
namespace {

class QueuedKernels : public testing::Test {
 protected:
  QueuedKernels() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~QueuedKernels() override { cudaStreamDestroy(stream_); }

  cudaStream_t stream_ = nullptr;
  DeviceArray<float> memory_{1024};
};

TEST_F(QueuedKernels, AreNamedAndNotRun) {
  const auto kernels =
      queued_kernels(stream_, [&] { return fill_with_numbers(memory_.as_bytes(), stream_); });
  ASSERT_TRUE(kernels) << kernels.error().message();
  ASSERT_EQ(kernels->size(), 1U);
  EXPECT_NE(kernels->front().find("fill"), std::string::npos) << kernels->front();
  require(cudaStreamSynchronize(stream_));
  EXPECT_TRUE(std::isnan(memory_.download().front()));  // still as it was
}

TEST_F(QueuedKernels, CopiesAreNone) {
  const auto kernels = queued_kernels(stream_, [&]() -> Result<void> {
    require(cudaMemcpyAsync(memory_.data(), memory_.data() + 512, 512, cudaMemcpyDeviceToDevice,
                            stream_));
    return {};
  });
  ASSERT_TRUE(kernels) << kernels.error().message();
  EXPECT_TRUE(kernels->empty());
}

TEST_F(QueuedKernels, LeaveTheStreamUsableAfterAnError) {
  const auto kernels = queued_kernels(stream_, []() -> Result<void> { return fail("x", "wrong"); });
  ASSERT_FALSE(kernels);
  EXPECT_EQ(kernels.error().message(), "x: wrong");
  require(cudaMemsetAsync(memory_.data(), 0, 4, stream_));
  require(cudaStreamSynchronize(stream_));
  EXPECT_EQ(memory_.download().front(), 0);
}

}  // namespace
}  // namespace mfsdp::cuda
