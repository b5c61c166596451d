#include "verify/proof/order/overlap.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace mfsdp {
namespace {

/// With more combinations of indices, two operands count as overlapping.
constexpr Int128 kMostCombinations = 1 << 20;

/// `count` multiples of `step`, from `first` on.
struct Multiples {
  Int128 step = 0;
  Int128 first = 0;
  Int128 count = 1;
};

Int128 floor_div(Int128 a, Int128 b) {
  const Int128 quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

/// Whether low < base + n * step < high for a multiplier n of the term.
bool reaches(const Multiples& term, Int128 base, Int128 low, Int128 high) {
  const Int128 last = term.first + term.count - 1;
  if (term.step == 0) return low < base && base < high;
  const Int128 step = term.step < 0 ? -term.step : term.step;
  const Int128 first_n = term.step < 0 ? -last : term.first;
  const Int128 last_n = term.step < 0 ? -term.first : last;
  const Int128 from = std::max(first_n, floor_div(low - base, step) + 1);
  const Int128 to = std::min(last_n, floor_div(high - base - 1, step));
  return from <= to;
}

/// Sums of one multiple of each term.
struct Combinations {
  std::span<const Multiples> terms;
  Multiples last;
  Int128 low = 0;
  Int128 high = 0;

  /// Whether one of them lies between low and high when added to `base`.
  [[nodiscard]] bool meet(Int128 base) const {
    Int128 count = 1;
    for (const Multiples& term : terms) {
      if (term.count > kMostCombinations / count) return true;
      count *= term.count;
    }
    return meet_from(0, base);
  }

 private:
  [[nodiscard]] bool meet_from(std::size_t term, Int128 at) const {
    if (term == terms.size()) return reaches(last, at, low, high);
    const auto& [step, first, count] = terms[term];
    for (Int128 i = 0; i < count; ++i)
      if (meet_from(term + 1, at + (first + i) * step)) return true;
    return false;
  }
};

}  // namespace

bool is_contiguous(const Operand& operand) {
  std::int64_t expected = 1;
  for (std::size_t d = operand.strides.size(); d > 0; --d) {
    const std::int64_t dim = operand.shape[d - 1];
    if (dim == 1) continue;
    if (operand.strides[d - 1] != expected) return false;
    expected *= dim;  // at most the elements, which were checked
  }
  return true;
}

Rows rows_of(const ByteAccess& access) {
  Rows rows{.begin = access.begin, .run = access.end - access.begin};
  if (access.exact || access.operand == nullptr) return rows;
  const Operand& operand = *access.operand;
  rows.begin = operand.offset;
  rows.run = operand.span_bytes();
  for (const RankStride& stride : operand.rank_strides) rows.steps[stride.axis] += stride.bytes;
  if (is_contiguous(operand)) return rows;
  // Contiguous inner dims make a row; rows of one stride are left where all other dims are 1 or
  // continue the rows' stride.
  std::int64_t run = 1;
  std::size_t d = operand.shape.size();
  while (d > 0 && (operand.shape[d - 1] == 1 || operand.strides[d - 1] == run))
    run *= operand.shape[--d];
  std::int64_t count = 1;
  std::int64_t stride = 0;
  for (; d > 0; --d) {
    const std::int64_t dim = operand.shape[d - 1];
    if (dim == 1) continue;
    if (stride == 0) stride = operand.strides[d - 1];
    if (operand.strides[d - 1] != Int128{stride} * count || stride < run) return rows;
    count *= dim;
  }
  const std::int64_t size = size_of(operand.dtype);
  rows.run = run * size;
  rows.count = count;
  rows.stride = stride * size;
  return rows;
}

bool overlap(const Rows& a, const Rows& b, const Mesh& mesh) {
  const Int128 base = Int128{b.begin} - a.begin;
  Rows x = a;
  Rows y = b;
  if (x.count > 1 && y.count > 1 && x.stride != y.stride)
    for (Rows* rows : {&x, &y}) {
      rows->run += rows->stride * (rows->count - 1);
      rows->count = 1;
    }
  std::array<Multiples, Names<Axis>::values.size() + 1> room;
  std::size_t used = 0;
  const auto add = [&](const Multiples& term) {
    if (term.step != 0) room.at(used++) = term;
  };
  add({.step = x.count > 1 ? x.stride : y.stride,
       .first = -(Int128{x.count} - 1),
       .count = Int128{x.count} + y.count - 1});
  for (const auto* grid : {&mesh.dense, &mesh.experts})
    for (const auto& [axis, size] : *grid)
      add({.step = b.steps[axis] - a.steps[axis], .first = 0, .count = size});
  // The longest term is solved for, the others are gone through.
  const auto terms = std::span(room).first(std::max<std::size_t>(used, 1));
  std::ranges::sort(terms, {}, &Multiples::count);
  const Combinations combinations{.terms = terms.first(terms.size() - 1),
                                  .last = terms.back(),
                                  .low = -Int128{y.run},
                                  .high = x.run};
  return combinations.meet(base);
}

}  // namespace mfsdp
