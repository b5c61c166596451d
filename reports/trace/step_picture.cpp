#include "reports/trace/step_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/formats/xml.hpp"
#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"
#include "reports/trace/chrome_trace.hpp"
#include "reports/trace/output_file.hpp"
#include "reports/trace/trace_model.hpp"
#include "reports/trace/whole_step.hpp"

namespace mfsdp {
namespace {

// All lengths are pixels.
constexpr double kWidth = 960;
constexpr double kLeft = 112;
constexpr double kPlot = kWidth - kLeft - 26;
constexpr double kTop = 52;
constexpr double kPitch = 28;
constexpr double kBar = 21;
constexpr double kMemoryHeight = 110;
constexpr double kLegendRow = 18;
constexpr double kNarrowest = 0.5;  ///< of a box; narrower ops share one
constexpr double kCharacter = 6.2;  ///< width of a character of 11 pixels, about

/// The colour of a box and its name in the legend. The last one is all other kernels.
struct Paint {
  std::string_view name;
  std::string_view colour;
};
enum class Box { all_gather, reduce_scatter, other_collective, gemm, attention, copy, kernel };
constexpr std::array kBoxes{
    Paint{"all-gather", "#f28e2b"},        Paint{"reduce-scatter", "#e15759"},
    Paint{"other collectives", "#d4a72c"}, Paint{"GEMM", "#4e79a7"},
    Paint{"attention", "#b07aa1"},         Paint{"copies", "#9c755f"},
    Paint{"other kernels", "#76b7b2"}};
/// By category of memory, in the order of `Category`.
constexpr std::array<std::string_view, Names<Category>::values.size()> kMemoryColours{
    "#4e79a7", "#8cb4dc", "#f28e2b", "#59a14f", "#76b7b2",
    "#e15759", "#b07aa1", "#ff9da7", "#9c755f", "#8a8f98"};

Box box_of(std::string_view kind) {
  if (const auto collective = parse<CollectiveKind>(kind)) {
    if (*collective == CollectiveKind::all_gather) return Box::all_gather;
    if (*collective == CollectiveKind::reduce_scatter) return Box::reduce_scatter;
    return Box::other_collective;
  }
  if (parse<CopyKind>(kind)) return Box::copy;
  if (kind.find("gemm") != std::string_view::npos) return Box::gemm;
  if (kind.find("attention") != std::string_view::npos) return Box::attention;
  return Box::kernel;
}

std::string duration_text(Nanos time) {
  const auto nanos = static_cast<double>(time.value);
  if (time.value < 1'000'000) return fmt::format("{:.4g} µs", nanos / 1e3);
  if (time.value < 1'000'000'000) return fmt::format("{:.4g} ms", nanos / 1e6);
  return fmt::format("{:.4g} s", nanos / 1e9);
}

std::string size_text(Bytes size) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(size.value);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return fmt::format("{:.1f} {}", value, units.at(unit));
}

/// The smallest of 1, 2, 5, 10, 20, ... ns of which at most eight make the span.
Nanos tick_of(Nanos span) {
  for (std::int64_t power = 1;; power *= 10)
    for (const std::int64_t tick : {power, 2 * power, 5 * power})
      if (span.value / tick <= 8) return Nanos(tick);
}

class StepPicture {
 public:
  StepPicture(const RunResult& run, const TraceModel& model, const Program* program)
      : run_(run), model_(model), end_(end_of_step(run)) {
    if (const Measured* measured = run.measured();
        measured != nullptr && !measured->launches.empty())
      take_times_of_launches();
    if (program != nullptr) name_units(*program);
    if (model.memory.empty()) return;
    for (std::size_t i = 0; i < least_.size(); ++i) {
      const auto bytes = [i](const MemoryPoint& point) { return point.categories[i]; };
      const auto [least, most] = std::ranges::minmax(model.memory, {}, bytes);
      least_[i] = bytes(least);
      if (bytes(least) != bytes(most)) changing_.push_back(i);
    }
  }

  std::string draw() {
    const double memory_top = kTop + kPitch * static_cast<double>(tracks().size()) + 10;
    const double bottom = changing_.empty() ? memory_top - 10 : memory_top + kMemoryHeight;
    title();
    time_axis(bottom);
    streams();
    if (!changing_.empty()) memory(memory_top);
    const double height = legend(bottom + 38);
    return head(height) + body_ + "</svg>\n";
  }

 private:
  [[nodiscard]] const std::vector<TraceTrack>& tracks() const {
    return model_.processes.front().tracks;
  }
  [[nodiscard]] double x_of(Nanos time) const {
    const auto span = static_cast<double>(std::max<std::int64_t>((end_ - begin_).value, 1));
    const Nanos inside = std::clamp(time, begin_, end_);
    return kLeft + static_cast<double>((inside - begin_).value) * kPlot / span;
  }
  static bool fits(std::string_view words, double width) {
    return kCharacter * static_cast<double>(words.size()) <= width;
  }

  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    body_ += fmt::format(format, std::forward<Values>(values)...);
  }
  void text(double x, double y, std::string_view style, std::string_view words) {
    add("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", style, x, y, xml_text(words));
  }

