#include "core/memory/packing.hpp"

#include <algorithm>
#include <cassert>

namespace mfsdp {
namespace {

/// The placed blocks, by offset.
struct Shelf {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> tops;
  std::vector<std::uint32_t> blocks;

  void insert(std::int64_t offset, std::int64_t top, std::uint32_t block) {
    const auto at = std::ranges::upper_bound(offsets, offset) - offsets.begin();
    offsets.insert(offsets.begin() + at, offset);
    tops.insert(tops.begin() + at, top);
    blocks.insert(blocks.begin() + at, block);
  }
};

struct Gap {
  std::int64_t offset = 0;
  std::size_t end = 0;  ///< position of the block that ends it, or the number of blocks
};

/// The lowest gap of that size between the blocks for which `meets` is 1, not 0.
Gap find_gap(const Shelf& shelf, std::int64_t size, const auto& meets) {
  const std::size_t count = shelf.blocks.size();
  std::int64_t offset = 0;
  std::size_t i = 0;
  // No branch on `meets`, which would be mispredicted often.
  for (; i < count && shelf.offsets[i] - offset < size; ++i)
    offset = std::max(offset, shelf.tops[i] & -meets(shelf.blocks[i]));
  // All later blocks begin above the gap.
  while (i < count && meets(shelf.blocks[i]) == 0) ++i;
  return {.offset = offset, .end = i};
}

/// Whether a block is live together with others, from its row of Meetings.
struct Listed {
  const std::uint64_t* row;

  std::int64_t operator()(std::uint32_t other) const {
    return static_cast<std::int64_t>(row[other / 64] >> (other % 64) & 1);
  }
};

/// Whether a block is live together with others, from the lifetimes of both.
struct Compared {
  std::span<const Block> blocks;
  const Block& block;

  std::int64_t operator()(std::uint32_t index) const {
    const Block& other = blocks[index];
    if (other.begin >= block.end || block.begin >= other.end) return 0;
    if ((other.touched & block.touched) == 0) return 0;
    if (((other.filled & block.touched) | (block.filled & other.touched)) != 0) return 1;
    return static_cast<std::int64_t>(overlap(block.lifetimes, other.lifetimes));
  }
};

/// The position at which a block begins or ends to be live.
struct Change {
  std::int64_t at;
  bool begins;
  std::uint32_t block;
};

/// By position. Ends come before begins at one position, as lifetimes are half-open.
std::vector<Change> changes_of(std::span<const Block> blocks) {
  std::vector<Change> changes;
  changes.reserve(2 * blocks.size());
  for (std::uint32_t i = 0; i < blocks.size(); ++i)
    for (const Lifetime& life : blocks[i].lifetimes) {
      if (life.begin == life.end) continue;
      changes.push_back({life.begin, true, i});
      changes.push_back({life.end, false, i});
    }
  std::ranges::stable_sort(changes, [](const Change& a, const Change& b) {
    return a.at != b.at ? a.at < b.at : a.begins < b.begins;
  });
  return changes;
}

/// Range maximum over positions whose values only grow.
class Skyline {
 public:
  explicit Skyline(std::size_t leaves) : leaves_(leaves), max_(2 * leaves), raised_(2 * leaves) {}

  [[nodiscard]] std::int64_t highest(std::size_t begin, std::size_t end) const {
    std::int64_t result = 0;
    for (std::size_t l = begin + leaves_, r = end + leaves_; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) result = std::max(result, max_[l++]);
      if (r % 2 == 1) result = std::max(result, max_[--r]);
    }
    for (const std::size_t edge : {begin + leaves_, end - 1 + leaves_})
      for (std::size_t node = edge; node > 0; node /= 2) result = std::max(result, raised_[node]);
    return result;
  }

  void raise(std::size_t begin, std::size_t end, std::int64_t top) {
    const auto raise_node = [&](std::size_t node) {
      raised_[node] = std::max(raised_[node], top);
      max_[node] = std::max(max_[node], top);
    };
    for (std::size_t l = begin + leaves_, r = end + leaves_; l < r; l /= 2, r /= 2) {
      if (l % 2 == 1) raise_node(l++);
      if (r % 2 == 1) raise_node(--r);
    }
    for (const std::size_t edge : {begin + leaves_, end - 1 + leaves_})
      for (std::size_t node = edge / 2; node > 0; node /= 2)
        max_[node] = std::max({raised_[node], max_[2 * node], max_[2 * node + 1]});
  }

