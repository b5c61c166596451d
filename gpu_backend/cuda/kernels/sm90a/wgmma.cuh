// Instructions of compute capability 9.0a: GEMMs of a warpgroup from shared memory, boxes of
// matrices by TMA, and the barriers that both use.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "core/runtime/scalar.hpp"

namespace mfsdp::cuda {

// ---- shared memory -----------------------------------------------------------------------------

[[nodiscard]] __device__ inline std::uint32_t address_of(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}
/// Alignment of swizzled boxes; allocations have space for it.
inline constexpr int kAlignment = 1024;
[[nodiscard]] __device__ inline std::uint32_t aligned_address_of(const void* shared) {
  return (address_of(shared) + kAlignment - 1) / kAlignment * kAlignment;
}
/// Makes shared-memory writes of threads visible to wgmma and TMA.
__device__ inline void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- barriers in shared memory -----------------------------------------------------------------

__device__ inline void init_barrier(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Makes initialized barriers visible to TMA.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
/// Waits until the phase with this parity has ended.
__device__ inline void wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0)
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
}

/// Loads the box of a map that begins at (col, row) of a matrix.
__device__ inline void load_box(const CUtensorMap& map, int col, int row, int matrix,
                                std::uint32_t to, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(&map), "r"(col), "r"(row), "r"(matrix), "r"(barrier)
      : "memory");
}

