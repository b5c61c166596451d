// The loops of Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008). A
// block of `a` and a panel of `b` are packed into the order in which the innermost kernel reads
// them. That kernel keeps a tile of c in registers.
#include "verify/cpu/kernels/product.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace mfsdp {
namespace {

/// Packed at a time: a block of `a` for the second-level cache, a panel of `b` for the third.
constexpr std::int64_t kBlockRows = 192;
constexpr std::int64_t kBlockInner = 256;
constexpr std::int64_t kPanelCols = 512;

/// Scratch that starts at a cache line and is kept from call to call.
template <class R>
class Packed {
 public:
  R* room_for(std::int64_t count) {
    constexpr std::size_t kLine = 64;
    const auto wanted = static_cast<std::size_t>(count) * sizeof(R) + kLine;
    if (bytes_.size() < wanted) bytes_.resize(wanted);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return reinterpret_cast<R*>((address + kLine - 1) / kLine * kLine);
  }

 private:
  std::vector<std::byte> bytes_;
};

/// Strips of kStrip rows of a block of op(matrix) whose rows are `rows`: [inner][kStrip] each, the
/// last one filled up with zeros. Columns of b are packed as the rows of its transpose.
template <int kStrip, class R>
void pack(const Matrix<const R>& matrix, bool rows_are_contiguous, std::int64_t first_row,
          std::int64_t rows, std::int64_t first_inner, std::int64_t inner, R* to) {
  for (std::int64_t strip = 0; strip < rows; strip += kStrip) {
    const std::int64_t filled = std::min<std::int64_t>(kStrip, rows - strip);
    if (filled < kStrip) std::fill_n(to, inner * kStrip, R(0));
    if (rows_are_contiguous) {
      for (std::int64_t k = 0; k < inner; ++k)
        std::copy_n(matrix.data + (first_inner + k) * matrix.row + first_row + strip, filled,
                    to + k * kStrip);
    } else {
      for (std::int64_t i = 0; i < filled; ++i) {
        const R* const from = matrix.data + (first_row + strip + i) * matrix.row + first_inner;
        for (std::int64_t k = 0; k < inner; ++k) to[k * kStrip + i] = from[k];
      }
    }
    to += inner * kStrip;
  }
}

/// c[kRows, kVectors * lanes] += strip of a * strip of b. Always inlined, so that it is compiled
/// for the instructions of the function that calls it.
template <class R, int kVectorBytes, int kRows, int kVectors>
[[gnu::always_inline]] inline void add_tile(const R* a, const R* b, std::int64_t inner, R* c,
                                            std::int64_t c_row) {
  typedef R Vector __attribute__((vector_size(kVectorBytes)));
  constexpr std::int64_t kLanes = kVectorBytes / static_cast<std::int64_t>(sizeof(R));
  Vector sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v)
      std::memcpy(&sums[i][v], c + i * c_row + v * kLanes, sizeof(Vector));
  for (std::int64_t k = 0; k < inner; ++k) {
    Vector columns[kVectors];
    for (int v = 0; v < kVectors; ++v)
      std::memcpy(&columns[v], b + (k * kVectors + v) * kLanes, sizeof(Vector));
    for (int i = 0; i < kRows; ++i)
      for (int v = 0; v < kVectors; ++v) sums[i][v] += a[k * kRows + i] * columns[v];
  }
  for (int i = 0; i < kRows; ++i)
    for (int v = 0; v < kVectors; ++v)
      std::memcpy(c + i * c_row + v * kLanes, &sums[i][v], sizeof(Vector));
}

template <class R>
using AddTile = void(const R* a, const R* b, std::int64_t inner, R* c, std::int64_t c_row);

