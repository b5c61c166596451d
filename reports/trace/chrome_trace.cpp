#include "reports/trace/chrome_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_text.hpp"
#include "reports/trace/output_file.hpp"
#include "reports/trace/trace_model.hpp"
#include "reports/trace/whole_step.hpp"

namespace mfsdp {
namespace {

/// Microseconds with exactly the nanoseconds' digits: 1234567 -> "1234.567".
std::string microseconds(Nanos time) {
  return fmt::format("{}.{:03}", time.value / 1000, time.value % 1000);
}

/// The first time of the trace; the step's begin where nothing is earlier.
Nanos origin_of(const TraceModel& model, bool has_step) {
  std::optional<Nanos> first;
  if (has_step) first = Nanos(0);
  const auto note = [&](Nanos time) { first = std::min(first.value_or(time), time); };
  for (const TraceProcess& process : model.processes)
    for (const TraceTrack& track : process.tracks)
      if (!track.slices.empty()) note(track.slices.front().start);
  if (!model.memory.empty()) note(model.memory.front().at);
  return first.value_or(Nanos(0));
}

class TraceWriter {
 public:
  TraceWriter(OutputFile& file, Nanos origin) : file_(file), origin_(origin) {}

  void header(const RunResult& run) {
    file_.write(
        fmt::format("{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"tool\":{},\"version\":{},"
                    "\"run_id\":{},\"plan_hash\":{},\"source\":{},\"step_begin_ns\":{}}},\n"
                    "\"traceEvents\":[",
                    json_literal(run.tool), json_literal(run.version), json_literal(run.run_id),
                    json_literal(run.plan_hash), json_literal(run.source()), -origin_.value));
  }

  void process(const TraceProcess& process) {
    event(R"({{"name":"process_name","ph":"M","pid":{},"tid":0,"args":{{"name":{}}}}})",
          process.number, json_literal(process.name));
    for (const TraceTrack& track : process.tracks) {
      event(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
            process.number, track.number, json_literal(track.name));
      event(
          R"({{"name":"thread_sort_index","ph":"M","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
          process.number, track.number, track.number);
    }
    for (const TraceTrack& track : process.tracks)
      for (const TraceSlice& slice : track.slices)
        event(R"({{"name":{},"cat":{},"ph":"X","ts":{},"dur":{},"pid":{},"tid":{},"args":{}}})",
              json_literal(slice.name), json_literal(slice.kind), time(slice.start),
              microseconds(slice.end - slice.start), process.number, track.number, slice.args);
  }

  void step(Nanos duration, std::int64_t process) {
    constexpr std::string_view line =
        R"({{"name":"{}","ph":"i","s":"p","ts":{},"pid":{},"tid":0}})";
    event(line, "step begins", time(Nanos(0)), process);
    event(line, "step ends", time(duration), process);
  }

  void arrow(const TraceArrow& arrow, std::size_t id) {
    event(R"({{"name":"waits","cat":"wait","ph":"s","id":{},"ts":{},"pid":{},"tid":{}}})", id,
          time(arrow.from), arrow.process, arrow.from_track);
    event(R"({{"name":"waits","cat":"wait","ph":"f","bp":"e","id":{},"ts":{},"pid":{},"tid":{}}})",
          id, time(arrow.to), arrow.process, arrow.to_track);
  }

  /// Live bytes after each change. Series that are zero throughout are left out.
  void counters(const std::vector<MemoryPoint>& points, std::int64_t process) {
    std::vector<std::size_t> series;
    for (std::size_t i = 0; i < Names<Category>::values.size(); ++i)
      if (std::ranges::any_of(points, [&](const auto& p) { return p.categories[i] != Bytes(); }))
        series.push_back(i);
    constexpr std::string_view line = R"({{"name":"{}","ph":"C","ts":{},"pid":{},"args":{{{}}}}})";
    for (const MemoryPoint& point : points) {
      Bytes total;
      std::string args;
      for (const std::size_t i : series) {
        total += point.categories[i];
        args += fmt::format("{}\"{}\":{}", args.empty() ? "" : ",", Names<Category>::values[i],
                            point.categories[i].value);
      }
      event(line, "live bytes", time(point.at), process, args);
      event(line, "live bytes, total", time(point.at), process,
            fmt::format("\"total\":{}", total.value));
    }
  }

 private:
  [[nodiscard]] std::string time(Nanos at) const { return microseconds(at - origin_); }

  void event(std::string_view format, const auto&... values) {
    file_.write(first_ ? "\n" : ",\n");
    first_ = false;
    file_.write(fmt::format(fmt::runtime(format), values...));
  }

  OutputFile& file_;
  Nanos origin_;
  bool first_ = true;
};

}  // namespace

Result<void> write_chrome_trace(const RunResult& result, const std::filesystem::path& path,
                                const Program* program, std::span<const Program> job) {
  MFSDP_LET(model, trace_model(result, program, job));
  MFSDP_LET(file, OutputFile::create(path));
  // Launches have times of a clock of the machine, not of one step.
  const Measured* measured = result.measured();
  const bool has_step = measured == nullptr || measured->launches.empty();
  TraceWriter writer(file, origin_of(model, has_step));
  writer.header(result);
  for (const TraceProcess& process : model.processes) writer.process(process);
  if (has_step) writer.step(end_of_step(result), 1);
  for (std::size_t i = 0; i < model.arrows.size(); ++i) writer.arrow(model.arrows[i], i + 1);
  const std::int64_t of_memory = model.memory_of.empty() ? 1 : 2;
  if (of_memory != 1) writer.process({.name = "memory of " + model.memory_of, .number = of_memory});
  writer.counters(model.memory, of_memory);
  file.write("\n]}\n");
  return file.commit();
}

}  // namespace mfsdp
