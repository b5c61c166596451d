#include "reports/html/report_data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/plan/instances.hpp"
#include "reports/html/packed.hpp"
#include "reports/html/repeats.hpp"
#include "reports/html/texts.hpp"
#include "reports/record/result_json.hpp"
#include "reports/store/compress.hpp"
#include "reports/trace/replay.hpp"
#include "reports/trace/whole_memory.hpp"
#include "reports/trace/whole_step.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;
using Column = std::vector<std::int64_t>;

/// More of a step's stretches of buffers make the page too large: then the step's begin is shown.
constexpr std::size_t kMostSpans = 40'000;

/// The result without its lists, which the page has packed.
Json result_object(const RunResult& run) {
  RunFigures figures;
  // NOLINTNEXTLINE(cppcoreguidelines-slicing): the lists are what is left out
  static_cast<RunHead&>(figures) = run;
  figures.plan = run.plan;
  figures.memory = run.memory;
  figures.time = run.time;
  figures.traffic = run.traffic;
  figures.absent = run.absent;
  if (const Predicted* predicted = run.predicted()) {
    Predicted part;
    part.calibration = predicted->calibration;
    part.cost_model_version = predicted->cost_model_version;
    part.trust = predicted->trust;
    part.ranks = predicted->ranks;
    part.training = predicted->training;
    part.live_peak = predicted->live_peak;
    part.peak_op = predicted->peak_op;
    part.exposed_units = predicted->exposed_units;
    return Json::parse(to_json_line(RunResult(std::move(figures), std::move(part))));
  }
  Measured part;
  part.resumed = run.measured()->resumed;
  Json object = Json::parse(to_json_line(RunResult(std::move(figures), std::move(part))));
  object.erase("steps");
  object["skipped_steps"] = std::ranges::count(run.measured()->steps, true, &StepResult::skipped);
  return object;
}

/// An op as the timeline names it. Ids alone need not be unique in what others have left.
using OpKey = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

Json ops_object(const std::vector<OpTime>& timeline, const CompressedOps& compressed,
                Texts& texts) {
  std::map<OpKey, std::int64_t> rows;
  std::array<Column, 5> parts;  // op, text, stream, kind, segment
  Column row;
  Column instance;
  Column start;
  Column duration;
  for (const std::size_t position : compressed.kept) {
    const OpTime& time = timeline[position];
    // In braces, so that every compiler numbers the texts in this order.
    const OpKey key{time.op.value, texts.number(time.name), texts.number(time.stream),
                    texts.number(time.kind), texts.number(time.segment)};
    const auto [found, is_new] = rows.emplace(key, std::ssize(rows));
    if (is_new) {
      parts[0].push_back(std::get<0>(key));
      parts[1].push_back(std::get<1>(key));
      parts[2].push_back(std::get<2>(key));
      parts[3].push_back(std::get<3>(key));
      parts[4].push_back(std::get<4>(key));
    }
    row.push_back(found->second);
    instance.push_back(time.instance);
    start.push_back(time.start.value);
    duration.push_back((time.end - time.start).value);
  }
  Json copies = Json::array();
  for (const InstanceCopy& copy : compressed.copies)
    copies.push_back({texts.number(copy.segment), copy.instance, copy.copy, copy.shift.value,
                      copy.omitted ? 1 : 0});
  return {{"copies", std::move(copies)},        {"op", pack_differences(parts[0])},
          {"text", pack_differences(parts[1])}, {"stream", pack_differences(parts[2])},
          {"kind", pack_differences(parts[3])}, {"segment", pack_differences(parts[4])},
          {"row", pack_differences(row)},       {"instance", pack_differences(instance)},
          {"start", pack_differences(start)},   {"duration", pack(duration)}};
}

Json again_array(std::span<const Repeat> repeats) {
  Json array = Json::array();
  for (const Repeat& repeat : repeats)
    array.push_back({repeat.first, repeat.count, repeat.copies, repeat.period.value});
  return array;
}

