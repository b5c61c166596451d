#include "verify/traces/busy_time.hpp"

#include <algorithm>
#include <utility>

namespace mfsdp::traces {

BusyTime::BusyTime(std::vector<Interval> intervals) : stretches_(std::move(intervals)) {
  std::erase_if(stretches_, [](const Interval& row) { return row.end <= row.begin; });
  std::ranges::sort(stretches_, {}, &Interval::begin);
  std::size_t kept = 0;
  for (const Interval& next : stretches_) {
    if (kept > 0 && next.begin <= stretches_[kept - 1].end) {
      Interval& last = stretches_[kept - 1];
      last.end = std::max(last.end, next.end);
    } else {
      stretches_[kept++] = next;
    }
  }
  stretches_.resize(kept);
  stretches_.shrink_to_fit();
  sums_.reserve(kept);
  Nanos sum;
  for (const Interval& row : stretches_) {
    sums_.push_back(sum);
    sum += row.end - row.begin;
  }
}

Nanos BusyTime::before(Nanos time) const {
  const auto after = std::ranges::lower_bound(stretches_, time, {}, &Interval::begin);
  if (after == stretches_.begin()) return {};
  const auto index = static_cast<std::size_t>(after - stretches_.begin()) - 1;
  const Interval& last = stretches_[index];
  return sums_[index] + (std::min(last.end, time) - last.begin);
}

std::optional<Nanos> BusyTime::last_end(Nanos time) const {
  const auto after = std::ranges::lower_bound(stretches_, time, {}, &Interval::begin);
  if (after == stretches_.begin()) return std::nullopt;
  return std::prev(after)->end;
}

std::optional<Nanos> BusyTime::next_begin(Nanos time) const {
  const auto after = std::ranges::lower_bound(stretches_, time, {}, &Interval::begin);
  if (after == stretches_.end()) return std::nullopt;
  return after->begin;
}

}  // namespace mfsdp::traces
