// Megatron-FSDP v2's rule: golden vectors, a slow oracle, and that no row is split.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <optional>

#include "core/base/quantity.hpp"
#include "tests/core/shard/layout_items.hpp"

namespace mfsdp {
namespace {

using test::any_items;
using test::any_ranks;
using test::Items;
using test::matrix;
using test::Offsets;
using test::vector_of;

TEST(MegatronFsdpLayout, GoldenA) {
  const Items items{matrix(2, 6), matrix(4, 4), matrix(4, 4), matrix(1, 2), matrix(1, 6)};
  const FlatLayout layout = megatron_fsdp_layout(items, 5);
  // c = lcm(6, 4, 2) = 12. 0 ends on 12. 1 (16) ends at 28 with remainder 4; its conjugate 2 starts
  // at 36 - 4 = 32. Into the gap [28, 32) goes 3 (2 elements). 4 (6) follows at 48 and ends at 54:
  // B = ceil(54 / (5*12)) * 60 = 60.
  EXPECT_EQ(layout.chunk, 12);
  EXPECT_EQ(layout.elements, 60);
  EXPECT_EQ(layout.offsets, (Offsets{0, 12, 32, 28, 48}));
  EXPECT_EQ(layout.padding(), 60 - (12 + 16 + 16 + 2 + 6));
  EXPECT_EQ(layout.shard(), 12);
}

TEST(MegatronFsdpLayout, GoldenB) {
  const Items items{matrix(3, 4), vector_of(5), vector_of(7), matrix(2, 6)};
  const FlatLayout layout = megatron_fsdp_layout(items, 2);
  // c = lcm(4, 1, 6) = 12. Both matrices are one chunk. The tail takes 7 before 5: 24, 31, end 36.
  // B = ceil(36 / 24) * 24 = 48.
  EXPECT_EQ(layout.chunk, 12);
  EXPECT_EQ(layout.elements, 48);
  EXPECT_EQ(layout.offsets, (Offsets{0, 31, 24, 12}));
}

TEST(MegatronFsdpLayout, GoldenC) {
  const Items items{matrix(2, 6), matrix(3, 4), matrix(1, 4),
                    matrix(1, 4), matrix(1, 6), matrix(1, 2)};
  const FlatLayout layout = megatron_fsdp_layout(items, 4);
  // c = 12. Tail, largest first: 6 at 24; 4 at 30 -> 32; 4 at 36; 2 at 40; end 42.
  // B = ceil(42 / 48) * 48 = 48.
  EXPECT_EQ(layout.chunk, 12);
  EXPECT_EQ(layout.elements, 48);
  EXPECT_EQ(layout.offsets, (Offsets{0, 12, 32, 36, 24, 40}));
}

TEST(MegatronFsdpLayout, GoldenLlamaBlock) {
  const Items items{vector_of(4096), matrix(6144, 4096),  matrix(4096, 4096),
                    vector_of(4096), matrix(28672, 4096), matrix(4096, 14336)};
  const FlatLayout layout = megatron_fsdp_layout(items, 8);
  // c = lcm(4096, 14336) = lcm(2^12, 2^11 * 7) = 28672.
  // 25165824 mod c = 20480, 16777216 mod c = 4096, the other two 0: qkv ends at 25165824, its
  // conjugate ends at 25165824 + 8192 = 25174016 + 585 * 28672 and starts 4096 before 25174016.
  // The gap of 4096 takes the first norm. Sum of chunks: 878 + 585 + 4096 + 2048 = 7607, the second
  // norm makes the end 7607 * 28672 + 4096 = 218112000: nothing is lost so far.
  // B = ceil(218112000 / (8 * 28672)) * 8 * 28672 = 951 * 229376 = 218136576.
  EXPECT_EQ(layout.chunk, 28672);
  EXPECT_EQ(layout.elements, 218'136'576);
  EXPECT_EQ(layout.offsets,
            (Offsets{25'165'824, 0, 25'169'920, 218'107'904, 41'947'136, 159'387'648}));
  EXPECT_EQ(layout.padding(), 218'136'576 - 218'112'000);
  EXPECT_EQ(padding_intervals(layout),
            (std::vector<Interval>{{.begin = 218'112'000, .end = 218'136'576}}));
}

TEST(MegatronFsdpLayout, EmptyGroup) {
  const FlatLayout layout = megatron_fsdp_layout({}, 8);
  EXPECT_EQ(layout.elements, 0);
  EXPECT_EQ(layout.chunk, 1);
  EXPECT_EQ(layout.shard(), 0);
  EXPECT_EQ(layout.padding(), 0);
  EXPECT_TRUE(padding_intervals(layout).empty());
}

TEST(MegatronFsdpLayout, OverflowIsAnException) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_THROW((void)megatron_fsdp_layout(Items{vector_of(kHuge), vector_of(kHuge)}, 1),
               OverflowError);
  // Padding 2^62 + 1 to a multiple of 2^62 makes 2^63.
  EXPECT_THROW((void)megatron_fsdp_layout(Items{vector_of(kHuge + 1)}, kHuge), OverflowError);
  // The least common multiple of two coprime rows near 2^32 leaves 63 bits.
  const std::int64_t row = (std::int64_t{1} << 32) + 15;
  EXPECT_THROW((void)megatron_fsdp_layout(Items{matrix(1, row), matrix(1, row + 2)}, 1),
               OverflowError);
}

/// The rules again, slowly: the buffer is a string of cells, matrices are put at chunk boundaries
/// by search over cells, and every decision looks at the cells alone.
class CellOracle {
 public:
  CellOracle(const Items& items, std::int64_t ranks) : items_(items), at_(items.size()) {
    while (!std::ranges::all_of(items, [&](const LayoutItem& i) { return chunk % i.row == 0; }))
      ++chunk;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (items[i].elements >= chunk && !at_[i]) matrix_and_conjugate(i);
    while (const auto i = largest_fragment([](std::size_t) { return true; }))
      place(*i, aligned(used(), items[*i].row));
    while (elements < used() || elements % (ranks * chunk) != 0) ++elements;
  }

