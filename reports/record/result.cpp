#include "reports/record/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/model/model_shape.hpp"
#include "core/plan/config_fields.hpp"
#include "reports/record/result_json.hpp"

namespace mfsdp {

namespace {

using Json = nlohmann::ordered_json;  // keys stay in the order of the documented schema

template <class Enum>
std::string name_of(Enum value) {
  return std::string(to_string(value));
}

/// A number where a decimal stands for the fraction exactly, else "num/den".
Json exact(const Rational& rational) {
  if (rational.den == 1) return rational.num;
  if (const auto decimal = exact_double(rational)) return *decimal;
  return flag_text(rational);
}

/// JSON has no infinities and no not-a-number.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json finite(const std::optional<double>& value) { return value ? finite(*value) : Json(nullptr); }

Json exact(const std::vector<Rational>& numbers) {
  Json list = Json::array();
  for (const Rational& number : numbers) list.push_back(exact(number));
  return list;
}

/// Only the objects of models with scaled RoPE have these keys.
void add_scaling(const RopeScaling& scaling, Json& object) {
  if (scaling.kind != RopeKind{}) object["kind"] = to_string(scaling.kind);
  if (scaling.attention_factor.num != 0)
    object["attention_factor"] = exact(scaling.attention_factor);
  if (!scaling.short_factors.empty()) object["short_factors"] = exact(scaling.short_factors);
  if (!scaling.long_factors.empty()) object["long_factors"] = exact(scaling.long_factors);
  if (scaling.exact_range) object["exact_range"] = true;
  if (scaling.score_magnitude.num != 0) object["score_magnitude"] = exact(scaling.score_magnitude);
}
void add_attention(const ModelShape& shape, Json& object) {
  add_scaling(shape.rope_scaling, object["rope_scaling"]);
  if (shape.rotary_dim != 0) object["rotary_dim"] = shape.rotary_dim;
  if (shape.sliding_window != 0) {
    object["sliding_window"] = shape.sliding_window;
    object["sliding_layers"] = shape.sliding_layers;
  }
  for (const auto& [name, value] :
       {std::pair<const char*, const Rational&>{"local_rope_theta", shape.local_rope_theta},
        {"query_scalar", shape.query_scalar},
        {"score_cap", shape.score_cap},
        {"logit_cap", shape.logit_cap}})
    if (value.num != 0) object[name] = exact(value);
  if (shape.value_dim != 0) object["value_dim"] = shape.value_dim;
  if (shape.query_latent != 0) object["query_latent"] = shape.query_latent;
  if (shape.kv_latent != 0) object["kv_latent"] = shape.kv_latent;
  if (shape.fused_weights) object["fused_weights"] = true;
  if (shape.activation != Activation{}) object["activation"] = to_string(shape.activation);
  if (shape.scaled_embedding) object["scaled_embedding"] = true;
  if (shape.output_norms) object["output_norms"] = true;
  if (shape.zero_centered_norms) object["zero_centered_norms"] = true;
}

void add_experts(const ModelShape& shape, std::int64_t parameters, Json& object) {
  object["active_parameters"] = parameters - unchosen_elements(shape);
  object["experts"] = shape.experts;
  object["experts_per_token"] = shape.experts_per_token;
  object["expert_intermediate"] = shape.expert_intermediate;
  if (shape.shared_intermediate != 0) object["shared_intermediate"] = shape.shared_intermediate;
  if (!shape.dense_layers.empty()) object["dense_layers"] = shape.dense_layers;
  if (shape.normalised_routing) object["normalised_routing"] = true;
  if (shape.router_aux_loss.num != 0) object["router_aux_loss"] = exact(shape.router_aux_loss);
  if (shape.router_z_loss.num != 0) object["router_z_loss"] = exact(shape.router_z_loss);
  if (shape.sigmoid_routing) object["sigmoid_routing"] = true;
  if (shape.routed_scale.num != 0) object["routed_scale"] = exact(shape.routed_scale);
  if (shape.router_groups != 0) {
    object["router_groups"] = shape.router_groups;
    object["chosen_groups"] = shape.chosen_groups;
  }
  if (shape.swiglu_limit.num == 0) return;
  object["swiglu_alpha"] = exact(shape.swiglu_alpha);
  object["swiglu_limit"] = exact(shape.swiglu_limit);
}

Json model_object(const RunHead& result) {
  const ModelShape& shape = result.config.model;
  Json object = {{"name", result.model_name},
                 {"parameters", result.parameters},
                 {"family", to_string(shape.family)},
                 {"layers", shape.layers},
                 {"hidden", shape.hidden},
                 {"heads", shape.heads},
                 {"kv_heads", shape.kv_heads},
                 {"head_dim", shape.head_dim},
                 {"intermediate", shape.intermediate},
                 {"vocab", shape.vocab},
                 {"max_seq_len", shape.max_seq_len},
                 {"tied_embeddings", shape.tied_embeddings},
                 {"qkv_bias", shape.qkv_bias},
                 {"qk_norm", shape.qk_norm},
                 {"rms_norm_eps", exact(shape.rms_norm_eps)},
                 {"rope_theta", exact(shape.rope_theta)},
                 {"rope_scaling",
                  {{"factor", exact(shape.rope_scaling.factor)},
                   {"low_freq_factor", exact(shape.rope_scaling.low_freq_factor)},
                   {"high_freq_factor", exact(shape.rope_scaling.high_freq_factor)},
                   {"original_max_seq_len", shape.rope_scaling.original_max_seq_len}}}};
  add_attention(shape, object);
  if (shape.experts != 0) add_experts(shape, result.parameters, object);
  return object;
}

/// Puts the fields of a configuration into the result's `config` object.
struct ConfigWriter {
  Json& object;

