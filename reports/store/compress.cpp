#include "reports/store/compress.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace mfsdp {
namespace {

/// Positions in the timeline of an instance's ops, by op.
using Instance = std::vector<std::size_t>;
using InstanceKey = std::pair<std::string_view, std::int64_t>;

std::map<InstanceKey, Instance> instances_of(const std::vector<OpTime>& timeline) {
  std::map<InstanceKey, Instance> instances;
  for (std::size_t i = 0; i < timeline.size(); ++i)
    instances[{timeline[i].segment, timeline[i].instance}].push_back(i);
  for (auto& [key, ops] : instances)
    std::ranges::sort(ops, {}, [&](std::size_t i) { return timeline[i].op; });
  return instances;
}

/// By how much the second one runs after the first; none where they do not run alike.
std::optional<Nanos> shift_between(const std::vector<OpTime>& timeline, const Instance& first,
                                   const Instance& second) {
  if (first.size() != second.size()) return std::nullopt;
  const Nanos shift = timeline[second.front()].start - timeline[first.front()].start;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const OpTime& a = timeline[first[i]];
    const OpTime& b = timeline[second[i]];
    const bool alike = a.op == b.op && b.start - a.start == shift && b.end - a.end == shift &&
                       a.name == b.name && a.stream == b.stream && a.kind == b.kind;
    if (!alike) return std::nullopt;
  }
  return shift;
}

bool has_third_instance(const std::vector<OpTime>& timeline) {
  return std::ranges::any_of(timeline, [](const OpTime& op) { return op.instance >= 2; });
}

std::vector<InstanceCopy> copies_of(const OmittedInstances& omitted) {
  std::vector<InstanceCopy> copies;
  for (std::int64_t i = 0; i < omitted.count; ++i)
    copies.push_back({.segment = omitted.segment,
                      .instance = omitted.first - 1,
                      .copy = omitted.first + i,
                      .shift = omitted.period * (i + 1),
                      .omitted = true});
  return copies;
}

}  // namespace

CompressedOps compress_ops(const std::vector<OpTime>& timeline,
                           const std::vector<OmittedInstances>& omitted) {
  CompressedOps result;
  std::vector<bool> copied(timeline.size(), false);
  if (has_third_instance(timeline)) {  // two are not worth the search
    const auto instances = instances_of(timeline);
    const Instance* model = nullptr;
    InstanceKey model_key;
    for (const auto& [key, ops] : instances) {
      const bool follows = model != nullptr && model_key.first == key.first;
      const auto shift = follows ? shift_between(timeline, *model, ops) : std::nullopt;
      if (!shift) {
        model = &ops;
        model_key = key;
        continue;
      }
      result.copies.push_back({.segment = std::string(key.first),
                               .instance = model_key.second,
                               .copy = key.second,
                               .shift = *shift});
      for (const std::size_t i : ops) copied[i] = true;
    }
  }
  for (std::size_t i = 0; i < timeline.size(); ++i)
    if (!copied[i]) result.kept.push_back(i);
  for (const OmittedInstances& each : omitted)
    for (InstanceCopy& copy : copies_of(each)) result.copies.push_back(std::move(copy));
  return result;
}

void add_copies(std::vector<OpTime>& timeline, const std::vector<InstanceCopy>& copies) {
  if (std::ranges::all_of(copies, &InstanceCopy::omitted)) return;
  std::map<InstanceKey, Instance> instances;
  std::map<std::string, std::size_t, std::less<>> order;  // of segments
  for (std::size_t i = 0; i < timeline.size(); ++i) {
    order.emplace(timeline[i].segment, order.size());
    instances[{timeline[i].segment, timeline[i].instance}].push_back(i);
  }
  std::vector<OpTime> added;
  for (const InstanceCopy& copy : copies) {
    if (copy.omitted) continue;
    const auto found = instances.find({copy.segment, copy.instance});
    if (found == instances.end()) continue;
    for (const std::size_t i : found->second) {
      OpTime& op = added.emplace_back(timeline[i]);
      op.instance = copy.copy;
      op.start += copy.shift;
      op.end += copy.shift;
    }
  }
  timeline.insert(timeline.end(), std::make_move_iterator(added.begin()),
                  std::make_move_iterator(added.end()));
  std::ranges::stable_sort(timeline, [&](const OpTime& a, const OpTime& b) {
    if (a.start != b.start) return a.start < b.start;
    if (a.segment != b.segment)
      return order.find(a.segment)->second < order.find(b.segment)->second;
    return a.instance < b.instance;
  });
}

namespace {

/// Where the instance's first op starts.
std::optional<Nanos> begin_of(const std::vector<OpTime>& timeline, const InstanceCopy& copy) {
  std::optional<Nanos> begin;
  for (const OpTime& op : timeline)
    if (op.instance == copy.instance && op.segment == copy.segment)
      begin = begin ? std::min(*begin, op.start) : op.start;
  return begin;
}

bool comes_again(const std::vector<MemoryPoint>& points, std::size_t first, std::size_t again,
                 std::size_t count, Nanos shift) {
  if (again + count > points.size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const MemoryPoint& a = points[first + i];
    const MemoryPoint& b = points[again + i];
    if (b.at - a.at != shift || a.categories != b.categories) return false;
  }
  return true;
}

}  // namespace

std::vector<PointCopies> find_point_copies(const std::vector<MemoryPoint>& points,
                                           const std::vector<OpTime>& timeline,
                                           const std::vector<InstanceCopy>& copies) {
  std::vector<PointCopies> result;
  std::size_t free_from = 0;  // stretches do not overlap
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const InstanceCopy& copy = copies[i];
    const bool first_of_its_own =
        i == 0 || copies[i - 1].segment != copy.segment || copies[i - 1].instance != copy.instance;
    if (copy.omitted || !first_of_its_own || copy.shift <= Nanos(0)) continue;
    const auto begin = begin_of(timeline, copy);
    if (!begin) continue;
    const auto at = [&](Nanos time) {
      return static_cast<std::size_t>(std::ranges::lower_bound(points, time, {}, &MemoryPoint::at) -
                                      points.begin());
    };
    const std::size_t first = std::max(at(*begin), std::size_t{1});
    if (first >= points.size() || first < free_from) continue;
    const std::size_t count = at(points[first].at + copy.shift) - first;
    const bool closes =
        count > 0 && points[first - 1].categories == points[first + count - 1].categories;
    if (!closes) continue;
    PointCopies found{.first = first, .points = count, .copies = 0, .period = copy.shift};
    while (comes_again(points, first, first + static_cast<std::size_t>(found.copies + 1) * count,
                       count, copy.shift * (found.copies + 1)))
      ++found.copies;
    if (found.copies == 0) continue;
    free_from = first + static_cast<std::size_t>(found.copies + 1) * count;
    result.push_back(found);
  }
  return result;
}

}  // namespace mfsdp