 private:
  std::size_t leaves_;
  std::vector<std::int64_t> max_;     ///< of the node's positions, from marks at or below it
  std::vector<std::int64_t> raised_;  ///< minimum of all positions of the node, by marks at it
};

std::vector<std::int64_t> positions_of(std::span<const Block> blocks) {
  std::vector<std::int64_t> positions;
  positions.reserve(2 * blocks.size());
  for (const Block& block : blocks)
    for (const Lifetime& life : block.lifetimes) {
      positions.push_back(life.begin);
      positions.push_back(life.end);
    }
  std::ranges::sort(positions);
  const auto repeated = std::ranges::unique(positions);
  positions.erase(repeated.begin(), repeated.end());
  return positions;
}

/// Bits [begin, end) of 64; none if that is empty.
std::uint64_t bits(std::int64_t begin, std::int64_t end) {
  if (begin >= end) return 0;
  const std::uint64_t below_end = end >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << end) - 1;
  return below_end & ~((std::uint64_t{1} << begin) - 1);
}

/// Sets the parts in which each block is live.
void mark_parts(std::vector<Block>& blocks) {
  std::int64_t length = 1;
  for (const Block& block : blocks) length = std::max(length, block.end);
  const std::int64_t part = (length + 63) / 64;
  for (Block& block : blocks) {
    block.touched = 0;
    for (const Lifetime& life : block.lifetimes) {
      if (life.begin == life.end) continue;
      block.touched |= bits(life.begin / part, (life.end + part - 1) / part);
      block.filled |= bits((life.begin + part - 1) / part, life.end / part);
    }
  }
}

struct Fullest {
  std::int64_t at = 0;
  std::int64_t live = 0;  ///< bytes
};

/// The first position at which the most bytes are live.
Fullest fullest_of(std::span<const Block> blocks) {
  Fullest found;
  std::int64_t live = 0;
  for (const Change& change : changes_of(blocks)) {
    const std::int64_t size = blocks[change.block].size;
    live = checked_add(live, change.begins ? size : -size);
    if (live > found.live) found = {.at = change.at, .live = live};
  }
  return found;
}

}  // namespace

std::vector<Block> blocks_of(const AllocationProblem& problem) {
  assert(problem.alignment > 0);
  std::vector<Block> blocks;
  blocks.reserve(problem.items.size());
  for (const AllocationItem& item : problem.items) {
    assert(item.size.value >= 0);
    Block block{.size = round_up(item.size.value, problem.alignment)};
    for (const Lifetime& life : item.lifetimes) block.alive += life.end - life.begin;
    if (block.size > 0 && block.alive > 0) {
      block.lifetimes = item.lifetimes;
      block.begin = item.lifetimes.front().begin;
      block.end = item.lifetimes.back().end;
    }
    blocks.push_back(block);
  }
  mark_parts(blocks);
  return blocks;
}

std::int64_t lower_bound_of(std::span<const Block> blocks) { return fullest_of(blocks).live; }

std::int64_t fullest_position(std::span<const Block> blocks) { return fullest_of(blocks).at; }

bool overlap(std::span<const Lifetime> a, std::span<const Lifetime> b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (std::max(a[i].begin, b[j].begin) < std::min(a[i].end, b[j].end)) return true;
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return false;
}

Meetings::Meetings(std::span<const Block> blocks)
    : words_((blocks.size() + 63) / 64), bits_(blocks.size() * words_) {
  const auto set = [&](std::uint32_t a, std::uint32_t b) {
    bits_[a * words_ + b / 64] |= std::uint64_t{1} << (b % 64);
  };
  std::vector<std::uint32_t> alive;
  for (const Change& change : changes_of(blocks)) {
    if (!change.begins) {
      std::erase(alive, change.block);
      continue;
    }
    for (const std::uint32_t other : alive) {
      set(other, change.block);
      set(change.block, other);
    }
    alive.push_back(change.block);
  }
}

