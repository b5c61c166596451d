// Megatron-FSDP v2's rule: chunk factor, conjugate pairing, row-aligned fragments.
#include <algorithm>
#include <cassert>
#include <numeric>

#include "core/base/quantity.hpp"
#include "core/shard/flat_layout.hpp"

namespace mfsdp {
namespace {

std::int64_t checked_lcm(std::int64_t a, std::int64_t b) {
  return checked_mul(a / std::gcd(a, b), b);
}

/// Places the items of one group. `next_` is the chunk boundary where the next matrix goes.
class Placer {
 public:
  explicit Placer(std::span<const LayoutItem> items)
      : items_(items), offsets_(items.size(), 0), placed_(items.size(), false) {
    for (const LayoutItem& item : items) {
      assert(item.elements > 0 && item.row > 0 && item.elements % item.row == 0);
      chunk_ = checked_lcm(chunk_, item.row);
    }
    for (std::size_t i = 0; i < items.size(); ++i)
      if (is_fragment(i)) fragments_.push_back(i);
    std::ranges::stable_sort(fragments_, [&](std::size_t a, std::size_t b) {
      return items_[a].elements > items_[b].elements;
    });
  }

  void place_all() {
    for (std::size_t i = 0; i < items_.size(); ++i)
      if (!is_fragment(i) && !placed_[i]) place_regular(i);
    place_tail();
  }

  [[nodiscard]] std::int64_t chunk() const { return chunk_; }
  [[nodiscard]] std::int64_t end() const { return next_; }
  [[nodiscard]] std::vector<std::int64_t> take_offsets() { return std::move(offsets_); }

 private:
  [[nodiscard]] bool is_fragment(std::size_t i) const { return items_[i].elements < chunk_; }
  [[nodiscard]] std::int64_t remainder(std::size_t i) const { return items_[i].elements % chunk_; }

  void put(std::size_t i, std::int64_t offset) {
    offsets_[i] = offset;
    placed_[i] = true;
  }

  /// Item i starts on a boundary. If it ends inside a chunk, its conjugate ends on the next
  /// boundary, and fragments fill the gap between them.
  void place_regular(std::size_t i) {
    put(i, next_);
    const std::int64_t end = checked_add(next_, items_[i].elements);
    next_ = round_up(end, chunk_);
    if (next_ == end) return;
    std::int64_t gap_end = next_;
    if (const std::size_t other = conjugate_of(i); other != items_.size()) {
      gap_end = next_ - remainder(other);
      put(other, gap_end);
      next_ = checked_add(gap_end, items_[other].elements);
    }
    fill_gap(end, gap_end);
  }

  /// The first later matrix whose remainder fits into the rest of i's last chunk, or the number of
  /// items if there is none.
  [[nodiscard]] std::size_t conjugate_of(std::size_t i) const {
    for (std::size_t j = i + 1; j < items_.size(); ++j) {
      if (is_fragment(j) || placed_[j]) continue;
      if (remainder(j) != 0 && remainder(i) + remainder(j) <= chunk_) return j;
    }
    return items_.size();
  }

  /// First fit, each fragment on a multiple of its own row.
  void fill_gap(std::int64_t begin, std::int64_t end) {
    for (const std::size_t i : fragments_) {
      if (placed_[i]) continue;
      const std::int64_t offset = round_up(begin, items_[i].row);
      if (offset > end || items_[i].elements > end - offset) continue;
      put(i, offset);
      begin = offset + items_[i].elements;
    }
  }

  void place_tail() {
    for (const std::size_t i : fragments_) {
      if (placed_[i]) continue;
      put(i, round_up(next_, items_[i].row));
      next_ = checked_add(offsets_[i], items_[i].elements);
    }
  }

  std::span<const LayoutItem> items_;
  std::vector<std::int64_t> offsets_;
  std::vector<bool> placed_;
  std::vector<std::size_t> fragments_;  ///< indices, largest first
  std::int64_t chunk_ = 1;
  std::int64_t next_ = 0;
};

}  // namespace

FlatLayout megatron_fsdp_layout(std::span<const LayoutItem> items, std::int64_t ranks) {
  assert(ranks > 0);
  Placer placer(items);
  placer.place_all();
  FlatLayout layout;
  layout.chunk = placer.chunk();
  layout.ranks = ranks;
  layout.elements = round_up(placer.end(), checked_mul(ranks, layout.chunk));
  layout.offsets = placer.take_offsets();
  layout.sizes.reserve(items.size());
  for (const LayoutItem& item : items) layout.sizes.push_back(item.elements);
  return layout;
}

}  // namespace mfsdp
