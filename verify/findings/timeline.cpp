#include "verify/findings/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "verify/findings/place_names.hpp"

namespace mfsdp {
namespace {

std::string when(const Place& place) {
  return fmt::format("{}, {}, {}, op {}", place.plan, step_name(place.step),
                     repetition_name(place.segment, place.repetition), place.op.value);
}

/// Lines lose what alignment leaves at their ends.
void add_line(std::string& text, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + "\n";
}

/// The streams' rows of the ops from `begin` to `end`.
void add_rows(std::string& text, const Finding& finding, const std::vector<std::string>& streams,
              std::size_t label, std::size_t cell_width, std::size_t begin, std::size_t end) {
  const std::vector<Place>& order = finding.interleaving;
  for (const std::string& stream : streams) {
    std::string line = fmt::format("  {:{}}  ", stream, label);
    for (std::size_t i = begin; i < end; ++i) {
      const bool culprit = std::ranges::find(finding.places, order[i]) != finding.places.end();
      const std::string cell =
          order[i].stream == stream ? fmt::format("{}{}", i + 1, culprit ? "*" : "") : ".";
      line += fmt::format("{:{}}", cell, cell_width);
    }
    add_line(text, std::move(line));
  }
}

}  // namespace

std::string draw_timeline(const Finding& finding, std::optional<std::size_t> width) {
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
  const std::size_t cell = fmt::formatted_size("{}", order.size()) + 3;
  const std::size_t labels = stream_width + 4;
  std::size_t at_once = std::max<std::size_t>(order.size(), 1);
  if (width) at_once = std::max<std::size_t>((std::max(*width, labels) - labels) / cell, 1);
  for (std::size_t begin = 0; begin < order.size(); begin += at_once) {
    add_rows(text, finding, streams, stream_width, cell, begin,
             std::min(begin + at_once, order.size()));
    text += "\n";
  }
  for (std::size_t i = 0; i < order.size(); ++i)
    add_line(text, fmt::format("  {:{}}  {:{}}  {:{}}  {}", i + 1, cell - 3, order[i].name,
                               name_width, order[i].stream, stream_width, when(order[i])));
  return text;
}

std::string to_text(const Finding& finding, std::optional<std::size_t> width) {
  const RuleInfo* rule = find_rule(finding.rule);
  std::string text = fmt::format("{} {}: {}\n", finding.rule,
                                 rule == nullptr ? "unknown" : rule->name, finding.message);
  if (!finding.missing.empty()) text += fmt::format("  missing: {}\n", finding.missing);
  const std::string timeline = draw_timeline(finding, width);
  return timeline.empty() ? text : text + "\n" + timeline;
}

}  // namespace mfsdp