/// For each point the categories that changed, as in the store.
Json memory_object(const std::vector<MemoryPoint>& points, std::span<const Repeat> repeats) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> kinds;  // of changes
  Column category;
  Column bytes;
  Column at;
  Column count;
  Column change;
  MemoryPoint before;
  for (const std::size_t position : kept_positions(points.size(), repeats)) {
    const MemoryPoint& point = points[position];
    at.push_back(point.at.value);
    count.push_back(0);
    for (std::size_t i = 0; i < point.categories.size(); ++i) {
      const std::int64_t more = (point.categories.at(i) - before.categories.at(i)).value;
      if (more == 0) continue;
      ++count.back();
      const auto number = static_cast<std::int64_t>(i);
      const auto [kind, is_new] = kinds.emplace(std::pair(number, more), std::ssize(kinds));
      change.push_back(kind->second);
      if (!is_new) continue;
      category.push_back(number);
      bytes.push_back(more);
    }
    before = point;
  }
  return {{"again", again_array(repeats)}, {"at", pack_differences(at)}, {"count", pack(count)},
          {"change", pack(change)},        {"category", pack(category)}, {"bytes", pack(bytes)}};
}

/// The steps that are drawn: all, or of equal parts those with the lowest and the highest loss.
std::vector<const StepResult*> drawn_steps(const std::vector<StepResult>& steps, std::size_t most) {
  std::vector<const StepResult*> drawn;
  const std::size_t parts = std::max<std::size_t>(most / 2, 1);
  const std::size_t each = steps.size() <= most ? 1 : (steps.size() + parts - 1) / parts;
  const auto loss = [](const StepResult& step) { return step.loss.value_or(0); };
  for (std::size_t begin = 0; begin < steps.size(); begin += each) {
    const auto first = steps.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = first + static_cast<std::ptrdiff_t>(std::min(each, steps.size() - begin));
    const auto [low, high] = std::ranges::minmax_element(first, last, {}, loss);
    drawn.push_back(&*std::min(low, high));
    if (low != high) drawn.push_back(&*std::max(low, high));
  }
  return drawn;
}

Json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json steps_object(const std::vector<StepResult>& steps, std::size_t most) {
  if (steps.empty()) return nullptr;
  Column step;
  Json duration = Json::array();
  Json tokens = Json::array();
  Column skipped;
  Json loss = Json::array();
  Json grad_norm = Json::array();
  Json learning_rate = Json::array();
  for (const StepResult* result : drawn_steps(steps, most)) {
    step.push_back(result->step);
    duration.push_back(result->timed ? Json(result->duration.value) : Json(nullptr));
    tokens.push_back(result->tokens ? Json(*result->tokens) : Json(nullptr));
    skipped.push_back(result->skipped ? 1 : 0);
    loss.push_back(number_or_null(result->loss));
    grad_norm.push_back(number_or_null(result->grad_norm));
    learning_rate.push_back(number_or_null(result->learning_rate));
  }
  return {{"step", pack_differences(step)},
          {"duration", std::move(duration)},
          {"tokens", std::move(tokens)},
          {"skipped", pack(skipped)},
          {"loss", std::move(loss)},
          {"grad_norm", std::move(grad_norm)},
          {"learning_rate", std::move(learning_rate)},
          {"of", steps.size()}};
}

Json evaluations_array(const std::vector<EvaluationResult>& evaluations) {
  Json array = Json::array();
  for (const EvaluationResult& evaluation : evaluations)
    array.push_back({evaluation.step, number_or_null(evaluation.loss), evaluation.tokens});
  return array;
}

/// Buffers of device pools, and their place among them.
struct DeviceBuffers {
  std::vector<std::optional<std::int64_t>> places;  ///< by position in Program::buffers
  Json pools = Json::array();
  Json columns;
};