  void take_times_of_launches() {
    begin_ = end_ = tracks().front().slices.front().start;
    for (const TraceTrack& track : tracks())
      for (const TraceSlice& slice : track.slices) {
        begin_ = std::min(begin_, slice.start);
        end_ = std::max(end_, slice.end);
      }
  }

  void name_units(const Program& program) {
    const Plan* plan = program.find_plan(PlanRole::train);
    if (plan == nullptr) return;
    const IdIndex<UnitId> units(program.units);
    for (const Op& op : ops_of(*plan))
      if (const auto unit = op.unit ? units.find(*op.unit) : std::nullopt)
        unit_of_[op.id] = program.units[*unit].name;
  }
  /// Empty where the op has none, or the plan is not known.
  [[nodiscard]] std::string_view unit_of(const TraceSlice& slice) const {
    const auto found = unit_of_.find(slice.op);
    return found == unit_of_.end() ? std::string_view() : found->second;
  }

  void title() {
    text(kLeft, 18, "title",
         fmt::format("One training step of {} on {} {}, {}: {}", run_.model_name, run_.cluster.gpus,
                     run_.cluster.gpu, run_.source(), duration_text(end_ - begin_)));
  }

  void time_axis(double bottom) {
    const Nanos tick = tick_of(end_ - begin_);
    for (Nanos at; begin_ + at <= end_; at += tick) {
      const double x = x_of(begin_ + at);
      add("<path class=\"grid\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n", x, kTop - 4, bottom + 4);
      text(x, bottom + 17, "middle", duration_text(at));
    }
  }

  void streams() {
    double y = kTop;
    for (const TraceTrack& track : tracks()) {
      text(kLeft - 8, y + 15, "end", track.name);
      if (track.name == to_string(StreamRole::compute)) unit_names(track, y);
      double painted = 0;  // pixels up to here are full
      double narrow = 0;   // where ops begin that are too narrow for a box of their own
      for (const TraceSlice& slice : track.slices) {
        const double end = x_of(slice.end);
        if (x_of(slice.start) - painted >= kNarrowest) narrow = x_of(slice.start);
        painted = end;
        if (end - narrow < kNarrowest) continue;
        box(slice, narrow, y, end - narrow);
        narrow = end;
      }
      y += kPitch;
    }
  }

  void box(const TraceSlice& slice, double x, double y, double width) {
    const Box kind = box_of(slice.kind);
    boxes_.insert(kind);
    add("<rect class=\"b{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">"
        "<title>{}, {}</title></rect>\n",
        static_cast<int>(kind), x, y, width > 2 ? width - 0.7 : width, kBar, xml_text(slice.name),
        duration_text(slice.end - slice.start));
    if (!parse<CollectiveKind>(slice.kind)) return;
    std::string_view words = unit_of(slice);  // "layers.3", or "3" where that is too wide
    if (!fits(words, width)) words.remove_prefix(words.rfind('.') + 1);
    if (fits(words, width)) text(x + width / 2, y + 15, "inside", words);
  }

  /// Above the stream: the unit of ops that follow each other.
  void unit_names(const TraceTrack& track, double y) {
    for (std::size_t i = 0; i < track.slices.size();) {
      const std::string_view unit = unit_of(track.slices[i]);
      const double from = x_of(track.slices[i].start);
      double to = from;
      for (; i < track.slices.size() && unit_of(track.slices[i]) == unit; ++i)
        to = x_of(track.slices[i].end);
      if (unit.empty() || !fits(unit, to - from)) continue;
      text((from + to) / 2, y - 8, "middle", unit);
      add("<path class=\"line\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", from + 1, y - 3, to - 2);
    }
  }

  /// Bytes of these categories above the least that each has in the step.
  [[nodiscard]] Bytes total_of(const MemoryPoint& point,
                               const std::vector<std::size_t>& categories) const {
    Bytes total;
    for (const std::size_t i : categories) total += point.categories[i] - least_[i];
    return total;
  }

  /// For each pixel of the time axis the moment at which most memory is live.
  [[nodiscard]] std::vector<const MemoryPoint*> fullest_moments() const {
    std::vector<const MemoryPoint*> columns(static_cast<std::size_t>(kPlot));
    const MemoryPoint* live = &model_.memory.front();
    auto next = model_.memory.begin();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      columns[i] = live;
      const double right = kLeft + static_cast<double>(i + 1);
      for (; next != model_.memory.end() && x_of(next->at) < right; ++next) {
        live = &*next;
        if (total_of(*live, changing_) > total_of(*columns[i], changing_)) columns[i] = live;
      }
    }
    return columns;
  }

