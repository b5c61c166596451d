// Items of flat layouts, by hand and random ones.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <vector>

#include "core/shard/flat_layout.hpp"

namespace mfsdp::test {

using Offsets = std::vector<std::int64_t>;
using Items = std::vector<LayoutItem>;

inline LayoutItem matrix(std::int64_t rows, std::int64_t columns) {
  return LayoutItem{.elements = rows * columns, .row = columns};
}
inline LayoutItem vector_of(std::int64_t elements) {
  return LayoutItem{.elements = elements, .row = 1};
}

inline Items any_items() {
  const auto item =
      rc::gen::apply([](std::int64_t rows, std::int64_t row) { return matrix(rows, row); },
                     rc::gen::inRange<std::int64_t>(1, 40),
                     rc::gen::elementOf(std::vector<std::int64_t>{1, 1, 2, 3, 4, 6, 8, 12, 16}));
  const auto count = *rc::gen::inRange<std::size_t>(0, 13);
  return *rc::gen::container<Items>(count, item);
}
inline std::int64_t any_ranks() { return *rc::gen::inRange<std::int64_t>(1, 20); }

}  // namespace mfsdp::test
