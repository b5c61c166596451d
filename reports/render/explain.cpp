#include "reports/render/explain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp {
namespace {

std::string ratio_above(Bytes height, Bytes lower_bound) {
  if (lower_bound.value == 0) return "-";
  return format_percent(static_cast<double>((height - lower_bound).value) /
                        static_cast<double>(lower_bound.value));
}

/// Ranks whose shard holds padding alone: no parameter reaches into it.
std::int64_t empty_shards(const Group& group, std::int64_t ranks) {
  const std::int64_t shard = group.elements / ranks;
  std::int64_t empty = 0;
  std::int64_t reached = 0;  // shards below this one are counted already
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const PlacedParameter& parameter : group.parameters) {
    const std::int64_t elements = parameter.elements();
    if (elements > 0) ranges.emplace_back(parameter.offset, parameter.offset + elements - 1);
  }
  std::ranges::sort(ranges);
  for (const auto& [first, last] : ranges) {
    if (shard == 0) break;
    empty += std::max<std::int64_t>(0, first / shard - reached);
    reached = std::max(reached, last / shard + 1);
  }
  return empty + ranks - std::min(reached, ranks);
}

std::vector<std::string> layout_row(const Program& program, const Group& group) {
  const std::int64_t ranks = layout_of(group, program.config.mesh).ranks;
  const std::int64_t used = group.used_elements();
  return {std::string(to_string(group.dtype)),
          group.requires_grad ? "trained" : "frozen",
          format_count(static_cast<std::int64_t>(group.parameters.size())),
          format_count(group.elements),
          format_count(group.elements - used),
          format_count(group.chunk),
          format_bytes(bytes_of(group.elements, group.dtype)),
          format_bytes(bytes_of(group.elements / ranks, group.dtype)),
          format_count(empty_shards(group, ranks))};
}

/// Explains the table to readers who have never seen a flat buffer.
std::string layout_text(const PlanConfig& config) {
  const std::string shards = fmt::format(
      "A group is one flat buffer, cut into {} equal shards, one for each rank. Padding is what no "
      "parameter fills. A shard is a multiple of the chunk.\n",
      format_count(layout_ranks(config)));
  if (config.layout == LayoutRule::megatron_fsdp)
    return shards +
           "Layout megatron_fsdp: the chunk is the least common multiple of the lengths of all "
           "rows, so that no row of a matrix is cut. With many ranks that is much padding; "
           "--layout packed avoids it.\n";
  return shards + fmt::format(
                      "Layout packed: parameters follow one another, each from a multiple of {0} "
                      "elements on. The chunk is {0} elements where that adds at most 1/64 to the "
                      "group, else less, down to {1}. A shard may end inside a row of a matrix.\n",
                      kWidestChunk, kNarrowestChunk);
}

}  // namespace

std::string explain_memory(const RunFigures& run, const TextStyle& style) {
  Table table{.columns = {{"pool"},
                          {"height", Align::right},
                          {"lower bound", Align::right},
                          {"above it", Align::right}}};
  Bytes pools;
  for (const PoolSummary& pool : run.plan.pools) {
    table.rows.push_back({pool.name, format_bytes(pool.height), format_bytes(pool.lower_bound),
                          ratio_above(pool.height, pool.lower_bound)});
    pools += pool.height;
  }
  const Bytes runtime = run.memory.deciding() - pools;
  table.rows.push_back({"runtime", format_bytes(runtime), format_bytes(runtime), "-"});
  table.rows.push_back({"all", format_bytes(run.memory.deciding()), format_bytes(run.memory.peak),
                        ratio_above(run.memory.deciding(), run.memory.peak)});
  return fmt::format(
      "{}\nLower bound: the most bytes of the pool that are live at once; in the last row the "
      "peak of all.\n"
      "Runtime is the memory outside all pools: {}.\n"
      "At once, at most {} units have full weights and {} have full gradients. Padding adds {} "
      "to "
      "each copy of the weights.\n",
      render_table(table, style), printable(run.memory.runtime_source),
      run.plan.max_live_full_weights, run.plan.max_live_full_gradients,
      format_bytes(run.plan.padding));
}

std::string explain_layout(const Program& program, const TextStyle& style) {
  Table table{.columns = {{"unit"},
                          {"groups", Align::right},
                          {"dtype"},
                          {"state"},
                          {"parameters", Align::right},
                          {"elements", Align::right},
                          {"padding", Align::right},
                          {"chunk", Align::right},
                          {"full", Align::right},
                          {"a rank", Align::right},
                          {"empty ranks", Align::right}}};
  std::vector<std::string> previous;
  std::int64_t equal = 0;
  std::string first_unit;
  for (const Group& group : program.groups) {
    const std::string unit = group.unit.value < program.units.size()
                                 ? program.units[group.unit.value].name
                                 : fmt::format("unit {}", group.unit.value);
    std::vector<std::string> row = layout_row(program, group);
    if (!table.rows.empty() && row == previous) {
      table.rows.back()[0] = first_unit + " .. " + unit;
      table.rows.back()[1] = format_count(++equal);
      continue;
    }
    previous = row;
    equal = 1;
    first_unit = unit;
    row.insert(row.begin(), {unit, "1"});
    table.rows.push_back(std::move(row));
  }
  return fmt::format("{}\n{}", render_table(table, style), layout_text(program.config));
}

}  // namespace mfsdp