  [[nodiscard]] Offsets offsets() const {
    Offsets all;
    for (const auto& at : at_) all.push_back(at.value());
    return all;
  }

  std::int64_t chunk = 1;
  std::int64_t elements = 0;

 private:
  [[nodiscard]] std::int64_t used() const { return std::ssize(cells_); }
  static std::int64_t aligned(std::int64_t at, std::int64_t unit) {
    while (at % unit != 0) ++at;
    return at;
  }

  void place(std::size_t i, std::int64_t offset) {
    at_[i] = offset;
    const auto end = static_cast<std::size_t>(offset + items_[i].elements);
    if (cells_.size() < end) cells_.resize(end, false);
    for (auto cell = static_cast<std::size_t>(offset); cell < end; ++cell) {
      EXPECT_FALSE(cells_[cell]) << "cell " << cell << " is taken twice";
      cells_[cell] = true;
    }
  }

  template <class Fits>
  std::optional<std::size_t> largest_fragment(Fits fits) const {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (items_[i].elements < chunk && !at_[i] && fits(i) &&
          (!best || items_[i].elements > items_[*best].elements))
        best = i;
    return best;
  }

  void matrix_and_conjugate(std::size_t i) {
    place(i, aligned(used(), chunk));
    const std::int64_t gap = used();
    const std::int64_t boundary = aligned(gap, chunk);
    std::int64_t gap_end = boundary;
    for (std::size_t j = i + 1; gap != boundary && j < items_.size(); ++j) {
      const std::int64_t hangs_over = items_[j].elements % chunk;
      if (at_[j] || items_[j].elements < chunk || hangs_over == 0) continue;
      if (boundary - hangs_over < gap) continue;
      gap_end = boundary - hangs_over;
      place(j, gap_end);
      break;
    }
    std::int64_t cursor = gap;
    const auto fits = [&](std::size_t f) {
      return aligned(cursor, items_[f].row) + items_[f].elements <= gap_end;
    };
    while (const auto f = largest_fragment(fits)) {
      place(*f, aligned(cursor, items_[*f].row));
      cursor = *at_[*f] + items_[*f].elements;
    }
    if (used() < gap_end) cells_.resize(static_cast<std::size_t>(gap_end), false);
  }

  const Items& items_;
  std::vector<std::optional<std::int64_t>> at_;
  std::vector<bool> cells_;
};

RC_GTEST_PROP(MegatronFsdpLayoutProperty, EqualsTheSlowOracle, ()) {
  const Items items = any_items();
  const std::int64_t ranks = any_ranks();
  const FlatLayout layout = megatron_fsdp_layout(items, ranks);
  const CellOracle oracle(items, ranks);
  RC_ASSERT(layout.chunk == oracle.chunk);
  RC_ASSERT(layout.offsets == oracle.offsets());
  RC_ASSERT(layout.elements == oracle.elements);
}

RC_GTEST_PROP(MegatronFsdpLayoutProperty, NoRowIsSplit, ()) {
  const Items items = any_items();
  const FlatLayout layout = megatron_fsdp_layout(items, any_ranks());
  RC_ASSERT(layout.shard() % layout.chunk == 0);
  for (std::size_t i = 0; i < items.size(); ++i) {
    RC_ASSERT(layout.offsets[i] % items[i].row == 0);
    for (std::int64_t rank = 0; rank < layout.ranks; ++rank) {
      const Interval own = owned_interval(layout, i, rank);
      RC_ASSERT((own.begin - layout.offsets[i]) % items[i].row == 0);
      RC_ASSERT(own.size() % items[i].row == 0);
    }
  }
}

}  // namespace
}  // namespace mfsdp
