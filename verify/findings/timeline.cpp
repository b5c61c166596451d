#include "verify/findings/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace mfsdp {
namespace {

std::string when(const Place& place) {
  const std::string times =
      place.repetition == 0 ? "" : fmt::format(" repetition {}", place.repetition);
  return fmt::format("{}, step {}, {}{}, op {}", place.plan, place.step, place.segment, times,
                     place.op.value);
}

/// Lines lose what alignment leaves at their ends.
void add_line(std::string& text, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + "\n";
}

}  // namespace

std::string draw_timeline(const Finding& finding) {
  const std::vector<Place>& order = finding.interleaving;
  std::vector<std::string> streams;
  std::size_t stream_width = 0;
  std::size_t name_width = 0;
  for (const Place& place : order) {
    if (std::ranges::find(streams, place.stream) == streams.end()) streams.push_back(place.stream);
    stream_width = std::max(stream_width, place.stream.size());
    name_width = std::max(name_width, place.name.size());
  }
  std::string text;
  const auto width = fmt::formatted_size("{}", order.size()) + 3;
  for (const std::string& stream : streams) {
    std::string line = fmt::format("  {:{}}  ", stream, stream_width);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool culprit = std::ranges::find(finding.places, order[i]) != finding.places.end();
      const std::string cell =
          order[i].stream == stream ? fmt::format("{}{}", i + 1, culprit ? "*" : "") : ".";
      line += fmt::format("{:{}}", cell, width);
    }
    add_line(text, std::move(line));
  }
  if (!order.empty()) text += "\n";
  for (std::size_t i = 0; i < order.size(); ++i)
    add_line(text, fmt::format("  {:{}}  {:{}}  {:{}}  {}", i + 1, width - 3, order[i].name,
                               name_width, order[i].stream, stream_width, when(order[i])));
  return text;
}

std::string to_text(const Finding& finding) {
  const RuleInfo* rule = find_rule(finding.rule);
  std::string text = fmt::format("{} {}: {}\n", finding.rule,
                                 rule == nullptr ? "unknown" : rule->name, finding.message);
  if (!finding.missing.empty()) text += fmt::format("  missing: {}\n", finding.missing);
  const std::string timeline = draw_timeline(finding);
  return timeline.empty() ? text : text + "\n" + timeline;
}

}  // namespace mfsdp
