#include "sim/engine/running.hpp"

#include <algorithm>
#include <limits>

namespace mfsdp {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

/// Share of its demand that a link can serve: 1, or the inverse of what all on it want together.
std::int64_t link_rate(const std::vector<Running>& ops, int link) {
  std::int64_t demand = 0;
  for (const Running& op : ops)
    if (op.launch != nullptr && op.launch->link == link) demand += op.launch->demand;
  return demand <= kOne ? kOne : std::max<std::int64_t>(kOne * kOne / demand, 1);
}

}  // namespace

std::int64_t Running::time_left() const {
  if (remaining <= 0) return 0;
  if (remaining <= kMost - kOne) {  // the usual case, without 128-bit division
    const auto left = static_cast<std::int64_t>(remaining);
    return rate == kOne ? (left + kOne - 1) / kOne : (left + rate - 1) / rate;
  }
  return checked_narrow((remaining + rate - 1) / rate);
}

void RunningOps::start(const Running& op) {
  ops_.insert(std::ranges::upper_bound(ops_, op.stream, {}, &Running::stream), op);
}

void RunningOps::share() {
  std::int64_t lost = 0;
  for (Running& op : ops_) {
    if (op.launch == nullptr) continue;
    lost += op.launch->slowdown;
    op.rate = link_rate(ops_, op.launch->link);
  }
  for (Running& op : ops_)
    if (op.entry->action == Action::kernel) op.rate = std::max(kOne - lost, kSlowestKernel);
}

std::int64_t RunningOps::until_first_end() const {
  std::int64_t first = kMost;
  for (const Running& op : ops_) first = std::min(first, op.time_left());
  return first;
}

void RunningOps::pass(std::int64_t time) {
  for (Running& op : ops_) op.remaining -= static_cast<Int128>(time) * op.rate;
}

const std::vector<Running>& RunningOps::take_ended() {
  ended_.clear();
  std::erase_if(ops_, [&](const Running& op) {
    if (op.remaining > 0) return false;
    ended_.push_back(op);
    return true;
  });
  return ended_;
}

}  // namespace mfsdp