DeviceBuffers device_buffers(const Program& program, Texts& texts) {
  DeviceBuffers device;
  std::map<PoolId, std::int64_t> pools;
  for (const Pool& pool : program.pools)
    if (pool.space == MemorySpace::device) {
      pools.emplace(pool.id, std::ssize(pools));
      device.pools.push_back(
          {{"name", pool.name}, {"height", pool.height.value}, {"lower", pool.lower_bound.value}});
    }
  Column text;
  Column category;
  Column place;
  Column offset;
  Column size;
  Column persistent;
  for (const Buffer& buffer : program.buffers) {
    const auto pool = pools.find(buffer.pool);
    device.places.emplace_back();
    if (pool == pools.end()) continue;
    device.places.back() = std::ssize(text);
    text.push_back(texts.number(buffer.name));
    category.push_back(static_cast<std::int64_t>(buffer.category));
    place.push_back(pool->second);
    offset.push_back(buffer.offset.value);
    size.push_back(buffer.size.value);
    persistent.push_back(buffer.persistent ? 1 : 0);
  }
  device.columns = {{"text", pack_differences(text)},
                    {"category", pack(category)},
                    {"pool", pack(place)},
                    {"offset", pack_differences(offset)},
                    {"size", pack_differences(size)},
                    {"persistent", pack(persistent)}};
  return device;
}

/// A plan that runs of the page share.
struct KnownPlan {
  std::shared_ptr<const Program> program;
  DeviceBuffers buffers;
  std::size_t position = 0;
};

Json op_facts_object(const Program& program, const Plan& plan) {
  const auto facts = op_facts(program, plan);
  Column id;
  Column bytes;
  Column flops;
  Column waits;
  Column awaited;
  for (const Op& op : ops_of(plan)) {
    const auto found = facts.find(op.id);
    if (found == facts.end()) continue;
    id.push_back(op.id.value);
    bytes.push_back(found->second.bytes);
    flops.push_back(found->second.flops);
    waits.push_back(std::ssize(found->second.waits));
    for (const OpId other : found->second.waits) awaited.push_back(other.value);
  }
  return {{"id", pack_differences(id)},
          {"bytes", pack(bytes)},
          {"flops", pack(flops)},
          {"waits", pack(waits)},
          {"awaited", pack_differences(awaited)}};
}

class Writer {
 public:
  explicit Writer(const HtmlOptions& options) : options_(options) {}

  Json run_object(const RunResult& run) {
    const KnownPlan* plan = plan_of(run);
    const Predicted* predicted = run.predicted();
    const Measured* measured = run.measured();
    const CompressedOps compressed = compress_ops(run.timeline, run.omitted);
    std::vector<MemoryPoint> memory;
    if (predicted != nullptr) memory = predicted->memory_timeline;
    Json buffers = nullptr;
    if (plan != nullptr && !run.timeline.empty()) {
      const Program& program = *plan->program;
      const std::vector<TimedOp> whole = whole_step(run);
      const Replay replayed =
          replay(program, *program.find_plan(PlanRole::train), whole, end_of_step(run));
      buffers = spans_object(run, replayed.buffers, compressed.copies, *plan);
      if (!run.omitted.empty() && predicted != nullptr)
        memory = whole_memory(program, replayed, memory, end_of_step(run));
    }
    const std::vector<Repeat> again = repeats_of(memory, run.timeline, compressed.copies);
    return {{"result", result_object(run)},
            {"end", end_of_step(run).value},
            {"plan", plan != nullptr ? Json(plan->position) : Json(nullptr)},
            {"ops", ops_object(run.timeline, compressed, texts_)},
            {"memory", memory_object(memory, again)},
            {"buffers", std::move(buffers)},
            {"steps", measured != nullptr ? steps_object(measured->steps, options_.most_points)
                                          : Json(nullptr)},
            {"evaluations",
             measured != nullptr ? evaluations_array(measured->evaluations) : Json::array()}};
  }