  void memory(double top) {
    const std::vector<const MemoryPoint*> columns = fullest_moments();
    Bytes peak(1);
    for (const MemoryPoint* point : columns) peak = std::max(peak, total_of(*point, changing_));
    const double bottom = top + kMemoryHeight;
    text(kLeft - 8, top + 11, "end", size_text(peak));
    // Each category lies upon those before it: the sum of all is drawn first.
    for (std::vector<std::size_t> layers = changing_; !layers.empty(); layers.pop_back()) {
      std::string path = fmt::format("M{:.0f} {:.1f}", kLeft, bottom);
      double drawn = -1;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const auto bytes = static_cast<double>(total_of(*columns[i], layers).value);
        const double y = bottom - bytes * kMemoryHeight / static_cast<double>(peak.value);
        if (y == drawn) continue;
        path += fmt::format("H{:.0f}V{:.1f}", kLeft + static_cast<double>(i), y);
        drawn = y;
      }
      add("<path class=\"m{}\" d=\"{}H{:.0f}V{:.1f}Z\"/>\n", layers.back(), path, kLeft + kPlot,
          bottom);
    }
  }

  /// Returns the picture's height.
  double legend(double y) {
    double x = kLeft;
    const auto entry = [&](char style, std::size_t number, std::string_view name) {
      const double width = 20 + kCharacter * static_cast<double>(name.size()) + 16;
      if (x + width > kWidth) {
        x = kLeft;
        y += kLegendRow;
      }
      add("<rect class=\"{}{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"11\" height=\"11\"/>\n", style,
          number, x, y - 10);
      text(x + 16, y, "start", name);
      x += width;
    };
    text(kLeft - 8, y, "end", "ops");
    for (const Box kind : boxes_) {
      const auto number = static_cast<std::size_t>(kind);
      entry('b', number, kBoxes.at(number).name);
    }
    if (changing_.empty()) return y + 10;
    x = kLeft;
    y += kLegendRow;
    text(kLeft - 8, y, "end", "memory");
    if (!model_.memory_of.empty()) text(kLeft - 8, y + 14, "end", "of " + model_.memory_of);
    for (const std::size_t category : changing_)
      entry('m', category, Names<Category>::values.at(category));
    Bytes constant;
    for (const Bytes& least : least_) constant += least;
    text(x + 4, y, "start", fmt::format("and {} that are always live", size_text(constant)));
    return y + 10;
  }

  [[nodiscard]] std::string head(double height) const {
    std::string style;
    for (std::size_t i = 0; i < kBoxes.size(); ++i)
      style += fmt::format(".b{}{{fill:{}}}", i, kBoxes.at(i).colour);
    for (std::size_t i = 0; i < kMemoryColours.size(); ++i)
      style += fmt::format(".m{}{{fill:{}}}", i, kMemoryColours.at(i));
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
        "width=\"{0:.0f}\" height=\"{1:.0f}\" role=\"img\">\n"
        "<title>Streams and memory of a training step</title>\n<style>\n"
        "text{{font:11px system-ui,sans-serif;fill:#1b1f24}}\n"
        ".title{{font-size:13px;font-weight:600}}.end{{text-anchor:end}}"
        ".middle,.inside{{text-anchor:middle}}.inside{{fill:#10151a}}\n"
        ".grid{{stroke:#d0d7de}}.line{{stroke:#57606a}}\n{2}\n"
        "@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.inside{{fill:#10151a}}"
        ".grid{{stroke:#333d48}}.line{{stroke:#9aa5b1}}}}\n</style>\n",
        kWidth, height, style);
  }

  const RunResult& run_;
  const TraceModel& model_;
  Nanos begin_;
  Nanos end_;
  std::unordered_map<OpId, std::string_view> unit_of_;
  std::array<Bytes, kMemoryColours.size()> least_{};  ///< of each category in the step
  std::vector<std::size_t> changing_;                 ///< categories whose bytes change in it
  std::set<Box> boxes_;                               ///< kinds that are drawn
  std::string body_;
};

}  // namespace

Result<void> write_step_picture(const RunResult& run, const std::filesystem::path& path,
                                const Program* program, std::span<const Program> job) {
  MFSDP_LET(model, trace_model(run, program, job));
  MFSDP_LET(file, OutputFile::create(path));
  file.write(StepPicture(run, model, program).draw());
  return file.commit();
}

Result<void> write_trace(const RunResult& run, const std::filesystem::path& path,
                         const Program* program, std::span<const Program> job) {
  return path.extension() == ".svg" ? write_step_picture(run, path, program, job)
                                    : write_chrome_trace(run, path, program, job);
}

}  // namespace mfsdp
