// Tests that need a GPU: without one the program ends with 77, which ctest shows as skipped.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  if (!testing::GTEST_FLAG(list_tests) &&
      (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)) {
    std::puts("no CUDA device: skipped");
    return 77;
  }
  return RUN_ALL_TESTS();
}