  template <class Value>
  void operator()(const ConfigField& field, const Value& value) const {
    object[std::string(field.name)] = json_of(value);
  }
  void operator()(const ConfigField& /*field*/, const Mesh& mesh) const {
    object["dp_outer"] = mesh.size(Axis::dp_outer);
    object["dp_shard"] = mesh.size(Axis::dp_shard);
  }

 private:
  static Json json_of(const Rational& value) { return exact(value); }
  static Json json_of(const RecomputePolicy& policy) { return flag_text(policy); }
  static Json json_of(const std::optional<Strategy>& strategy) {
    return strategy ? Json(name_of(*strategy)) : Json();
  }
  template <class Value>
  static Json json_of(const Value& value) {
    if constexpr (std::is_enum_v<Value>)
      return name_of(value);
    else
      return value;
  }
};

Json config_object(const PlanConfig& config) {
  // In the schema these two stand before the mesh.
  Json object = {{"strategy", ""}, {"outer_strategy", ""}};
  for_each_field(config, [&](const ConfigField& field, const auto& value) {
    ConfigWriter{object}(field, value);
    if (field.name == "microbatches") object["global_batch"] = config.global_batch();
  });
  return object;
}

Json plan_object(const PlanSummary& plan) {
  Json pools = Json::array();
  for (const PoolSummary& pool : plan.pools)
    pools.push_back({{"name", pool.name},
                     {"height_bytes", pool.height.value},
                     {"lower_bound_bytes", pool.lower_bound.value}});
  return {{"units", plan.units},
          {"groups", plan.groups},
          {"ops", plan.ops},
          {"events", plan.events},
          {"waits", plan.waits},
          {"buffers", plan.buffers},
          {"collectives", plan.collectives},
          {"segments", plan.segments},
          {"max_live_full_weights", plan.max_live_full_weights},
          {"max_live_full_gradients", plan.max_live_full_gradients},
          {"allocator", name_of(plan.allocator)},
          {"pools", std::move(pools)},
          {"padding_bytes", plan.padding.value},
          {"model_flops", plan.model_flops > 0 ? finite(plan.model_flops) : Json(nullptr)}};
}

/// The part of the result, or an empty one, because every result has every key.
template <class Part>
const Part& part_or_none(const Part* part) {
  static const Part none;
  return part != nullptr ? *part : none;
}

Json memory_object(const MemorySummary& memory, const Predicted& predicted) {
  Json categories = Json::object();
  for (std::size_t i = 0; i < memory.categories.size(); ++i)
    categories[name_of(static_cast<Category>(i))] = memory.categories[i].value;
  Json object = {
      {"capacity_bytes", memory.capacity.value},
      {"allocated_bytes", memory.allocated.value},
      {"peak_bytes", memory.peak.value},
      {"live_peak_bytes", predicted.live_peak ? Json(predicted.live_peak->value) : Json(nullptr)},
      {"peak_op", predicted.peak_op},
      {"fits", memory.fits},
      {"reserve_bytes", memory.reserve.value},
      {"headroom_bytes", memory.headroom.value},
      {"categories", std::move(categories)},
      {"runtime_source", memory.runtime_source}};
  if (memory.cached) {
    object["reserved_bytes"] = memory.cached->reserved.value;
    const CachedMemory& cached = *memory.cached;
    object["device_bytes"] = cached.device ? Json(cached.device->value) : Json(nullptr);
    object["alloc_retries"] = cached.retries ? Json(*cached.retries) : Json(nullptr);
    object["fits_certain"] = cached.fits_certain ? Json(*cached.fits_certain) : Json(nullptr);
    object["verdict_certain"] = cached.certain;
    if (const auto& errors = memory.cached->errors)
      object["errors"] = {{"allocated", finite(errors->allocated)},
                          {"reserved", finite(errors->reserved)},
                          {"device", finite(errors->device)},
                          {"source", errors->source}};
  }
  return object;
}

Json time_object(const TimeSummary& time, const Predicted& predicted) {
  Json exposed = Json::array();
  for (const ExposedUnit& unit : predicted.exposed_units) {
    Json object = {{"unit", unit.unit}, {"exposed_ns", unit.exposed.value}};
    if (unit.mostly) object["mostly"] = to_string(*unit.mostly);
    exposed.push_back(std::move(object));
  }
  Json object{{"step_ns", time.step.value},
              {"compute_ns", time.compute.value},
              {"communication_ns", time.communication.value},
              {"exposed_communication_ns", time.exposed_communication.value},
              {"idle_ns", time.idle.value},
              {"contention_ns", time.contention.value},
              {"overlap_fraction", finite(time.overlap_fraction)},
              {"median_step_ns", time.median_step.value},
              {"tokens_per_second_per_gpu", finite(time.tokens_per_second_per_gpu)},
              {"tflops_per_gpu", finite(time.tflops_per_gpu)},
              {"mfu", finite(time.mfu)},
              {"exposed_units", std::move(exposed)}};
  if (time.host) {
    object["host_issue_ns"] = time.host->issue.value;
    object["host_bound_ns"] = time.host->bound.value;
  }
  return object;
}

Json training_object(const TrainingEstimate& training) {
  Json object = {{"tokens", training.tokens},
                 {"seconds", finite(training.seconds)},
                 {"gpu_hours", finite(training.gpu_hours)}};
  if (training.cost) object["cost"] = finite(*training.cost);
  return object;
}

Json would_fit_array(const std::vector<WouldFit>& settings) {
  Json array = Json::array();
  for (const WouldFit& one : settings)
    array.push_back({{"flags", one.flags},
                     {"memory_bytes", one.memory.value},
                     {"step_ns", one.step.value},
                     {"tokens_per_step", one.tokens}});
  return array;
}

Json ranks_object(const RankReport& ranks) {
  return {{"ranks", ranks.ranks},
          {"simulated", ranks.simulated},
          {"slowest", ranks.slowest},
          {"compute_mean_ns", ranks.compute_mean.value},
          {"compute_most_ns", ranks.compute_most.value},
          {"waiting_mean_ns", ranks.waiting_mean.value},
          {"variation", ranks.variation}};
}

Json routing_object(const RoutingReport& routing) {
  Json object = {{"routing", routing.routing}, {"slowest_rank", routing.slowest_rank}};
  if (routing.slowest_block) object["slowest_block"] = *routing.slowest_block;
  object["rows"] = routing.rows;
  object["mean_rows"] = routing.mean_rows;
  object["tiled_rows"] = routing.tiled_rows;
  object["imbalance"] = finite(routing.imbalance);
  object["busiest_expert"] = routing.busiest_expert;
  object["expert_imbalance"] = finite(routing.expert_imbalance);
  if (!routing.room) return object;
  const RoutingRoom& room = *routing.room;
  object["room_rows"] = room.rows;
  object["needed_rows"] = room.needed;
  object["room_holds"] = room.holds;
  object["least_capacity_factor"] = room.least_factor.value();
  object["least_allocated_bytes"] = room.least_allocated.value;
  object["least_fits"] = room.least_fits;
  return object;
}

Json step_object(const StepResult& step) {
  Json object = {{"step", step.step},
                 {"loss", finite(step.loss)},
                 {"grad_norm", finite(step.grad_norm)},
                 {"step_ns", step.timed ? Json(step.duration.value) : Json(nullptr)}};
  if (step.tokens) object["tokens"] = *step.tokens;
  if (step.learning_rate) object["learning_rate"] = finite(step.learning_rate);
  if (step.loss_scale) object["loss_scale"] = finite(step.loss_scale);
  if (step.skipped) object["skipped"] = true;
  return object;
}

Json evaluation_object(const EvaluationResult& evaluation) {
  return {
      {"step", evaluation.step}, {"loss", finite(evaluation.loss)}, {"tokens", evaluation.tokens}};
}

Json steps_array(const std::vector<StepResult>& steps) {
  Json array = Json::array();
  for (const StepResult& step : steps) array.push_back(step_object(step));
  return array;
}

Json evaluations_array(const std::vector<EvaluationResult>& evaluations) {
  Json array = Json::array();
  for (const EvaluationResult& evaluation : evaluations)
    array.push_back(evaluation_object(evaluation));
  return array;
}

Json other_engine_object(const OtherEngine& other) {
  if (!other.reason.empty()) return {{"engine", other.engine}, {"not_predicted", other.reason}};
  return {{"engine", other.engine},
          {"fits", other.fits},
          {"fits_certain", other.certain},
          {"device_bytes", other.memory.value},
          {"capacity_bytes", other.capacity.value},
          {"step_ns", other.step.value},
          {"recompute", to_string(other.recompute)}};
}

/// The keys that only such results have.
void add_predicted(Json& object, const Predicted& predicted) {
  const TrustSummary& trust = predicted.trust;
  if (!trust.trust_level.empty())
    object["trust"] = {{"tier", trust.trust_level},
                       {"step_error", finite(trust.step_error)},
                       {"text", trust.text}};
  if (predicted.ranks) object["ranks"] = ranks_object(*predicted.ranks);
  if (predicted.routing) object["routing"] = routing_object(*predicted.routing);
  if (!predicted.would_fit.empty()) object["would_fit"] = would_fit_array(predicted.would_fit);
  if (predicted.training) object["training"] = training_object(*predicted.training);
  for (const OtherEngine& other : predicted.other_engines)
    object["other_engines"].push_back(other_engine_object(other));
}

void add_measured(Json& object, const Measured& measured, RunStatus status) {
  object["status"] = name_of(status);
  if (measured.resumed)
    object["resumed"] = {{"step", measured.resumed->step}, {"run_id", measured.resumed->run_id}};
  object["skipped_steps"] = std::ranges::count(measured.steps, true, &StepResult::skipped);
  object["steps"] = steps_array(measured.steps);
  if (!measured.evaluations.empty())
    object["evaluations"] = evaluations_array(measured.evaluations);
}

/// The place of a figure in the object.
std::string place_of(ResultFigure figure) {
  const std::string name(to_string(figure));
  switch (figure) {
    case ResultFigure::parameters: return "/model/parameters";
    case ResultFigure::model:
    case ResultFigure::config:
    case ResultFigure::plan: return "/" + name;
    case ResultFigure::gpus:
    case ResultFigure::nodes:
    case ResultFigure::gpus_per_node: return "/cluster/" + name;
    case ResultFigure::all_gather_bytes:
    case ResultFigure::reduce_scatter_bytes:
    case ResultFigure::all_reduce_bytes: return "/traffic/" + name;
    default: break;
  }
  return (figure < ResultFigure::step_ns ? "/memory/" : "/time/") + name;
}

/// Unknown figures are null; for a model without a shape only the name remains.
void clear_absent(Json& object, const FigureSet& absent) {
  if (absent.empty()) return;
  if (absent.has(ResultFigure::model))
    object["model"] = {{"name", object["model"]["name"]},
                       {"parameters", object["model"]["parameters"]}};
  for (std::size_t i = 0; i < FigureSet::kFigures; ++i)
    if (const auto figure = static_cast<ResultFigure>(i);
        absent.has(figure) && figure != ResultFigure::model)
      object[Json::json_pointer(place_of(figure))] = nullptr;
}

Json result_object(const RunResult& result) {
  const auto& predicted = part_or_none(result.predicted());
  Json object = {
      {"schema", kResultSchema},
      {"tool", result.tool},
      {"version", result.version},
      {"commit", result.commit},
      {"run_id", result.run_id},
      {"name", result.name},
      {"created_unix_ns", result.created_unix_ns},
      {"plan_hash", result.plan_hash},
      {"model", model_object(result)},
      {"cluster",
       {{"gpu", result.cluster.gpu},
        {"gpus", result.cluster.gpus},
        {"nodes", result.cluster.nodes},
        {"gpus_per_node", result.cluster.gpus_per_node},
        {"network", result.cluster.network}}},
      {"config", result.absent.has(ResultFigure::config) ? Json() : config_object(result.config)},
      {"engine", result.engine},
      {"calibration", predicted.calibration},
      {"cost_model_version", predicted.cost_model_version},
      {"plan", plan_object(result.plan)},
      {"memory", memory_object(result.memory, predicted)},
      {"time", time_object(result.time, predicted)},
      {"traffic",
       {{"all_gather_bytes", result.traffic.all_gather.value},
        {"reduce_scatter_bytes", result.traffic.reduce_scatter.value},
        {"all_reduce_bytes", result.traffic.all_reduce.value}}},
      {"facts", Json::parse(facts_json(result.facts))},
      {"source", result.source()}};
  if (const Predicted* part = result.predicted()) add_predicted(object, *part);
  if (const Measured* part = result.measured()) add_measured(object, *part, result.status);
  clear_absent(object, result.absent);
  return object;
}

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

constexpr int kOneLine = -1;  // nlohmann's word for it

}  // namespace

RunResult::RunResult(RunFigures figures, std::variant<Predicted, Measured> part)
    : RunFigures(std::move(figures)), part_(std::move(part)) {}

RunResult::RunResult(PredictedRun run)
    : RunResult(static_cast<RunFigures&&>(run), static_cast<Predicted&&>(run)) {}

RunResult::RunResult(MeasuredRun run)
    : RunResult(static_cast<RunFigures&&>(run), static_cast<Measured&&>(run)) {}

std::string_view RunResult::source() const {
  return predicted() != nullptr ? "simulated" : "measured";
}

std::string to_json(const RunResult& result) { return text_of(result_object(result), 2) + "\n"; }

std::string to_json_line(const RunResult& result) {
  return text_of(result_object(result), kOneLine);
}

std::string routing_json(const RoutingReport& routing) { return routing_object(routing).dump(); }

std::string model_json(const RunHead& result) { return text_of(model_object(result), kOneLine); }

std::string config_json(const PlanConfig& config) {
  return text_of(config_object(config), kOneLine);
}

}  // namespace mfsdp
