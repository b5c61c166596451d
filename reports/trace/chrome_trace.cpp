#include "reports/trace/chrome_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_text.hpp"
#include "reports/trace/output_file.hpp"

namespace mfsdp {

namespace {

constexpr int kProcess = 1;  ///< rank classes would count up from here

/// Microseconds with exactly the nanoseconds' digits: 1234567 -> "1234.567".
std::string microseconds(Nanos time) {
  const std::int64_t rest = time.value % 1000;
  const bool negative = time.value < 0;
  return fmt::format("{}{}.{:03}", negative ? "-" : "",
                     negative ? -(time.value / 1000) : time.value / 1000, negative ? -rest : rest);
}

/// Track numbers by stream: the schedule's streams in their own order, then any others as found.
std::map<std::string, int, std::less<>> tracks_of(const std::vector<OpTime>& timeline) {
  std::map<std::string, int, std::less<>> tracks;
  int next = static_cast<int>(Names<StreamRole>::values.size());
  for (const OpTime& op : timeline) {
    if (tracks.contains(op.stream)) continue;
    const auto role = parse<StreamRole>(op.stream);
    tracks.emplace(op.stream, role ? static_cast<int>(*role) : next++);
  }
  return tracks;
}

/// Viewers draw events of one track that overlap as if one had called the other.
Result<void> check_tracks(const std::vector<OpTime>& timeline) {
  std::map<std::string_view, std::vector<const OpTime*>> streams;
  for (const OpTime& op : timeline) {
    if (op.end < op.start) return fail("timeline: op " + op.name, "ends before it starts");
    streams[op.stream].push_back(&op);
  }
  for (auto& [stream, ops] : streams) {
    std::ranges::stable_sort(ops, {},
                             [](const OpTime* op) { return std::pair(op->start, op->end); });
    for (std::size_t i = 1; i < ops.size(); ++i)
      if (ops[i]->start < ops[i - 1]->end)
        return fail(fmt::format("timeline: stream {}", stream),
                    fmt::format("op {} starts at {} ns, before op {} ends at {} ns", ops[i]->name,
                                ops[i]->start.value, ops[i - 1]->name, ops[i - 1]->end.value));
  }
  return {};
}

void write_header(OutputFile& file, const RunResult& result) {
  file.write(fmt::format(
      "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"tool\":{},\"version\":{},\"run_id\":{},"
      "\"plan_hash\":{},\"source\":{}}},\n\"traceEvents\":[\n",
      json_literal(result.tool), json_literal(result.version), json_literal(result.run_id),
      json_literal(result.plan_hash), json_literal(result.source())));
  const std::string run = result.name.empty() ? result.run_id : result.name;
  const std::string process = fmt::format("{}: {} on {} x {}", run, result.model_name,
                                          result.cluster.gpus, result.cluster.gpu);
  file.write(
      fmt::format(R"({{"name":"process_name","ph":"M","pid":{},"tid":0,"args":{{"name":{}}}}})",
                  kProcess, json_literal(process)));
}

void write_track(OutputFile& file, std::string_view stream, int track) {
  constexpr std::string_view line =
      ",\n"
      R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"{}":{}}}}})";
  file.write(fmt::format(line, "thread_name", kProcess, track, "name", json_literal(stream)));
  file.write(fmt::format(line, "thread_sort_index", kProcess, track, "sort_index", track));
}

void write_op(OutputFile& file, const OpTime& op, int track) {
  const std::string kind = json_literal(op.kind);
  file.write(
      fmt::format(",\n"
                  R"({{"name":{},"cat":{},"ph":"X","ts":{},"dur":{},"pid":{},"tid":{},)",
                  json_literal(op.name), kind, microseconds(op.start),
                  microseconds(op.end - op.start), kProcess, track));
  file.write(fmt::format(R"("args":{{"op":{},"segment":{},"instance":{},"kind":{}}}}})",
                         op.op.value, json_literal(op.segment), op.instance, kind));
}

/// Live bytes after each change. Series that are zero throughout are left out.
void write_counters(OutputFile& file, const std::vector<MemoryPoint>& points) {
  std::vector<std::size_t> series;
  for (std::size_t i = 0; i < Names<Category>::values.size(); ++i)
    if (std::ranges::any_of(points, [&](const auto& p) { return p.categories[i] != Bytes(); }))
      series.push_back(i);
  for (const MemoryPoint& point : points) {
    Bytes total;
    std::string args;
    for (const std::size_t i : series) {
      total += point.categories[i];
      args += fmt::format("{}\"{}\":{}", args.empty() ? "" : ",", Names<Category>::values[i],
                          point.categories[i].value);
    }
    const std::string at = microseconds(point.at);
    constexpr std::string_view line =
        ",\n"
        R"({{"name":"{}","ph":"C","ts":{},"pid":{},"args":{{{}}}}})";
    file.write(fmt::format(line, "live bytes", at, kProcess, args));
    file.write(fmt::format(line, "live bytes, total", at, kProcess,
                           fmt::format("\"total\":{}", total.value)));
  }
}

}  // namespace

Result<void> write_chrome_trace(const RunResult& result, const std::filesystem::path& path) {
  MFSDP_TRY(check_tracks(result.timeline));
  MFSDP_LET(file, OutputFile::create(path));
  const auto tracks = tracks_of(result.timeline);
  write_header(file, result);
  for (const auto& [stream, track] : tracks) write_track(file, stream, track);
  for (const OpTime& op : result.timeline) write_op(file, op, tracks.find(op.stream)->second);
  if (const Predicted* predicted = result.predicted())
    write_counters(file, predicted->memory_timeline);
  file.write("\n]}\n");
  return file.commit();
}

}  // namespace mfsdp