/// Stores the box of a map that begins at (col, row) of a matrix, from shared memory.
__device__ inline void store_box(const CUtensorMap& map, int col, int row, int matrix,
                                 std::uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
      "r"(col), "r"(row), "r"(matrix), "r"(from)
      : "memory");
}
/// Loads contiguous bytes, a multiple of 16.
__device__ inline void load_bytes(const void* from, std::uint32_t bytes, std::uint32_t to,
                                  std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// ---- multiplication------------------------------------------------------------------------------

/// Rows of 128 bytes in groups of 8, with 128-byte swizzling as in TMA. Groups are contiguous. If
/// rows are the inner dimension (`across`), further columns of c are in blocks of `block_rows`
/// rows.
template <int block_rows = 64>
__device__ std::uint64_t matrix_of(std::uint32_t address) {
  constexpr std::uint64_t kGroup = 8 * 128 / 16;
  constexpr std::uint64_t kBlock = block_rows * 128 / 16;
  constexpr std::uint64_t kTurned128 = 1;
  return (address & 0x3ffffU) >> 4U | kBlock << 16U | kGroup << 32U | kTurned128 << 62U;
}

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int pending>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
/// Prevents the compiler from moving uses of the sums across it.
template <int n>
__device__ void pin(float (&sums)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

#define MFSDP_EIGHT(i)                                                                \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), \
      "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])

#define MFSDP_LIST(...) __VA_ARGS__  // of operands, as one argument
#define MFSDP_THIRTY_TWO(i) \
  MFSDP_EIGHT(i), MFSDP_EIGHT((i) + 8), MFSDP_EIGHT((i) + 16), MFSDP_EIGHT((i) + 24)

// Sums of 64 x 32, 64 x 64, 64 x 96, 64 x 128 and 64 x 256 as lists of operands, and the
// multiplication instruction for a type of operands.
#define MFSDP_SUMS_32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
#define MFSDP_SUMS_64                                                                 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
#define MFSDP_SUMS_96                                                                 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "  \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
#define MFSDP_SUMS_128                                                                \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "  \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "  \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
#define MFSDP_SUMS                                                                    \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, "  \
  "%34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "  \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, "  \
  "%66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, "  \
  "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "  \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "      \
  "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, "    \
  "%124, %125, %126, %127}, "
#define MFSDP_MULTIPLY(types)                                                          \
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." types " " MFSDP_SUMS     \
               "%128, %129, 1, 1, 1, %130, %131;"                                      \
               : MFSDP_EIGHT(0), MFSDP_EIGHT(8), MFSDP_EIGHT(16), MFSDP_EIGHT(24),     \
                 MFSDP_EIGHT(32), MFSDP_EIGHT(40), MFSDP_EIGHT(48), MFSDP_EIGHT(56),   \
                 MFSDP_EIGHT(64), MFSDP_EIGHT(72), MFSDP_EIGHT(80), MFSDP_EIGHT(88),   \
                 MFSDP_EIGHT(96), MFSDP_EIGHT(104), MFSDP_EIGHT(112), MFSDP_EIGHT(120) \
               : "l"(a), "l"(b), "n"(AcrossA ? 1 : 0), "n"(AcrossB ? 1 : 0))

/// d += a * b, 64 x 256 over 16. Across: the operand's rows are the inner dimension.
template <class T, bool AcrossA, bool AcrossB>
__device__ void multiply(float (&d)[128], std::uint64_t a, std::uint64_t b) {
  if constexpr (std::is_same_v<T, Bf16>)
    MFSDP_MULTIPLY("bf16.bf16");
  else
    MFSDP_MULTIPLY("f16.f16");
}

// For bf16, over 16, as a function of n columns. `adds`: adds to d; otherwise d is overwritten.
// `across_a`, `across_b`: the operand's rows are the inner dimension.
#define MFSDP_SHARED_A(n, sums, count, a_at, b_at, adds_at, across_a_at, across_b_at, operands)    \
  template <bool across_a, bool across_b>                                                          \
  __device__ void multiply_shared(float(&d)[count], std::uint64_t a, std::uint64_t b, bool adds) { \
    asm volatile(                                                                                  \
        "{\n"                                                                                      \
        ".reg .pred p;\n"                                                                          \
        "setp.ne.b32 p, %" adds_at                                                                 \
        ", 0;\n"                                                                                   \
        "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 " sums "%" a_at ", %" b_at        \
        ", p, 1, 1, %" across_a_at ", %" across_b_at                                               \
        ";\n"                                                                                      \
        "}"                                                                                        \
        : operands                                                                                 \
        : "l"(a), "l"(b), "r"(static_cast<int>(adds)), "n"(across_a ? 1 : 0),                      \
          "n"(across_b ? 1 : 0));                                                                  \
  }
MFSDP_SHARED_A("32", MFSDP_SUMS_32, 16, "16", "17", "18", "19", "20",
               MFSDP_LIST(MFSDP_EIGHT(0), MFSDP_EIGHT(8)))
MFSDP_SHARED_A("64", MFSDP_SUMS_64, 32, "32", "33", "34", "35", "36",
               MFSDP_LIST(MFSDP_THIRTY_TWO(0)))
MFSDP_SHARED_A("128", MFSDP_SUMS_128, 64, "64", "65", "66", "67", "68",
               MFSDP_LIST(MFSDP_THIRTY_TWO(0), MFSDP_THIRTY_TWO(32)))
/// Neither operand across.
template <int n>
__device__ void multiply(float (&d)[n], std::uint64_t a, std::uint64_t b, bool adds) {
  multiply_shared<false, false>(d, a, b, adds);
}
/// Both operands across.
template <int n>
__device__ void multiply_across(float (&d)[n], std::uint64_t a, std::uint64_t b, bool adds) {
  multiply_shared<true, true>(d, a, b, adds);
}

/// d += a * b; a from registers, in the layout of 64 x 16 sums, b across.
#define MFSDP_OWN_A(n, sums, count, a_at, b_at, operands)                                          \
  __device__ inline void multiply(float(&d)[count], const std::uint32_t(&a)[4], std::uint64_t b) { \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32.bf16.bf16 " sums "{" a_at          \
                 "}, %" b_at ", 1, 1, 1, 1;"                                                       \
                 : operands                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }
MFSDP_OWN_A("64", MFSDP_SUMS_64, 32, "%32, %33, %34, %35", "36", MFSDP_LIST(MFSDP_THIRTY_TWO(0)))
MFSDP_OWN_A("96", MFSDP_SUMS_96, 48, "%48, %49, %50, %51", "52",
            MFSDP_LIST(MFSDP_THIRTY_TWO(0), MFSDP_EIGHT(32), MFSDP_EIGHT(40)))
MFSDP_OWN_A("128", MFSDP_SUMS_128, 64, "%64, %65, %66, %67", "68",
            MFSDP_LIST(MFSDP_THIRTY_TWO(0), MFSDP_THIRTY_TWO(32)))
MFSDP_OWN_A("256", MFSDP_SUMS, 128, "%128, %129, %130, %131", "132",
            MFSDP_LIST(MFSDP_THIRTY_TWO(0), MFSDP_THIRTY_TWO(32), MFSDP_THIRTY_TWO(64),
                       MFSDP_THIRTY_TWO(96)))
#undef MFSDP_OWN_A
#undef MFSDP_SHARED_A
#undef MFSDP_LIST
#undef MFSDP_MULTIPLY
#undef MFSDP_SUMS
#undef MFSDP_SUMS_128
#undef MFSDP_SUMS_96
#undef MFSDP_SUMS_64
#undef MFSDP_SUMS_32
#undef MFSDP_THIRTY_TWO
#undef MFSDP_EIGHT

}  // namespace mfsdp::cuda
