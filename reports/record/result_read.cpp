// Reading a result of schema mfsdp.result/1 back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "reports/record/rates.hpp"
#include "reports/record/result_json.hpp"
#include "reports/record/step_figures.hpp"

namespace mfsdp {
namespace {

using ResultDocument = nlohmann::json;

/// Reads the members of one object. Members that are null or absent keep their value, because keys
/// were added over time. The first member of another type is kept as the error.
class MemberReader {
 public:
  MemberReader(const ResultDocument& object, std::string where, FigureSet& absent)
      : object_(object), where_(std::move(where)), absent_(absent) {}

  void text(std::string_view key, std::string& value) {
    if (const auto* found = find(key, "text", &ResultDocument::is_string))
      value = found->get<std::string>();
  }
  void truth(std::string_view key, bool& value) {
    if (const auto* found = find(key, "true or false", &ResultDocument::is_boolean))
      value = found->get<bool>();
  }
  void integer(std::string_view key, std::int64_t& value) {
    number(key, "an integer below 2^63", is_integer, value);
  }
  void count(std::string_view key, std::int64_t& value) {
    number(key, "an integer of at least 0 and below 2^63", is_count, value);
  }
  void bytes(std::string_view key, Bytes& value) { count(key, value.value); }
  void nanos(std::string_view key, Nanos& value) { count(key, value.value); }
  void real(std::string_view key, double& value) {
    number(key, "a number", &ResultDocument::is_number, value);
  }
  void rate(std::string_view key, double& value) {
    number(key, "a number of at least 0", is_between<0, kNoLimit>, value);
  }
  void fraction(std::string_view key, double& value) {
    number(key, "a fraction from 0 to 1", is_between<0, 1>, value);
  }
  void utilization(std::string_view key, double& value) {
    number(key, "a fraction from 0 to 2", is_between<0, kMostMfu>, value);
  }
  template <class Value, class Read>
  void optional(std::string_view key, std::optional<Value>& value, Read read) {
    if (!has(key)) return;
    Value found{};
    (this->*read)(key, found);
    value = found;
  }

  /// A figure of the result: absent where it is null or not there.
  template <class Value, class Read>
  void figure(ResultFigure which, Value& value, Read read) {
    if (has(to_string(which)))
      (this->*read)(to_string(which), value);
    else
      absent_.add(which);
  }

  [[nodiscard]] bool has(std::string_view key) const {
    const auto found = object_.find(key);
    return found != object_.end() && !found->is_null();
  }
  /// The object of that key; an empty one where there is none.
  [[nodiscard]] const ResultDocument& object(std::string_view key) {
    static const ResultDocument none = ResultDocument::object();
    const auto* found = find(key, "an object", &ResultDocument::is_object);
    return found != nullptr ? *found : none;
  }
  [[nodiscard]] const ResultDocument& list(std::string_view key) {
    static const ResultDocument none = ResultDocument::array();
    const auto* found = find(key, "a list", &ResultDocument::is_array);
    return found != nullptr ? *found : none;
  }
  [[nodiscard]] Result<void> outcome() const {
    if (error_) return tl::unexpected<Error>(*error_);
    return {};
  }
  [[nodiscard]] std::string place(std::string_view key) const {
    return fmt::format("{}.{}", where_, key);
  }

 private:
  static constexpr int kNoLimit = std::numeric_limits<int>::max();

  static bool is_integer(const ResultDocument& json) {
    return json.is_number_integer() &&
           (!json.is_number_unsigned() || std::in_range<std::int64_t>(json.get<std::uint64_t>()));
  }
  static bool is_count(const ResultDocument& json) {
    return is_integer(json) && json.get<std::int64_t>() >= 0;
  }
  template <int least, int most>
  static bool is_between(const ResultDocument& json) {
    if (!json.is_number()) return false;
    const auto value = json.get<double>();
    return value >= least && (most == kNoLimit || value <= most);
  }