template <class R, int kRows, int kCols, AddTile<R>* add>
void multiply_tiled(Matrix<const R> a, Matrix<const R> b, Matrix<R> c, std::int64_t m,
                    std::int64_t n, std::int64_t k, bool adds) {
  static_assert(kBlockRows % kRows == 0 && kPanelCols % kCols == 0);
  if (!adds)
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(c.data + i * c.row, n, R(0));
  thread_local Packed<R> block_of_a;
  thread_local Packed<R> panel_of_b;
  R* const packed_a = block_of_a.room_for(kBlockRows * kBlockInner);
  R* const packed_b = panel_of_b.room_for(kPanelCols * kBlockInner);
  R edge[kRows * kCols];
  for (std::int64_t col = 0; col < n; col += kPanelCols) {
    const std::int64_t cols = std::min(kPanelCols, n - col);
    for (std::int64_t first = 0; first < k; first += kBlockInner) {
      const std::int64_t inner = std::min(kBlockInner, k - first);
      pack<kCols>(b, !b.transposed, col, cols, first, inner, packed_b);
      for (std::int64_t row = 0; row < m; row += kBlockRows) {
        const std::int64_t rows = std::min(kBlockRows, m - row);
        pack<kRows>(a, a.transposed, row, rows, first, inner, packed_a);
        for (std::int64_t j = 0; j < cols; j += kCols)
          for (std::int64_t i = 0; i < rows; i += kRows) {
            R* const to = c.data + (row + i) * c.row + col + j;
            const std::int64_t height = std::min<std::int64_t>(kRows, rows - i);
            const std::int64_t width = std::min<std::int64_t>(kCols, cols - j);
            const R* const strip_a = packed_a + i * inner;
            const R* const strip_b = packed_b + j * inner;
            if (height == kRows && width == kCols) {
              add(strip_a, strip_b, inner, to, c.row);
              continue;
            }
            std::fill_n(edge, kRows * kCols, R(0));
            for (std::int64_t r = 0; r < height; ++r)
              std::copy_n(to + r * c.row, width, edge + r * kCols);
            add(strip_a, strip_b, inner, edge, kCols);
            for (std::int64_t r = 0; r < height; ++r)
              std::copy_n(edge + r * kCols, width, to + r * c.row);
          }
      }
    }
  }
}

// A tile of c, a row of b and a factor of a fill the registers: 32 of AVX-512 and of Arm, 16 else.
#if defined(__x86_64__)
template <class R>
[[gnu::target("arch=x86-64-v4")]] void add_tile_avx512(const R* a, const R* b, std::int64_t inner,
                                                       R* c, std::int64_t c_row) {
  add_tile<R, 64, 12, 2>(a, b, inner, c, c_row);
}
template <class R>
[[gnu::target("avx2")]] void add_tile_avx2(const R* a, const R* b, std::int64_t inner, R* c,
                                           std::int64_t c_row) {
  add_tile<R, 32, 6, 2>(a, b, inner, c, c_row);
}
constexpr int kBaselineRows = 6;
#else
constexpr int kBaselineRows = 12;
#endif
template <class R>
void add_tile_baseline(const R* a, const R* b, std::int64_t inner, R* c, std::int64_t c_row) {
  add_tile<R, 16, kBaselineRows, 2>(a, b, inner, c, c_row);
}

/// Columns of a tile of two registers of kVectorBytes each.
template <class R, int kVectorBytes>
constexpr int kTileCols = 2 * kVectorBytes / static_cast<int>(sizeof(R));

constexpr ProductVariant kBaseline{
    "baseline",
    &multiply_tiled<float, kBaselineRows, kTileCols<float, 16>, &add_tile_baseline<float>>,
    &multiply_tiled<double, kBaselineRows, kTileCols<double, 16>, &add_tile_baseline<double>>};

std::vector<ProductVariant> variants_of_this_cpu() {
  std::vector<ProductVariant> variants;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd"))
    variants.push_back(
        {"AVX-512", &multiply_tiled<float, 12, kTileCols<float, 64>, &add_tile_avx512<float>>,
         &multiply_tiled<double, 12, kTileCols<double, 64>, &add_tile_avx512<double>>});
  if (__builtin_cpu_supports("avx2"))
    variants.push_back({"AVX2",
                        &multiply_tiled<float, 6, kTileCols<float, 32>, &add_tile_avx2<float>>,
                        &multiply_tiled<double, 6, kTileCols<double, 32>, &add_tile_avx2<double>>});
#endif
  variants.push_back(kBaseline);
  return variants;
}

}  // namespace

std::span<const ProductVariant> product_variants() {
  static const std::vector<ProductVariant> variants = variants_of_this_cpu();
  return variants;
}

void multiply(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds) {
  product_variants().front().multiply(a, b, c, m, n, k, adds);
}

void multiply(Matrix<const double> a, Matrix<const double> b, Matrix<double> c, std::int64_t m,
              std::int64_t n, std::int64_t k, bool adds) {
  product_variants().front().multiply_double(a, b, c, m, n, k, adds);
}

}  // namespace mfsdp
