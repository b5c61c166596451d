// best_fit: the result of greedy packing depends on the order, so this tries orders that suit a
// training step, the cheapest and most promising first, and stops at the lower bound.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>
#include <utility>

#include "core/memory/packing.hpp"

namespace mfsdp {
namespace {

using Order = std::vector<std::uint32_t>;

/// Comparisons after which the search stops, issue order not counted: about 10 ms.
constexpr std::int64_t kWorkBudget = 8'000'000;
/// Comparisons for repairs of the best order: about 4 ms.
constexpr std::int64_t kRepairBudget = 3'000'000;
constexpr int kMostRepairs = 2000;

/// Larger comes first; ties by issue order.
Order order_by(std::span<const Block> blocks, auto key) {
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(
      order, [&](std::uint32_t a, std::uint32_t b) { return key(blocks[a]) > key(blocks[b]); });
  return order;
}

Order longest_first(std::span<const Block> blocks) {
  return order_by(blocks, [](const Block& b) { return b.alive; });
}

Order issue_order(std::span<const Block> blocks) {
  Order order(blocks.size());
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

/// Blocks that are live where the most bytes are come first, longest first, so that they touch: then the
/// others, largest first.
Order fullest_first(std::span<const Block> blocks) {
  const std::int64_t fullest = fullest_position(blocks);
  return order_by(blocks, [&](const Block& b) {
    const bool is_there = std::ranges::any_of(b.lifetimes, [&](const Lifetime& life) {
      return life.begin <= fullest && fullest < life.end;
    });
    return std::tuple(is_there, is_there ? b.alive : b.size);
  });
}

// Of orders_of: those that have a budget of their own.
constexpr std::size_t kIssueOrder = 3;
constexpr std::size_t kFullestFirst = 6;

std::array<Order, 7> orders_of(std::span<const Block> blocks) {
  return {
      longest_first(blocks),
      order_by(blocks, [](const Block& b) { return b.size; }),
      order_by(blocks,
               [](const Block& b) {
                 return static_cast<double>(b.size) * static_cast<double>(b.alive);
               }),
      issue_order(blocks),
      order_by(blocks, [](const Block& b) { return b.end; }),
      order_by(blocks, [](const Block& b) { return std::pair(b.size, b.alive); }),
      fullest_first(blocks),
  };
}

/// Moves the blocks that reach the height to the front: they are placed first in the next attempt.
void promote_highest(std::span<const Block> blocks, const Packing& packing, Order& order) {
  std::ranges::stable_partition(order, [&](std::uint32_t index) {
    return packing.offsets[index] + blocks[index].size == packing.height;
  });
}

/// Moves one random block to an earlier place in the order.
void promote_one(std::minstd_rand& random, Order& order) {
  const auto from = static_cast<std::ptrdiff_t>(random() % order.size());
  const auto to = static_cast<std::ptrdiff_t>(random() % static_cast<std::size_t>(from + 1));
  std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
}

/// Hill climbing over orders, from the given one and its packing. Some order reaches the optimum:
/// placing the blocks of any packing by ascending offset reproduces or lowers it.
Packing repair(std::span<const Block> blocks, Order order, Packing best, std::int64_t lower_bound,
               const Meetings* meetings) {
  std::minstd_rand random;  // default seed: results are equal everywhere
  std::int64_t work = best.work;
  for (int attempt = 0; attempt < kMostRepairs; ++attempt) {
    if (best.height <= lower_bound || work >= kRepairBudget) break;
    Order changed = order;
    if (attempt % 2 == 0) {
      promote_highest(blocks, best, changed);
    } else {
      promote_one(random, changed);
    }
    std::optional<Packing> next =
        pack_in_gaps(blocks, changed, {.work = kRepairBudget - work}, meetings);
    if (!next) break;
    work += next->work;
    if (next->height > best.height) continue;
    best = *std::move(next);
    order = std::move(changed);
  }
  return best;
}

/// The pairs of blocks that are live together, as meetings or as neighbours, whichever is cheaper;
/// neither for a single order.
struct Together {
  std::optional<Neighbours> neighbours;
  std::optional<Meetings> meetings;

  [[nodiscard]] const Meetings* all() const { return meetings ? &*meetings : nullptr; }
};

std::optional<Neighbours> sparse_neighbours(std::span<const Block> blocks) {
  if (blocks.size() < kManyBlocks) return std::nullopt;
  return neighbours_of(blocks, kNeighboursPerBlock * std::ssize(blocks));
}

Together together_of(std::span<const Block> blocks) {
  Together together{.neighbours = sparse_neighbours(blocks), .meetings = std::nullopt};
  if (blocks.size() < kManyBlocks) together.meetings.emplace(blocks);
  return together;
}

std::optional<Packing> pack(std::span<const Block> blocks, const Order& order,
                            const PackingLimits& limits, const Together& together) {
  if (together.neighbours) return pack_beside(*together.neighbours, blocks, order);
  return pack_in_gaps(blocks, order, limits, together.all());
}

}  // namespace

Packing first_fit(std::span<const Block> blocks) {
  std::optional<Packing> packing =
      pack(blocks, issue_order(blocks), {.work = kFirstFitBudget},
           {.neighbours = sparse_neighbours(blocks), .meetings = std::nullopt});
  return packing ? *std::move(packing) : pack_on_skyline(blocks, longest_first(blocks));
}

Packing pack_best(std::span<const Block> blocks, std::int64_t lower_bound) {
  const std::array<Order, 7> orders = orders_of(blocks);
  Packing best = pack_on_skyline(blocks, orders.front());
  if (best.height <= lower_bound) return best;
  const Together together = together_of(blocks);
  std::int64_t work = best.work;
  const Order* best_order = nullptr;  // none while `best` is the skyline's
  // While the remaining orders fit the budget even if each compares all pairs of blocks, their
  // exact work does not matter: an order may stop as soon as it is not the lowest.
  const std::int64_t most_work = std::ssize(blocks) * (std::ssize(blocks) + 1) / 2;
  auto orders_to_count = std::ssize(orders) - 2;
  for (std::size_t i = 0; i < orders.size(); ++i) {
    // Issue order has first_fit's budget, so that the result is never above it. The last order pays where
    // all others have left gaps.
    const bool counted = i != kIssueOrder && i != kFullestFirst;
    const bool exact = counted && work + orders_to_count * most_work >= kWorkBudget;
    PackingLimits limits{.work = counted ? kWorkBudget - work : kFirstFitBudget};
    if (!exact) limits.height = best.height;
    if (counted) --orders_to_count;
    if (limits.work <= 0) continue;
    std::optional<Packing> next = pack(blocks, orders[i], limits, together);
    if (counted) work += next ? next->work : exact ? limits.work : most_work;
    if (!next || next->height >= best.height) continue;
    best = *std::move(next);
    best_order = &orders[i];
    if (best.height <= lower_bound) return best;
  }

  if (work >= kWorkBudget) return best;
  const Order& order = best_order != nullptr ? *best_order : orders.front();
  // Only pack_in_gaps counts its work as repairs do.
  std::optional<Packing> start = best;
  if (best_order == nullptr || together.neighbours)
    start = pack_in_gaps(blocks, order, {.work = kRepairBudget}, together.all());
  if (!start || start->work > kRepairBudget) return best;
  Packing repaired = repair(blocks, order, *std::move(start), lower_bound, together.all());
  return repaired.height < best.height ? repaired : best;
}

}  // namespace mfsdp
