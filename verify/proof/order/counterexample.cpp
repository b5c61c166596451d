#include "verify/proof/order/counterexample.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mfsdp {
namespace {

/// The last wait before an instance on its own chain, with the record that it got: what the
/// instance is known to follow.
std::vector<std::uint32_t> last_wait(const UnrolledPlan& unrolled, std::uint32_t instance) {
  const std::uint32_t chain = unrolled.instances[instance].chain;
  for (std::uint32_t i = instance; i > 0; --i) {
    const Instance& candidate = unrolled.instances[i - 1];
    if (candidate.chain != chain || candidate.op->kind() != OpKind::wait) continue;
    if (candidate.source == kNone) return {i - 1};
    return {candidate.source, i - 1};
  }
  return {};
}

/// An order in which b runs first: waits before b, b, further waits before a, a.
std::vector<std::uint32_t> reversed_order(const UnrolledPlan& unrolled, std::uint32_t a,
                                          std::uint32_t b) {
  const std::vector<std::uint32_t> before_b = last_wait(unrolled, b);
  std::vector<std::uint32_t> order = before_b;
  std::vector<std::uint32_t> late;
  for (const std::uint32_t i : last_wait(unrolled, a)) {
    if (std::ranges::find(before_b, i) != before_b.end()) continue;
    (unrolled.before(i, b) ? order : late).push_back(i);
  }
  std::ranges::sort(order);
  order.push_back(b);
  order.insert(order.end(), late.begin(), late.end());
  order.push_back(a);
  return order;
}

std::string bytes_of(const UnrolledPlan& unrolled, const BufferRange& range) {
  const Buffer& buffer = unrolled.program->buffers[range.buffer];
  const Pool& pool = unrolled.program->pools[unrolled.index->pools[buffer.pool]];
  return fmt::format("bytes [{}, {}) of buffer '{}' (pool '{}')", range.begin, range.end,
                     buffer.name, pool.name);
}

Finding finding_at(const UnrolledPlan& unrolled, std::string rule, const BufferRange& range) {
  return {.rule = std::move(rule),
          .message = "",
          .buffer = unrolled.program->buffers[range.buffer].id,
          .begin = range.begin,
          .end = range.end};
}

}  // namespace

Finding unordered_finding(const UnrolledPlan& unrolled, std::string rule, std::uint32_t first,
                          std::uint32_t then, const BufferRange& range) {
  Finding finding = finding_at(unrolled, std::move(rule), range);
  finding.places = {place_of(unrolled, first), place_of(unrolled, then)};
  const std::string from = to_text(finding.places[0]);
  const std::string to = to_text(finding.places[1]);
  finding.message = fmt::format("nothing orders {} and {}, which both touch {}", from, to,
                                bytes_of(unrolled, range));
  finding.missing = fmt::format("{} -> {}", from, to);
  for (const std::uint32_t i : reversed_order(unrolled, first, then))
    finding.interleaving.push_back(place_of(unrolled, i));
  return finding;
}

Finding ordered_finding(const UnrolledPlan& unrolled, std::string rule,
                        std::vector<std::uint32_t> instances, const BufferRange& range,
                        const std::string& what) {
  Finding finding = finding_at(unrolled, std::move(rule), range);
  std::erase(instances, kNone);
  for (const std::uint32_t i : instances) finding.interleaving.push_back(place_of(unrolled, i));
  finding.places.assign(finding.interleaving.rbegin(), finding.interleaving.rend());
  finding.message =
      fmt::format("{} {}: {}", to_text(finding.places.front()), what, bytes_of(unrolled, range));
  return finding;
}

}  // namespace mfsdp