  Json finish(Json runs) {
    Json list = Json::array();
    for (const std::string_view text : texts_.list()) list.push_back(text);
    Json categories = Json::array();
    for (const std::string_view name : Names<Category>::values) categories.push_back(name);
    return {{"schema", "mfsdp.report/1"},
            {"title", options_.title.empty() ? "mfsdp report" : options_.title},
            {"version", options_.tool_version},
            {"unix_ms", options_.unix_ns / 1'000'000},
            {"texts", std::move(list)},
            {"categories", std::move(categories)},
            {"plans", std::move(plans_json_)},
            {"runs", std::move(runs)}};
  }

 private:
  /// Null if the plan is unknown.
  const KnownPlan* plan_of(const RunResult& run) {
    const auto known = plans_.find(run.plan_hash);
    if (known != plans_.end()) return known->second ? &*known->second : nullptr;
    std::optional<KnownPlan>& entry = plans_[run.plan_hash];
    if (!options_.program || run.plan_hash.empty()) return nullptr;
    std::shared_ptr<const Program> program = options_.program(run);
    const Plan* plan = program ? program->find_plan(PlanRole::train) : nullptr;
    if (plan == nullptr) return nullptr;
    entry = KnownPlan{.program = program,
                      .buffers = device_buffers(*program, texts_),
                      .position = plans_json_.size()};
    plans_json_.push_back({{"hash", run.plan_hash},
                           {"ops", op_facts_object(*program, *plan)},
                           {"pools", std::move(entry->buffers.pools)},
                           {"buffers", std::move(entry->buffers.columns)}});
    return &*entry;
  }

  static Json spans_object(const RunResult& run, std::span<const BufferSpan> all,
                           const std::vector<InstanceCopy>& copies, const KnownPlan& known) {
    std::vector<BufferSpan> spans;
    std::ranges::copy_if(all, std::back_inserter(spans), [&](const BufferSpan& span) {
      return known.buffers.places[span.buffer].has_value();
    });
    const std::vector<Repeat> again = repeats_of(spans, run.timeline, copies);
    Column buffer;
    Column slot;
    Column begin;
    Column duration;
    for (const std::size_t position : kept_positions(spans.size(), again)) {
      const BufferSpan& span = spans[position];
      if (buffer.size() == kMostSpans) break;
      buffer.push_back(*known.buffers.places[span.buffer]);
      slot.push_back(span.slot);
      begin.push_back(span.begin.value);
      duration.push_back((span.end - span.begin).value);
    }
    const bool is_whole = buffer.size() < kMostSpans;
    return {
        {"again", again_array(again)}, {"buffer", pack_differences(buffer)},
        {"slot", pack(slot)},          {"begin", pack_differences(begin)},
        {"duration", pack(duration)},  {"until", is_whole ? end_of_step(run).value : begin.back()}};
  }

  const HtmlOptions& options_;
  Texts texts_;
  std::unordered_map<std::string, std::optional<KnownPlan>> plans_;  ///< by hash
  Json plans_json_ = Json::array();
};

/// JSON that HTML may contain: these characters occur only in its strings.
std::string safe_in_html(const std::string& json) {
  std::string safe;
  safe.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '<')
      safe += "\\u003c";
    else if (c == '>')
      safe += "\\u003e";
    else if (c == '&')
      safe += "\\u0026";
    else if (json.compare(i, 2, "\xe2\x80") == 0 && i + 2 < json.size() &&
             (json[i + 2] == '\xa8' || json[i + 2] == '\xa9')) {
      safe += json[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace

std::string report_json(std::span<const RunResult> runs, const HtmlOptions& options) {
  Writer writer(options);
  Json list = Json::array();
  for (const RunResult& run : runs) list.push_back(writer.run_object(run));
  return safe_in_html(
      writer.finish(std::move(list)).dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace mfsdp
