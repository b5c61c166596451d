#include <algorithm>
#include <utility>

#include "core/base/bare_key.hpp"
#include "reports/measures/measure.hpp"
#include "reports/record/step_figures.hpp"

namespace mfsdp {
namespace {

using Reader = std::function<std::optional<Figure>(const RunResult&)>;

/// The result of `read`, or none if that figure of the run is unknown.
Reader known(ResultFigure figure, auto read) {
  return [figure, read](const RunResult& run) -> std::optional<Figure> {
    if (run.absent.has(figure)) return std::nullopt;
    return Figure(read(run));
  };
}

/// The figure that is named as the last part of the measure's key.
ResultFigure figure_named(std::string_view name) { return *parse<ResultFigure>(name); }

Measure bytes_measure(std::string key, std::string title, Reader read) {
  return {.key = std::move(key),
          .title = std::move(title),
          .unit = MeasureUnit::bytes,
          .golden = true,
          .read = std::move(read)};
}

Measure pool_bytes(const std::string& name, std::string title, Bytes MemorySummary::* member) {
  return bytes_measure("memory." + name, std::move(title),
                       known(figure_named(name), [member](const RunResult& run) {
                         return (run.memory.*member).value;
                       }));
}

/// A figure of runs whose engine has a caching allocator.
Measure cached_bytes(const std::string& name, std::string title, auto CachedMemory::* member) {
  return bytes_measure("memory." + name, std::move(title),
                       [member](const RunResult& run) -> std::optional<Figure> {
                         if (!run.memory.cached) return std::nullopt;
                         const std::optional<Bytes> bytes = (*run.memory.cached).*member;
                         return bytes ? std::optional<Figure>(bytes->value) : std::nullopt;
                       });
}

Measure category_bytes(std::size_t category) {
  const std::string name(Names<Category>::values.at(category));
  std::string title = name;
  std::ranges::replace(title, '_', ' ');
  return bytes_measure("memory.peak_categories." + name + "_bytes", title,
                       known(ResultFigure::categories, [category](const RunResult& run) {
                         return run.memory.categories.at(category).value;
                       }));
}

Measure time_measure(const std::string& name, std::string title, Nanos TimeSummary::* member,
                     bool golden) {
  return {.key = "time." + name,
          .title = std::move(title),
          .unit = MeasureUnit::nanoseconds,
          .nature = Nature::timed,
          .golden = golden,
          .read = known(figure_named(name),
                        [member](const RunResult& run) { return (run.time.*member).value; })};
}

Measure rate_measure(const std::string& name, std::string title, MeasureUnit unit,
                     double TimeSummary::* member) {
  return {.key = "time." + name,
          .title = std::move(title),
          .unit = unit,
          .better = Better::higher,
          .nature = Nature::timed,
          .read = known(figure_named(name),
                        [member](const RunResult& run) { return run.time.*member; })};
}

Measure traffic_measure(const std::string& name, std::string title,
                        Bytes TrafficSummary::* member) {
  return bytes_measure("traffic." + name + "_bytes", std::move(title),
                       known(figure_named(name + "_bytes"), [member](const RunResult& run) {
                         return (run.traffic.*member).value;
                       }));
}

Measure plan_count(const std::string& name, std::int64_t PlanSummary::* member, bool golden) {
  std::string title = name;
  std::ranges::replace(title, '_', ' ');
  return {.key = "plan." + name,
          .title = std::move(title),
          .golden = golden,
          .read = known(ResultFigure::plan,
                        [member](const RunResult& run) { return run.plan.*member; })};
}

void add_times(std::vector<Measure>& all) {
  all.push_back(time_measure("median_step_ns", "median step", &TimeSummary::median_step, true));
  all.push_back(time_measure("step_ns", "step", &TimeSummary::step, false));
  all.push_back(time_measure("exposed_communication_ns", "exposed communication",
                             &TimeSummary::exposed_communication, true));
  all.push_back(time_measure("compute_ns", "compute", &TimeSummary::compute, false));
  all.push_back(
      time_measure("communication_ns", "communication", &TimeSummary::communication, false));
  all.push_back(time_measure("idle_ns", "idle", &TimeSummary::idle, false));
  all.push_back(time_measure("contention_ns", "contention", &TimeSummary::contention, false));
  all.push_back(rate_measure("overlap_fraction", "overlap", MeasureUnit::fraction,
                             &TimeSummary::overlap_fraction));
  all.push_back(rate_measure("tokens_per_second_per_gpu", "tokens/s per GPU", MeasureUnit::rate,
                             &TimeSummary::tokens_per_second_per_gpu));
  all.push_back(rate_measure("tflops_per_gpu", "TFLOP/s per GPU", MeasureUnit::rate,
                             &TimeSummary::tflops_per_gpu));
  all.push_back(rate_measure("mfu", "MFU", MeasureUnit::fraction, &TimeSummary::mfu));
}

std::optional<Figure> all_traffic(const RunResult& run) {
  for (const ResultFigure part :
       {ResultFigure::all_gather_bytes, ResultFigure::reduce_scatter_bytes,
        ResultFigure::all_reduce_bytes})
    if (run.absent.has(part)) return std::nullopt;
  const TrafficSummary& sent = run.traffic;
  Bytes sends = sent.sends;  // not stored but for each class
  for (const ClassReport& one : run.classes()) sends = std::max(sends, one.sends);
  return (sent.all_gather + sent.reduce_scatter + sent.all_reduce + sends).value;
}

std::vector<Measure> make_measures() {
  std::vector<Measure> all;
  all.push_back(pool_bytes("allocated_bytes", "allocated", &MemorySummary::allocated));
  all.push_back(pool_bytes("peak_bytes", "peak", &MemorySummary::peak));
  all.push_back(cached_bytes("reserved_bytes", "reserved", &CachedMemory::reserved));
  all.push_back(cached_bytes("device_bytes", "device", &CachedMemory::device));
  for (std::size_t i = 0; i < Names<Category>::values.size(); ++i) all.push_back(category_bytes(i));
  add_times(all);
  all.push_back(traffic_measure("all_gather", "all-gather", &TrafficSummary::all_gather));
  all.push_back(
      traffic_measure("reduce_scatter", "reduce-scatter", &TrafficSummary::reduce_scatter));
  all.push_back(traffic_measure("all_reduce", "all-reduce", &TrafficSummary::all_reduce));
  all.push_back(bytes_measure("traffic.total_bytes", "all traffic", all_traffic));
  all.push_back(plan_count("ops", &PlanSummary::ops, true));
  all.push_back(plan_count("events", &PlanSummary::events, true));
  all.push_back(plan_count("waits", &PlanSummary::waits, true));
  all.push_back(plan_count("buffers", &PlanSummary::buffers, false));
  all.push_back(plan_count("collectives", &PlanSummary::collectives, false));
  return all;
}

std::optional<Figure> loss_after(const Measured& run, std::int64_t step) {
  for (const EvaluationResult& evaluation : run.evaluations)
    if (evaluation.step == step) return evaluation.loss;
  return std::nullopt;
}

std::optional<Figure> figure_at(const Measured& run, StepMeasure what, std::int64_t step) {
  if (what == StepMeasure::evaluation_loss) return loss_after(run, step);
  const auto found = std::ranges::find(run.steps, step, &StepResult::step);
  if (found == run.steps.end()) return std::nullopt;
  const std::optional<double>& value = what == StepMeasure::loss ? found->loss : found->grad_norm;
  return value ? std::optional<Figure>(*value) : std::nullopt;
}

Figure figure_of_class(const ClassReport& report, ClassMeasure what) {
  switch (what) {
    case ClassMeasure::allocated_bytes: return report.allocated.value;
    case ClassMeasure::peak_bytes: return report.peak.value;
    case ClassMeasure::host_bytes: return report.host.value;
    case ClassMeasure::step_ns: return report.step.value;
    case ClassMeasure::compute_ns: return report.compute.value;
    case ClassMeasure::exposed_communication_ns: return report.exposed_communication.value;
    case ClassMeasure::idle_ns: return report.idle.value;
    case ClassMeasure::send_bytes: break;
  }
  return report.sends.value;
}

std::string_view title_of(ClassMeasure what) {
  switch (what) {
    case ClassMeasure::allocated_bytes: return "allocated memory";
    case ClassMeasure::peak_bytes: return "peak memory";
    case ClassMeasure::host_bytes: return "host memory";
    case ClassMeasure::step_ns: return "step";
    case ClassMeasure::compute_ns: return "compute";
    case ClassMeasure::exposed_communication_ns: return "exposed communication";
    case ClassMeasure::idle_ns: return "idle time";
    case ClassMeasure::send_bytes: break;
  }
  return "sends";
}

bool is_time(ClassMeasure what) { return to_string(what).ends_with("_ns"); }

/// Whether budgets that are written from a run have it: memory and the bubble.
bool is_golden(ClassMeasure what) {
  return what == ClassMeasure::allocated_bytes || what == ClassMeasure::host_bytes ||
         what == ClassMeasure::idle_ns;
}

}  // namespace

Measure measure_of_class(ClassMeasure what, const std::string& role) {
  return {.key = "classes." + role + "." + std::string(to_string(what)),
          .title = std::string(title_of(what)) + " of " + role,
          .unit = is_time(what) ? MeasureUnit::nanoseconds : MeasureUnit::bytes,
          .nature = is_time(what) ? Nature::timed : Nature::planned,
          .golden = is_golden(what),
          .read = [what, role](const RunResult& run) -> std::optional<Figure> {
            const auto found = std::ranges::find(run.classes(), role, &ClassReport::role);
            if (found == run.classes().end()) return std::nullopt;
            return figure_of_class(*found, what);
          }};
}

std::optional<Measure> class_measure_named(std::string_view key) {
  constexpr std::string_view kTable = "classes.";
  const std::size_t end = key.rfind('.');
  if (!key.starts_with(kTable) || end < kTable.size()) return std::nullopt;
  const std::string_view role = key.substr(kTable.size(), end - kTable.size());
  const auto what = parse<ClassMeasure>(key.substr(end + 1));
  if (!what || !is_bare_key(role)) return std::nullopt;
  return measure_of_class(*what, std::string(role));
}

std::vector<Measure> class_measures(const RunResult& run) {
  std::vector<Measure> all;
  for (const ClassReport& report : run.classes())
    if (is_bare_key(report.role))
      for (const std::string_view name : Names<ClassMeasure>::values)
        all.push_back(measure_of_class(*parse<ClassMeasure>(name), report.role));
  return all;
}

std::string Measure::table() const { return key.substr(0, key.rfind('.')); }
std::string Measure::name() const { return key.substr(key.rfind('.') + 1); }

std::string subject_of(const Measure& measure) {
  std::string subject = measure.title;
  if (!subject.empty() && subject[0] >= 'a' && subject[0] <= 'z')
    subject[0] = static_cast<char>(subject[0] - 'a' + 'A');
  const std::string table = measure.table();
  if (table == "memory") return subject + " memory";
  if (table == "memory.peak_categories") return subject + " memory at the peak";
  if (table == "traffic" && !subject.ends_with("traffic")) return subject + " traffic";
  return subject;
}

const std::vector<Measure>& measures() {
  static const std::vector<Measure> all = make_measures();
  return all;
}

const Measure* find_measure(std::string_view key) {
  const auto found = std::ranges::find(measures(), key, &Measure::key);
  return found == measures().end() ? nullptr : &*found;
}

Measure measure_at_step(StepMeasure what, std::int64_t step) {
  std::string title(to_string(what));
  std::ranges::replace(title, '_', ' ');
  return {.key = std::string(to_string(what)) + "." + std::to_string(step),
          .title = title + " at step " + std::to_string(step),
          .unit = MeasureUnit::plain,
          .nature = Nature::trained,
          .read = [what, step](const RunResult& run) -> std::optional<Figure> {
            const Measured* measured = run.measured();
            return measured == nullptr ? std::nullopt : figure_at(*measured, what, step);
          }};
}

namespace {

bool is_step_time(const Measure& measure) {
  return measure.key == "time.median_step_ns" || measure.key == "time.step_ns";
}

/// Rates are inverse to the step; overlap is no rate.
bool is_rate(const Measure& measure) {
  return measure.nature == Nature::timed && measure.better == Better::higher &&
         measure.key != "time.overlap_fraction";
}

}  // namespace

std::vector<double> steps_of(const Measure& measure, const RunResult& run) {
  const Measured* measured = run.measured();
  if (measured == nullptr || !measure.read(run)) return {};
  const bool follows = is_rate(measure) && run.time.median_step.value > 0;
  return is_step_time(measure) || follows ? step_times(measured->steps) : std::vector<double>{};
}

double value_at_step(const Measure& measure, const RunResult& run, double step) {
  if (is_step_time(measure)) return step;
  return real_of(*measure.read(run)) * static_cast<double>(run.time.median_step.value) / step;
}

}  // namespace mfsdp
