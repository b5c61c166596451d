#include "verify/proof/order/pairwise.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>

#include "verify/proof/order/counterexample.hpp"
#include "verify/proof/order/overlap.hpp"
#include "verify/proof/order/races.hpp"

namespace mfsdp {
namespace {

/// Comparisons of ranges per plan; beyond them ranges count as their spans, which errs on the safe
/// side.
constexpr std::int64_t kMostComparisons = 50'000'000;

struct Touch {
  std::uint32_t instance = 0;
  std::uint32_t lifetime = 0;  ///< acquires of the buffer up to here, in host order
  bool writes = false;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Rows rows;
};

class Comparison {
 public:
  Comparison(const UnrolledPlan& unrolled, FindingList& findings)
      : u_(unrolled), findings_(findings) {}

  /// `touches` in host order.
  void compare(std::uint32_t buffer, const std::vector<Touch>& touches) {
    std::vector<std::vector<const Touch*>> chains(u_.chains);
    std::set<std::pair<std::uint32_t, std::uint32_t>> reported;
    for (const Touch& touch : touches) {
      const std::uint32_t own = u_.instances[touch.instance].chain;
      for (std::uint32_t c = 0; c < u_.chains; ++c) {
        if (reported.contains({c, own})) continue;
        const Touch* other = first_conflict(chains[c], touch);
        if (other == nullptr) continue;
        reported.insert({c, own});
        if (findings_.wants("MF101")) report(buffer, *other, touch);
      }
      chains[own].push_back(&touch);
    }
  }

 private:
  /// `before` comes first in host order. A release that is issued too early is still to run after
  /// every use of its lifetime.
  void report(std::uint32_t buffer, const Touch& before, const Touch& touch) {
    const bool early_release =
        u_.facts(before.instance).kind == OpKind::release && before.lifetime == touch.lifetime;
    const Touch& first = early_release ? touch : before;
    const Touch& then = early_release ? before : touch;
    findings_.add(unordered_finding(u_, "MF101", first.instance, then.instance,
                                    {.buffer = buffer,
                                     .begin = std::max(touch.begin, before.begin),
                                     .end = std::min(touch.end, before.end)}));
  }

  /// The latest of a chain's touches that is unordered with this one and conflicts.
  const Touch* first_conflict(const std::vector<const Touch*>& chain, const Touch& touch) {
    for (const Touch* before : std::views::reverse(chain)) {
      const Touch& other = *before;
      if (other.instance == touch.instance) continue;
      if (u_.before(other.instance, touch.instance)) return nullptr;  // and all before it
      if (!touch.writes && !other.writes) continue;
      if (touch.begin >= other.end || other.begin >= touch.end) continue;
      if (++comparisons_ > kMostComparisons ||
          overlap(touch.rows, other.rows, u_.program->config.mesh))
        return &other;
    }
    return nullptr;
  }

  const UnrolledPlan& u_;
  FindingList& findings_;
  std::int64_t comparisons_ = 0;
};

}  // namespace

void compare_pairs(const UnrolledPlan& unrolled, const AccessTable& table,
                   const std::vector<char>& suspect, FindingList& findings) {
  if (std::ranges::find(suspect, 1) == suspect.end()) return;
  std::map<std::uint32_t, std::vector<Touch>> touches;
  std::vector<std::uint32_t> lifetimes(suspect.size(), 0);
  const auto add = [&](std::size_t i, const ByteAccess& access) {
    if (unrolled.facts(i).kind == OpKind::acquire) ++lifetimes[access.buffer];
    if (suspect[access.buffer] != 0)
      touches[access.buffer].push_back({.instance = static_cast<std::uint32_t>(i),
                                        .lifetime = lifetimes[access.buffer],
                                        .writes = access.writes,
                                        .begin = access.begin,
                                        .end = access.end,
                                        .rows = rows_of(access)});
  };
  for (std::size_t i = 0; i < unrolled.instances.size(); ++i) {
    const Instance& instance = unrolled.instances[i];
    const auto accesses = table.of(instance.op_index);
    if (!instance.host_work) {
      for (const ByteAccess& access : accesses) add(i, access);
    } else if (const auto access =
                   host_access(*unrolled.program, std::get<Copy>(instance.op->body), accesses)) {
      add(i, *access);
    }
  }
  Comparison comparison(unrolled, findings);
  for (const auto& [buffer, list] : touches) comparison.compare(buffer, list);
}

}  // namespace mfsdp