std::optional<Neighbours> neighbours_of(std::span<const Block> blocks, std::int64_t most) {
  Neighbours neighbours(blocks.size());
  std::vector<std::uint32_t> alive;
  std::int64_t pairs = 0;
  for (const Change& change : changes_of(blocks)) {
    if (!change.begins) {
      std::erase(alive, change.block);
      continue;
    }
    pairs += std::ssize(alive);
    if (pairs > most) return std::nullopt;
    for (const std::uint32_t other : alive) {
      neighbours[other].push_back(change.block);
      neighbours[change.block].push_back(other);
    }
    alive.push_back(change.block);
  }
  return neighbours;
}

Packing pack_beside(const Neighbours& neighbours, std::span<const Block> blocks,
                    std::span<const std::uint32_t> order) {
  struct Taken {
    std::int64_t offset;
    std::int64_t top;
  };
  Packing packing{.offsets = std::vector<std::int64_t>(blocks.size())};
  std::vector<bool> is_placed(blocks.size());
  std::vector<Taken> taken;  // by blocks that are live together with the block
  for (const std::uint32_t index : order) {
    const std::int64_t size = blocks[index].size;
    taken.clear();
    for (const std::uint32_t other : neighbours[index])
      if (is_placed[other])
        taken.push_back({packing.offsets[other], packing.offsets[other] + blocks[other].size});
    std::ranges::sort(taken, {}, &Taken::offset);
    std::int64_t offset = 0;
    for (const Taken& other : taken) {
      if (other.offset - offset >= size) break;
      offset = std::max(offset, other.top);
    }
    is_placed[index] = true;
    packing.offsets[index] = offset;
    packing.height = std::max(packing.height, checked_add(offset, size));
    packing.work += std::ssize(neighbours[index]) + 1;
  }
  return packing;
}

std::optional<Packing> pack_in_gaps(std::span<const Block> blocks,
                                    std::span<const std::uint32_t> order,
                                    const PackingLimits& limits, const Meetings* meetings) {
  Packing packing{.offsets = std::vector<std::int64_t>(blocks.size())};
  Shelf shelf;
  for (const std::uint32_t index : order) {
    const Block& block = blocks[index];
    if (block.lifetimes.empty()) {
      packing.height = std::max(packing.height, block.size);
      continue;
    }
    const Gap gap = meetings != nullptr ? find_gap(shelf, block.size, Listed{meetings->row(index)})
                                        : find_gap(shelf, block.size, Compared{blocks, block});
    packing.work += static_cast<std::int64_t>(gap.end) + 1;
    if (packing.work > limits.work) return std::nullopt;
    const std::int64_t top = checked_add(gap.offset, block.size);
    shelf.insert(gap.offset, top, index);
    packing.offsets[index] = gap.offset;
    packing.height = std::max(packing.height, top);
    if (packing.height >= limits.height) return std::nullopt;
  }
  return packing;
}

Packing pack_on_skyline(std::span<const Block> blocks, std::span<const std::uint32_t> order) {
  const std::vector<std::int64_t> positions = positions_of(blocks);
  const auto rank = [&](std::int64_t position) {
    return static_cast<std::size_t>(std::ranges::lower_bound(positions, position) -
                                    positions.begin());
  };
  Skyline skyline(std::max<std::size_t>(positions.size(), 1));
  Packing packing{.offsets = std::vector<std::int64_t>(blocks.size())};
  for (const std::uint32_t index : order) {
    const Block& block = blocks[index];
    std::int64_t offset = 0;
    for (const Lifetime& life : block.lifetimes)
      if (life.begin < life.end)
        offset = std::max(offset, skyline.highest(rank(life.begin), rank(life.end)));
    const std::int64_t top = checked_add(offset, block.size);
    for (const Lifetime& life : block.lifetimes)
      if (life.begin < life.end) skyline.raise(rank(life.begin), rank(life.end), top);
    packing.offsets[index] = offset;
    packing.height = std::max(packing.height, top);
    packing.work += 32;
  }
  return packing;
}

}  // namespace mfsdp
