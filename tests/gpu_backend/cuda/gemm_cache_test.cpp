#include "gpu_backend/cuda/gemm_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/atomic_file.hpp"
#include "core/base/read_file.hpp"

namespace mfsdp::cuda {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

const GemmMachine kMachine{.gpu = "NVIDIA H200", .cublaslt = 130100};

std::vector<GemmAlgorithm> algorithms() {
  GemmAlgorithm forward{.shape = {.rows = 8192,
                                  .cols = 6144,
                                  .inner = 4096,
                                  .a_row = 4096,
                                  .b_row = 4096,
                                  .b_transposed = true,
                                  .bias = true,
                                  .alignment = 128},
                        .workspace_bytes = 33554432,
                        .nanoseconds = 614500};
  forward.bytes.fill(0xffffffffffffffff);  // all 64 bits come back
  GemmAlgorithm gradient = forward;
  gradient.shape = {.rows = 6144,
                    .cols = 4096,
                    .inner = 8192,
                    .a_row = 6144,
                    .b_row = 4096,
                    .a_transposed = true,
                    .adds = true,
                    .operands = DType::fp16,
                    .result = DType::fp32,
                    .alignment = 256};
  gradient.bytes = {1, 2, 3, 4, 5, 6, 7, 8};
  GemmAlgorithm in_fp8 = forward;
  in_fp8.shape.bias = false;
  in_fp8.shape.operands = DType::fp8_e5m2;
  in_fp8.shape.operands_b = DType::fp8_e4m3;
  GemmAlgorithm fast = in_fp8;
  fast.shape.operands = DType::fp8_e4m3;
  fast.shape.operands_b.reset();
  fast.shape.fast = true;
  GemmAlgorithm of_blocks = fast;
  of_blocks.shape.fast = false;
  of_blocks.shape.a_scale_rows = 1;
  of_blocks.shape.b_scale_rows = 128;
  return {forward, gradient, in_fp8, fast, of_blocks};
}

class GemmCacheFile : public testing::Test {
 protected:
  GemmCacheFile()
      : folder_(std::filesystem::temp_directory_path() /
                ("mfsdp_gemm_cache_" + std::to_string(getpid()))),
        path_(gemm_cache_path(folder_, kMachine, {})) {}
  ~GemmCacheFile() override { std::filesystem::remove_all(folder_); }

  /// The note of loading the file after `from` in it is replaced by `to`.
  std::string note_after(const std::string& from, const std::string& to) {
    std::string text = write_gemm_algorithms(kMachine, algorithms());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    EXPECT_TRUE(save_gemm_cache(path_, kMachine, {}));  // makes the folder
    EXPECT_TRUE(write_file_atomically(path_, text));
    const GemmCache cache = load_gemm_cache(path_, kMachine);
    EXPECT_THAT(cache.algorithms, IsEmpty());
    return cache.note;
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(GemmCacheFile, WhatIsSavedIsLoaded) {
  EXPECT_EQ(path_.filename(), "gemm_nvidia_h200_130100.json");
  ASSERT_TRUE(save_gemm_cache(path_, kMachine, algorithms()));
  const GemmCache cache = load_gemm_cache(path_, kMachine);
  EXPECT_EQ(cache.algorithms, algorithms());
  EXPECT_EQ(cache.note, "");
}

TEST_F(GemmCacheFile, NoFileIsNoNote) {
  const GemmCache cache = load_gemm_cache(path_, kMachine);
  EXPECT_THAT(cache.algorithms, IsEmpty());
  EXPECT_EQ(cache.note, "");
}

TEST_F(GemmCacheFile, WhatIsWrongBecomesANote) {
  EXPECT_THAT(note_after("8192", "8193"), HasSubstr("checksum"));
  EXPECT_THAT(note_after("mfsdp.gemm/1", "mfsdp.gemm/2"), HasSubstr("mfsdp.gemm/1"));
  EXPECT_THAT(note_after("\"checksum\"", "\"check\""), HasSubstr("checksum"));
  EXPECT_THAT(note_after("NVIDIA H200", "NVIDIA H100"),
              HasSubstr("algorithms of NVIDIA H200, cuBLASLt 130100; got NVIDIA H100"));
  EXPECT_THAT(note_after("130100", "130200"), HasSubstr("cuBLASLt 130200"));
  EXPECT_THAT(note_after("}", ""), HasSubstr(path_.string()));
  EXPECT_THAT(note_after("{", "[1]//"), HasSubstr("ignored"));
}

TEST_F(GemmCacheFile, AFileThatCannotBeMadeIsAnError) {
  EXPECT_FALSE(save_gemm_cache("/dev/null/gemm.json", kMachine, algorithms()));
}

}  // namespace
}  // namespace mfsdp::cuda
