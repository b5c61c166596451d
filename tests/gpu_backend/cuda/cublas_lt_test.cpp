#include "gpu_backend/cuda/cublas_lt.hpp"

#include <gtest/gtest.h>

#include <string>

namespace mfsdp::cuda {
namespace {

TEST(CublasLt, IsThatOfTheHeaders) {
  ASSERT_TRUE(load_cublas_lt());
  EXPECT_EQ(cublas_lt().version() / 10'000, CUBLAS_VER_MAJOR);
  EXPECT_EQ(cublas_lt().status_string(CUBLAS_STATUS_NOT_SUPPORTED),
            std::string("the requested functionality is not supported"));
}

// Descriptions of matrices need no GPU.
TEST(CublasLt, DescribesMatrices) {
  ASSERT_TRUE(load_cublas_lt());
  cublasLtMatrixLayoutOpaque_t layout{};
  EXPECT_EQ(cublas_lt().init_layout(&layout, sizeof layout, CUDA_R_32F, 8, 4, 8),
            CUBLAS_STATUS_SUCCESS);
  const std::int32_t batch = 3;
  EXPECT_EQ(
      cublas_lt().set_layout(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch),
      CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace mfsdp::cuda