  template <class Check, class Value>
  void number(std::string_view key, std::string_view kind, Check check, Value& value) {
    if (const auto* found = find(key, kind, check)) value = found->template get<Value>();
  }
  template <class Check>
  const ResultDocument* find(std::string_view key, std::string_view kind, Check check) {
    if (error_ || !has(key)) return nullptr;
    const auto found = object_.find(key);
    if (std::invoke(check, *found)) return &*found;
    error_ = Error{.where = place(key), .what = "expected " + std::string(kind)};
    return nullptr;
  }

  const ResultDocument& object_;
  std::string where_;
  FigureSet& absent_;
  std::optional<Error> error_;
};

using Members = MemberReader;

Result<void> read_plan_object(const ResultDocument& json, const std::string& where,
                              RunFigures& run) {
  Members read(json, where, run.absent);
  PlanSummary& plan = run.plan;
  read.count("units", plan.units);
  read.count("groups", plan.groups);
  read.count("ops", plan.ops);
  read.count("events", plan.events);
  read.count("waits", plan.waits);
  read.count("buffers", plan.buffers);
  read.count("collectives", plan.collectives);
  read.count("segments", plan.segments);
  read.count("max_live_full_weights", plan.max_live_full_weights);
  read.count("max_live_full_gradients", plan.max_live_full_gradients);
  read.bytes("padding_bytes", plan.padding);
  read.rate("model_flops", plan.model_flops);
  std::string allocator(to_string(plan.allocator));
  read.text("allocator", allocator);
  for (const ResultDocument& pool : read.list("pools")) {
    if (!pool.is_object()) return fail(read.place("pools"), "expected objects");
    PoolSummary& summary = plan.pools.emplace_back();
    Members of_pool(pool, read.place("pools"), run.absent);
    of_pool.text("name", summary.name);
    of_pool.bytes("height_bytes", summary.height);
    of_pool.bytes("lower_bound_bytes", summary.lower_bound);
    MFSDP_TRY(of_pool.outcome());
  }
  MFSDP_TRY(read.outcome());
  const auto policy = parse<AllocatorPolicy>(allocator);
  if (!policy)
    return fail(read.place("allocator"), "expected one of " + name_list<AllocatorPolicy>());
  plan.allocator = *policy;
  return {};
}

Result<void> read_memory_object(const ResultDocument& json, const std::string& where,
                                RunFigures& run, Predicted& predicted) {
  Members read(json, where, run.absent);
  MemorySummary& memory = run.memory;
  read.figure(ResultFigure::capacity_bytes, memory.capacity, &Members::bytes);
  read.figure(ResultFigure::allocated_bytes, memory.allocated, &Members::bytes);
  read.figure(ResultFigure::peak_bytes, memory.peak, &Members::bytes);
  read.figure(ResultFigure::fits, memory.fits, &Members::truth);
  read.figure(ResultFigure::reserve_bytes, memory.reserve, &Members::bytes);
  read.figure(ResultFigure::headroom_bytes, memory.headroom.value, &Members::integer);
  read.optional("live_peak_bytes", predicted.live_peak, &Members::bytes);
  read.text("peak_op", predicted.peak_op);
  read.text("runtime_source", memory.runtime_source);
  if (read.has("reserved_bytes")) {
    CachedMemory& cached = memory.cached.emplace();
    read.bytes("reserved_bytes", cached.reserved);
    read.optional("device_bytes", cached.device, &Members::bytes);
    read.optional("alloc_retries", cached.retries, &Members::count);
    // Before `verdict_certain` existed, `fits_certain` had its meaning.
    const bool is_older = !read.has("verdict_certain");
    read.truth(is_older ? "fits_certain" : "verdict_certain", cached.certain);
    if (!is_older) read.optional("fits_certain", cached.fits_certain, &Members::truth);
    if (read.has("errors")) {
      Members errors(read.object("errors"), read.place("errors"), run.absent);
      MemoryErrors& known = cached.errors.emplace();
      errors.rate("allocated", known.allocated);
      errors.rate("reserved", known.reserved);
      errors.rate("device", known.device);
      errors.text("source", known.source);
      MFSDP_TRY(errors.outcome());
    }
  }
  if (!read.has("categories")) run.absent.add(ResultFigure::categories);
  Members categories(read.object("categories"), read.place("categories"), run.absent);
  for (std::size_t i = 0; i < memory.categories.size(); ++i)
    categories.bytes(Names<Category>::values.at(i), memory.categories.at(i));
  MFSDP_TRY(categories.outcome());
  return read.outcome();
}

Result<void> read_time_object(const ResultDocument& json, const std::string& where, RunFigures& run,
                              Predicted& predicted) {
  Members read(json, where, run.absent);
  TimeSummary& time = run.time;
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  time.overlap_fraction = time.tokens_per_second_per_gpu = time.tflops_per_gpu = time.mfu = none;
  read.figure(ResultFigure::step_ns, time.step, &Members::nanos);
  read.figure(ResultFigure::compute_ns, time.compute, &Members::nanos);
  read.figure(ResultFigure::communication_ns, time.communication, &Members::nanos);
  read.figure(ResultFigure::exposed_communication_ns, time.exposed_communication, &Members::nanos);
  read.figure(ResultFigure::idle_ns, time.idle, &Members::nanos);
  read.figure(ResultFigure::contention_ns, time.contention, &Members::nanos);
  read.figure(ResultFigure::overlap_fraction, time.overlap_fraction, &Members::fraction);
  read.figure(ResultFigure::median_step_ns, time.median_step, &Members::nanos);
  const bool has_one_step = !json.contains("median_step_ns");  // as earlier versions wrote it
  if (has_one_step && !run.absent.has(ResultFigure::step_ns)) {
    time.median_step = time.step;
    run.absent.remove(ResultFigure::median_step_ns);
  }
  read.figure(ResultFigure::tokens_per_second_per_gpu, time.tokens_per_second_per_gpu,
              &Members::rate);
  read.figure(ResultFigure::tflops_per_gpu, time.tflops_per_gpu, &Members::rate);
  read.figure(ResultFigure::mfu, time.mfu, &Members::utilization);
  if (read.has("host_issue_ns")) {
    HostTime& host = time.host.emplace();
    read.nanos("host_issue_ns", host.issue);
    read.nanos("host_bound_ns", host.bound);
  }
  for (const ResultDocument& unit : read.list("exposed_units")) {
    if (!unit.is_object()) return fail(read.place("exposed_units"), "expected objects");
    ExposedUnit& exposed = predicted.exposed_units.emplace_back();
    Members of_unit(unit, read.place("exposed_units"), run.absent);
    of_unit.text("unit", exposed.unit);
    of_unit.nanos("exposed_ns", exposed.exposed);
    std::string mostly;
    of_unit.text("mostly", mostly);
    exposed.mostly = parse<Awaited>(mostly);
    MFSDP_TRY(of_unit.outcome());
  }
  return read.outcome();
}

Result<void> read_routing_part(Members& read, RoutingReport& report) {
  read.text("routing", report.routing);
  read.count("slowest_rank", report.slowest_rank);
  read.optional("slowest_block", report.slowest_block, &Members::count);
  read.count("rows", report.rows);
  read.count("mean_rows", report.mean_rows);
  read.count("tiled_rows", report.tiled_rows);
  read.rate("imbalance", report.imbalance);
  read.count("busiest_expert", report.busiest_expert);
  read.rate("expert_imbalance", report.expert_imbalance);
  if (!read.has("room_rows")) return read.outcome();
  RoutingRoom& room = report.room.emplace();
  double factor = 1;
  read.count("room_rows", room.rows);
  read.count("needed_rows", room.needed);
  read.truth("room_holds", room.holds);
  read.rate("least_capacity_factor", factor);
  read.bytes("least_allocated_bytes", room.least_allocated);
  read.truth("least_fits", room.least_fits);
  MFSDP_TRY(read.outcome());
  MFSDP_LET(least, rational_from_double(factor, read.place("least_capacity_factor")));
  room.least_factor = least;
  return {};
}

Result<void> read_predicted_part(Members& read, RunFigures& run, Predicted& predicted) {
  read.text("calibration", predicted.calibration);
  read.text("cost_model_version", predicted.cost_model_version);
  if (read.has("trust")) {
    Members trust(read.object("trust"), read.place("trust"), run.absent);
    trust.text("tier", predicted.trust.trust_level);
    trust.optional("step_error", predicted.trust.step_error, &Members::rate);
    trust.text("text", predicted.trust.text);
    MFSDP_TRY(trust.outcome());
  }
  if (read.has("ranks")) {
    Members ranks(read.object("ranks"), read.place("ranks"), run.absent);
    RankReport& report = predicted.ranks.emplace();
    ranks.count("ranks", report.ranks);
    ranks.count("simulated", report.simulated);
    ranks.count("slowest", report.slowest);
    ranks.nanos("compute_mean_ns", report.compute_mean);
    ranks.nanos("compute_most_ns", report.compute_most);
    ranks.nanos("waiting_mean_ns", report.waiting_mean);
    ranks.text("variation", report.variation);
    MFSDP_TRY(ranks.outcome());
  }
  if (read.has("routing")) {
    Members routing(read.object("routing"), read.place("routing"), run.absent);
    MFSDP_TRY(read_routing_part(routing, predicted.routing.emplace()));
  }
  if (read.has("training")) {
    Members training(read.object("training"), read.place("training"), run.absent);
    TrainingEstimate& estimate = predicted.training.emplace();
    training.count("tokens", estimate.tokens);
    training.rate("seconds", estimate.seconds);
    training.rate("gpu_hours", estimate.gpu_hours);
    training.optional("cost", estimate.cost, &Members::rate);
    MFSDP_TRY(training.outcome());
  }
  return read.outcome();
}

Result<void> read_measured_part(Members& read, RunFigures& run, Measured& measured) {
  std::string status(to_string(run.status));
  read.text("status", status);
  if (const auto known = parse<RunStatus>(status))
    run.status = *known;
  else
    return fail(read.place("status"), "expected one of " + name_list<RunStatus>());
  if (read.has("resumed")) {
    Members resumed(read.object("resumed"), read.place("resumed"), run.absent);
    ResumedFrom& from = measured.resumed.emplace();
    resumed.count("step", from.step);
    resumed.text("run_id", from.run_id);
    MFSDP_TRY(resumed.outcome());
  }
  for (const ResultDocument& json : read.list("steps")) {
    if (!json.is_object()) return fail(read.place("steps"), "expected objects");
    StepResult& step = measured.steps.emplace_back();
    Members of_step(json, read.place("steps"), run.absent);
    of_step.count("step", step.step);
    of_step.optional("loss", step.loss, &Members::real);
    of_step.optional("grad_norm", step.grad_norm, &Members::real);
    step.timed = of_step.has("step_ns");
    of_step.nanos("step_ns", step.duration);
    of_step.optional("tokens", step.tokens, &Members::count);
    of_step.optional("learning_rate", step.learning_rate, &Members::real);
    of_step.optional("loss_scale", step.loss_scale, &Members::real);
    of_step.truth("skipped", step.skipped);
    MFSDP_TRY(of_step.outcome());
  }
  for (const ResultDocument& json : read.list("evaluations")) {
    if (!json.is_object()) return fail(read.place("evaluations"), "expected objects");
    EvaluationResult& evaluation = measured.evaluations.emplace_back();
    evaluation.loss = std::numeric_limits<double>::quiet_NaN();
    Members of_evaluation(json, read.place("evaluations"), run.absent);
    of_evaluation.count("step", evaluation.step);
    of_evaluation.real("loss", evaluation.loss);
    of_evaluation.count("tokens", evaluation.tokens);
    MFSDP_TRY(of_evaluation.outcome());
  }
  return read.outcome();
}

Result<void> read_head_objects(Members& read, const std::string& where, RunFigures& run) {
  Members model(read.object("model"), read.place("model"), run.absent);
  model.text("name", run.model_name);
  model.figure(ResultFigure::parameters, run.parameters, &Members::count);
  MFSDP_TRY(model.outcome());
  Members cluster(read.object("cluster"), read.place("cluster"), run.absent);
  cluster.text("gpu", run.cluster.gpu);
  cluster.figure(ResultFigure::gpus, run.cluster.gpus, &Members::count);
  cluster.figure(ResultFigure::nodes, run.cluster.nodes, &Members::count);
  cluster.figure(ResultFigure::gpus_per_node, run.cluster.gpus_per_node, &Members::count);
  cluster.text("network", run.cluster.network);
  MFSDP_TRY(cluster.outcome());
  if (!model.has("layers")) run.absent.add(ResultFigure::model);
  if (!read.has("config")) run.absent.add(ResultFigure::config);
  if (!run.absent.has(ResultFigure::model) && !run.absent.has(ResultFigure::config)) {
    MFSDP_LET(config,
              config_from_json(read.object("model").dump(), read.object("config").dump(), where));
    run.config = std::move(config);
  }
  if (read.has("facts")) {
    MFSDP_LET(facts, facts_from_json(read.object("facts").dump(), read.place("facts")));
    run.facts = std::move(facts);
  }
  Members traffic(read.object("traffic"), read.place("traffic"), run.absent);
  traffic.figure(ResultFigure::all_gather_bytes, run.traffic.all_gather, &Members::bytes);
  traffic.figure(ResultFigure::reduce_scatter_bytes, run.traffic.reduce_scatter, &Members::bytes);
  traffic.figure(ResultFigure::all_reduce_bytes, run.traffic.all_reduce, &Members::bytes);
  return traffic.outcome();
}

}  // namespace

Result<RoutingReport> routing_from_json(std::string_view text, const std::string& where) {
  const ResultDocument json = ResultDocument::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(where, "expected a JSON object");
  FigureSet absent;
  RoutingReport report;
  Members read(json, where, absent);
  MFSDP_TRY(read_routing_part(read, report));
  return report;
}

Result<RunResult> result_from_json(std::string_view text, const std::string& where) {
  const ResultDocument json = ResultDocument::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(where, "expected a JSON object");
  RunFigures run;
  Predicted predicted;
  Measured measured;
  Members read(json, where, run.absent);
  std::string schema;
  std::string source;
  read.text("schema", schema);
  read.text("source", source);
  read.text("tool", run.tool);
  read.text("version", run.version);
  read.text("commit", run.commit);
  read.text("run_id", run.run_id);
  read.text("name", run.name);
  read.count("created_unix_ns", run.created_unix_ns);
  read.text("plan_hash", run.plan_hash);
  read.text("engine", run.engine);
  MFSDP_TRY(read.outcome());
  if (schema != kResultSchema)
    return fail(read.place("schema"), fmt::format("expected \"{}\"", kResultSchema));
  if (run.run_id.empty()) return fail(read.place("run_id"), "expected the run's id");
  if (source != "simulated" && source != "measured")
    return fail(read.place("source"), "expected simulated or measured");
  MFSDP_TRY(read_head_objects(read, where, run));
  if (!read.has("plan")) run.absent.add(ResultFigure::plan);
  MFSDP_TRY(read_plan_object(read.object("plan"), read.place("plan"), run));
  MFSDP_TRY(read_memory_object(read.object("memory"), read.place("memory"), run, predicted));
  MFSDP_TRY(read_time_object(read.object("time"), read.place("time"), run, predicted));
  if (source == "measured") {
    MFSDP_TRY(read_measured_part(read, run, measured));
    forget_unmeasured(run);
    return RunResult(std::move(run), std::move(measured));
  }
  MFSDP_TRY(read_predicted_part(read, run, predicted));
  return RunResult(std::move(run), std::move(predicted));
}

}  // namespace mfsdp
