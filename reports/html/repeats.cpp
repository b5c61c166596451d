#include "reports/html/repeats.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

namespace mfsdp {
namespace {

std::optional<Nanos> instance_begin(const std::vector<OpTime>& timeline, const InstanceCopy& copy) {
  constexpr std::string_view compute = to_string(StreamRole::compute);
  std::optional<Nanos> begin;
  for (const OpTime& op : timeline)
    if (op.instance == copy.instance && op.stream == compute && op.segment == copy.segment)
      begin = begin ? std::min(*begin, op.start) : op.start;
  return begin;
}

/// Entries of a list by time. `same`: whether the second entry is the first, so much later.
/// `closes`: whether a stretch from one position to before another can come again.
template <class Time, class Same, class Closes>
struct Entries {
  std::size_t size;
  Time time;
  Same same;
  Closes closes;

  /// The first position that is not before a time.
  [[nodiscard]] std::size_t at(Nanos wanted) const {
    std::size_t low = 0;
    std::size_t high = size;
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (time(middle) < wanted)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  /// How often the entries from `begin` on, of a period's length, come again.
  [[nodiscard]] Repeat repeat_from(Nanos begin, Nanos period) const {
    Repeat found{.first = at(begin), .count = 0, .copies = 0, .period = period};
    if (found.first == size) return found;
    found.count = at(begin + period) - found.first;
    if (found.count == 0 || !closes(found.first, found.first + found.count)) return found;
    for (std::size_t next = found.first + found.count; next + found.count <= size;
         next += found.count) {
      const Nanos shift = period * (found.copies + 1);
      for (std::size_t i = 0; i < found.count; ++i)
        if (!same(found.first + i, next + i, shift)) return found;
      ++found.copies;
    }
    return found;
  }
};

/// Neighbours of an instance's begin may differ from those of its copy's begin, so later begins are
/// tried, too. One copy is not worth an entry.
template <class Time, class Same, class Closes>
std::vector<Repeat> find_repeats(const Entries<Time, Same, Closes>& entries,
                                 const std::vector<OpTime>& timeline,
                                 const std::vector<InstanceCopy>& copies) {
  constexpr std::int64_t kTries = 4;
  std::vector<Repeat> repeats;
  std::size_t free_from = 0;
  for (const InstanceCopy& copy : copies) {
    // The copy that comes right after its instance states the pace of the others.
    if (copy.copy != copy.instance + 1 || copy.shift <= Nanos(0)) continue;
    const auto begin = instance_begin(timeline, copy);
    if (!begin) continue;
    Repeat best;
    for (std::int64_t i = 0; i < kTries; ++i) {
      const Repeat found =
          entries.repeat_from(*begin + Nanos(copy.shift.value / kTries * i), copy.shift);
      if (found.first >= free_from && found.copies > best.copies) best = found;
    }
    if (best.copies < 2) continue;
    free_from = best.first + static_cast<std::size_t>(best.copies + 1) * best.count;
    repeats.push_back(best);
  }
  return repeats;
}

}  // namespace

std::vector<Repeat> repeats_of(std::span<const MemoryPoint> points,
                               const std::vector<OpTime>& timeline,
                               const std::vector<InstanceCopy>& copies) {
  const auto time = [&](std::size_t i) { return points[i].at; };
  const auto same = [&](std::size_t i, std::size_t k, Nanos shift) {
    return points[k].at - points[i].at == shift && points[k].categories == points[i].categories;
  };
  // Changes come again only where they lead back to where they began.
  const auto closes = [&](std::size_t first, std::size_t after) {
    return first > 0 && points[first - 1].categories == points[after - 1].categories;
  };
  return find_repeats(Entries{points.size(), time, same, closes}, timeline, copies);
}

std::vector<Repeat> repeats_of(std::span<const BufferSpan> spans,
                               const std::vector<OpTime>& timeline,
                               const std::vector<InstanceCopy>& copies) {
  const auto time = [&](std::size_t i) { return spans[i].begin; };
  const auto same = [&](std::size_t i, std::size_t k, Nanos shift) {
    const BufferSpan& a = spans[i];
    const BufferSpan& b = spans[k];
    return a.buffer == b.buffer && a.slot == b.slot && b.begin - a.begin == shift &&
           b.end - a.end == shift;
  };
  const auto closes = [](std::size_t, std::size_t) { return true; };
  return find_repeats(Entries{spans.size(), time, same, closes}, timeline, copies);
}

std::vector<std::size_t> kept_positions(std::size_t size, std::span<const Repeat> repeats) {
  std::vector<std::size_t> kept;
  std::size_t next = 0;
  for (const Repeat& repeat : repeats) {
    for (; next < repeat.first + repeat.count; ++next) kept.push_back(next);
    next += static_cast<std::size_t>(repeat.copies) * repeat.count;
  }
  for (; next < size; ++next) kept.push_back(next);
  return kept;
}

}  // namespace mfsdp
