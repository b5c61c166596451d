#include "sim/tool/replay_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/path_check.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "reports/render/output.hpp"
#include "sim/allocator/replay.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostFile = std::size_t{4} << 30;
/// The settings that users try first.
constexpr std::array<const char*, 4> kTried{"", "expandable_segments:True", "max_split_size_mb:512",
                                            "roundup_power2_divisions:4"};

struct Row {
  std::string settings;
  MemoryReplay replay;
};

Result<Row> row_of(const MemoryRecord& record, const std::string& settings,
                   std::optional<Bytes> limit) {
  MFSDP_LET(parsed, parse_allocator_settings(settings, "--alloc-conf"));
  if (limit) parsed.limit = limit->value;
  return Row{.settings = settings, .replay = replay_memory(record, parsed)};
}

/// The settings asked for first, then what else may help.
Result<std::vector<Row>> rows_of(const MemoryRecord& record, const SimOptions& options) {
  std::vector<Row> rows;
  const std::string asked = options.alloc_conf.value_or(record.settings_text);
  MFSDP_LET(first, row_of(record, asked, options.memory_limit));
  rows.push_back(std::move(first));
  for (const char* tried : kTried) {
    if (tried == asked) continue;
    MFSDP_LET(row, row_of(record, tried, options.memory_limit));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string name_of(const std::string& settings) {
  return settings.empty() ? "defaults" : settings;
}

std::string gib(std::int64_t bytes) { return format_gib(Bytes(bytes)); }

/// The peak of reserved memory is the sum of allocated and unused memory at that moment; more may
/// be allocated at another one.
Table table_of(const MemoryRecord& record, const std::vector<Row>& rows) {
  Table table{.columns = {{"settings"},
                          {"most reserved GiB", Align::right},
                          {"allocated then GiB", Align::right},
                          {"unused then GiB", Align::right},
                          {"most allocated GiB", Align::right},
                          {"segments", Align::right},
                          {"retries", Align::right},
                          {"ends"}},
              .rows = {}};
  table.rows.push_back({"recorded, " + name_of(record.settings_text),
                        format_gib(record.peak_reserved), "", "", "", "", "", ""});
  for (const Row& row : rows) {
    const AllocatorCounters& counters = row.replay.counters;
    const std::int64_t unused = counters.peak_reserved - row.replay.allocated_at_peak;
    const auto& end = row.replay.out_of_memory;
    table.rows.push_back({name_of(row.settings), gib(counters.peak_reserved),
                          gib(row.replay.allocated_at_peak), gib(unused),
                          gib(counters.peak_allocated), format_count(counters.segments),
                          format_count(counters.retries),
                          end ? fmt::format("out of memory at event {}, {} GiB",
                                            format_count(end->event), gib(end->size))
                              : "well"});
  }
  return table;
}

/// Where what the settings asked for reserve lies unused.
Table streams_of(const Row& row) {
  Table table{.columns = {{"stream", Align::right},
                          {"whole segments GiB", Align::right},
                          {"beside used ones GiB", Align::right}},
              .rows = {}};
  for (const auto& bytes : row.replay.free_at_peak)
    table.rows.push_back({std::to_string(bytes.stream), gib(bytes.whole), gib(bytes.parts)});
  return table;
}

Json json_of(const Row& row) {
  const AllocatorCounters& counters = row.replay.counters;
  Json json = {{"settings", row.settings},
               {"peak_reserved_bytes", counters.peak_reserved},
               {"peak_allocated_bytes", counters.peak_allocated},
               {"segments", counters.segments},
               {"segments_released", counters.released},
               {"retries", counters.retries},
               {"allocations", row.replay.allocations},
               {"same_address", row.replay.same_address},
               {"restored", row.replay.is_restored},
               {"out_of_memory", nullptr}};
  if (const auto& end = row.replay.out_of_memory)
    json["out_of_memory"] = {{"event", end->event}, {"size", end->size}, {"stream", end->stream}};
  Json streams = Json::array();
  for (const auto& bytes : row.replay.free_at_peak)
    streams.push_back({{"stream", bytes.stream},
                       {"whole_segments_bytes", bytes.whole},
                       {"beside_used_bytes", bytes.parts}});
  json["at_peak"] = {{"event", row.replay.peak_event},
                     {"allocated_bytes", row.replay.allocated_at_peak},
                     {"unused", std::move(streams)}};
  return json;
}

Bytes earlier_bytes(const MemoryRecord& record) {
  Bytes sum;
  for (std::int64_t i = 0; i < record.earlier; ++i)
    sum += Bytes(record.events[static_cast<std::size_t>(i)].size);
  return sum;
}

Json json_of(const std::string& path, const MemoryRecord& record, const std::vector<Row>& rows) {
  Json json = {{"schema", "mfsdp.replay/1"},
               {"snapshot", path},
               {"events", std::ssize(record.events) - record.earlier},
               {"unknown_frees", record.unknown_frees},
               {"unknown_actions", record.unknown_actions},
               {"earlier",
                {{"blocks", record.earlier},
                 {"bytes", earlier_bytes(record).value},
                 {"contradiction", record.contradiction}}},
               {"recorded",
                {{"settings", record.settings_text},
                 {"peak_reserved_bytes", record.peak_reserved.value},
                 {"peak_requested_bytes", record.peak_requested.value}}},
               {"replays", Json::array()}};
  for (const Row& row : rows) json["replays"].push_back(json_of(row));
  return json;
}

std::string csv_of(const Table& table) {
  std::string text;
  const auto add = [&](const auto& cells, const auto& text_of) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      text += (i > 0 ? "," : "") + csv_field(text_of(cells[i]));
    text += "\n";
  };
  add(table.columns, [](const Column& column) { return column.title; });
  for (const auto& row : table.rows) add(row, [](const std::string& cell) { return cell; });
  return text;
}

/// The memory that was allocated before the record began, and how the replays begin with it.
std::string earlier_text(const MemoryRecord& record, const std::vector<Row>& rows) {
  if (record.earlier == 0) return "";
  std::string text = fmt::format("{} blocks, {} GiB, were there before the record begins. ",
                                 format_count(record.earlier), format_gib(earlier_bytes(record)));
  if (!record.at_begin)
    return text + fmt::format(
                      "Where they lay is not known, as the snapshot's segments do not fit "
                      "its events ({}): they are allocated first, in the order of their "
                      "addresses, so all rows are estimates.\n",
                      record.contradiction);
  if (!rows.front().replay.is_restored)
    return text +
           "Under other settings than the recorded ones they are allocated first, in the "
           "order of their addresses: an estimate.\n";
  return text + fmt::format(
                    "The snapshot's segments, followed back to that time, give their "
                    "addresses: the row {} begins so. Under other settings they are allocated "
                    "first, in the order of their addresses: an estimate.\n",
                    name_of(rows.front().settings));
}

/// A replay under the recorded settings that no address bears out.
std::string doubt_text(const MemoryRecord& record, const std::vector<Row>& rows) {
  const MemoryReplay& first = rows.front().replay;
  if (first.allocations == 0 || first.same_address > 0) return "";
  if (rows.front().settings != record.settings_text) return "";
  return fmt::format(
      "Not the recorded run: none of {} allocations got the address that was "
      "recorded. The figures below are an estimate.\n\n",
      format_count(first.allocations));
}

std::string text_of(const MemoryRecord& record, const std::vector<Row>& rows,
                    const TextStyle& style) {
  const MemoryReplay& first = rows.front().replay;
  std::string text = wrap_text(doubt_text(record, rows), style);
  text += render_table(table_of(record, rows), style);
  text +=
      "\n" + wrap_text(fmt::format("Unused when the first of these has reserved most, by stream: "
                                   "streams share no blocks.\n"),
                       style);
  text += "\n" + render_table(streams_of(rows.front()), style) + "\n";
  std::string end = fmt::format("{} of {} allocations got the address that was recorded.\n",
                                format_count(first.same_address), format_count(first.allocations));
  end += earlier_text(record, rows);
  if (record.unknown_actions > 0)
    end +=
        fmt::format("{} events are left out: this version does not know what they do to memory.\n",
                    format_count(record.unknown_actions));
  return text + wrap_text(end, style);
}

}  // namespace

Result<ExitCode> run_replay(const SimOptions& options, const Session& session) {
  const std::string& path = *options.replay;
  MFSDP_TRY(check_paths(options.common, session.scenarios,
                        {.read = {{"--replay", path}}, .written = {}}));
  MFSDP_LET(bytes, read_file(path, "a memory snapshot", kMostFile));
  MFSDP_LET(record, read_memory_events(bytes, printable(path)));
  MFSDP_LET(rows, rows_of(record, options));
  switch (options.common.output) {
    case OutputFormat::json: session.out << json_of(path, record, rows).dump(2) << "\n"; break;
    case OutputFormat::jsonl: session.out << json_of(path, record, rows).dump() << "\n"; break;
    case OutputFormat::csv: session.out << csv_of(table_of(record, rows)); break;
    case OutputFormat::md: session.out << render_markdown_table(table_of(record, rows)); break;
    case OutputFormat::text: session.out << text_of(record, rows, session.style); break;
  }
  const bool fits = !rows.front().replay.out_of_memory;
  return fits || !options.require_fit ? ExitCode::good : ExitCode::negative;
}

}  // namespace mfsdp
