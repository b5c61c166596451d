#include "gpu_backend/cuda/gemm_fp8.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace mfsdp::cuda {
namespace {

using testing::HasSubstr;

std::string refusal(const std::function<void(GemmShape&)>& change) {
  GemmShape shape{.rows = 32,
                  .cols = 48,
                  .inner = 64,
                  .a_row = 64,
                  .b_row = 64,
                  .b_transposed = true,
                  .operands = DType::fp8_e4m3};
  change(shape);
  const auto checked = check_fp8_shape(shape);
  return checked ? "" : checked.error().message();
}

TEST(GemmFp8, RefusesWhatTensorCoresCannotMultiply) {
  EXPECT_EQ(refusal([](GemmShape&) {}), "");
  EXPECT_EQ(refusal([](GemmShape& s) { s.operands_b = DType::fp8_e5m2; }), "");
  EXPECT_EQ(
      refusal([](GemmShape& s) { s.b_transposed = false; }),
      "gemm 32x48x64 a b fp8_e4m3 -> bf16, aligned to 16: expected FP8 operands whose rows are "
      "terms of a sum: a[rows, inner], b[cols, inner]");
  EXPECT_THAT(refusal([](GemmShape& s) { s.a_transposed = true; }), HasSubstr("terms of a sum"));
  EXPECT_THAT(refusal([](GemmShape& s) { s.cols = 40; }),
              HasSubstr("expected dimensions in multiples of 16, got 40"));
  EXPECT_THAT(refusal([](GemmShape& s) { s.a_row = 72; }), HasSubstr("got 72"));
  EXPECT_THAT(refusal([](GemmShape& s) { s.alignment = 8; }), HasSubstr("multiples of 16 bytes"));
  EXPECT_THAT(refusal([](GemmShape& s) { s.operands = DType::fp8_e5m2; }),
              HasSubstr("at most one operand in fp8_e5m2"));
  EXPECT_THAT(refusal([](GemmShape& s) { s.operands_b = DType::bf16; }), HasSubstr("or neither"));
}

TEST(GemmFp8, RefusesScalesOfBlocksThatCublasLtDoesNotTake) {
  const auto refusal_of = [](const std::function<void(GemmShape&)>& change) {
    return refusal([&](GemmShape& s) {
      s.rows = s.cols = s.inner = s.a_row = s.b_row = 256;
      s.a_scale_rows = 1;
      s.b_scale_rows = 128;
      change(s);
    });
  };
  EXPECT_EQ(refusal_of([](GemmShape&) {}), "");
  EXPECT_EQ(refusal_of([](GemmShape& s) { s.b_scale_rows = 1; }), "");
  EXPECT_THAT(refusal_of([](GemmShape& s) { s.b_scale_rows = 0; }),
              HasSubstr("expected scales of blocks for both operands, or for neither"));
  EXPECT_THAT(refusal_of([](GemmShape& s) { s.a_scale_rows = 128; }),
              HasSubstr("with scales 128x128 by 128x128, aligned to 16: expected scales of 1 x 128 "
                        "for one of the operands"));
  EXPECT_THAT(refusal_of([](GemmShape& s) { s.fast = true; }), HasSubstr("expected split sums"));
  EXPECT_THAT(refusal_of([](GemmShape& s) { s.rows = 192; }),
              HasSubstr("multiples of 128 with scales of blocks, got 192"));
}

}  // namespace
}  // namespace mfsdp::cuda
