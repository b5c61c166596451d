// The fields of a result, by their keys in its JSON, which are also their columns in the store. One
// description serves the writers and readers of both.
//
// `Io` offers, for a value of that key:
//   io(key, value, range)          a field that is always there
//   io.sparse(key, value, range)   one that is left out while it is none, zero, false or empty
//   io.later(key, value)           one that is always written, and that earlier versions did not
//   io.figure(figure, value, range)  one with the name of the figure, which may be unknown
//   io.real(key, value)            any number, null for NaN
//   io.known(key, value, is_known)  null unless it is known
//   io.positive(key, value)        null for numbers that are not above 0
//   io.decimal(key, value)         a fraction as a decimal number
//   io.written(key, value), io.derived(key, function)   one that is not read back
//   io.object(key, part)           an object of the fields that part(io) describes
//   io.part(key, optional)         fields in this object, the first with that key, or none of them
//   io.includes(condition)         whether to describe the fields that follow; readers try
//   io.lacks(key)                  whether the object that is read has no such key
// In the store, structs, lists of structs, objects and parts have tables of their own.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <type_traits>

#include "core/model/model_shape.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The range that a number in a file must be in: from 0 on, any, from 0 to 1, from 0 to kMostMfu.
enum class NumberRange { positive, any, fraction, utilization };

/// Axes of the dense grid that are keys of a configuration only where they have several ranks.
inline constexpr std::array kOtherDenseAxes{Axis::pp, Axis::cp, Axis::tp};

/// V is T or const T.
template <class V, class T>
concept Is = std::same_as<std::remove_const_t<V>, T>;

void result_fields(auto& io, Is<RopeScaling> auto& v) {
  io("factor", v.factor);
  io("low_freq_factor", v.low_freq_factor);
  io("high_freq_factor", v.high_freq_factor);
  io("original_max_seq_len", v.original_max_seq_len);
  io.sparse("kind", v.kind);
  io.sparse("attention_factor", v.attention_factor);
  io.sparse("short_factors", v.short_factors);
  io.sparse("long_factors", v.long_factors);
  io.sparse("exact_range", v.exact_range);
  io.sparse("score_magnitude", v.score_magnitude);
}

/// `parameters`: elements of the whole model.
void shape_fields(auto& io, Is<ModelShape> auto& v, std::int64_t parameters) {
  io.later("family", v.family);
  io("layers", v.layers);
  io("hidden", v.hidden);
  io("heads", v.heads);
  io("kv_heads", v.kv_heads);
  io("head_dim", v.head_dim);
  io("intermediate", v.intermediate);
  io("vocab", v.vocab);
  io("max_seq_len", v.max_seq_len);
  io("tied_embeddings", v.tied_embeddings);
  io("qkv_bias", v.qkv_bias);
  io("qk_norm", v.qk_norm);
  io("rms_norm_eps", v.rms_norm_eps);
  io("rope_theta", v.rope_theta);
  io("rope_scaling", v.rope_scaling);
  io.sparse("rotary_dim", v.rotary_dim);
  io.sparse("sliding_window", v.sliding_window);
  if (io.includes(v.sliding_window != 0)) io.later("sliding_layers", v.sliding_layers);
  io.sparse("local_rope_theta", v.local_rope_theta);
  io.sparse("nope_layers", v.nope_layers);
  io.sparse("query_scalar", v.query_scalar);
  io.sparse("score_cap", v.score_cap);
  io.sparse("logit_cap", v.logit_cap);
  io.sparse("value_dim", v.value_dim);
  io.sparse("query_latent", v.query_latent);
  io.sparse("kv_latent", v.kv_latent);
  io.sparse("latent_norm_eps", v.latent_norm_eps);
  io.sparse("index_heads", v.index_heads);
  if (io.includes(v.index_heads != 0)) io.later("index_dim", v.index_dim);
  io.sparse("shared_index_layers", v.shared_index_layers);
  io.sparse("fused_weights", v.fused_weights);
  io.sparse("activation", v.activation);
  io.sparse("scaled_embedding", v.scaled_embedding);
  io.sparse("embedding_multiplier", v.embedding_multiplier);
  io.sparse("residual_multiplier", v.residual_multiplier);
  io.sparse("logit_multiplier", v.logit_multiplier);
  io.sparse("output_norms", v.output_norms);
  io.sparse("zero_centered_norms", v.zero_centered_norms);
  if (!io.includes(v.experts != 0)) return;
  io.derived("active_parameters", [&] { return parameters - unchosen_elements(v); });
  io.later("experts", v.experts);
  io.later("experts_per_token", v.experts_per_token);
  io.later("expert_intermediate", v.expert_intermediate);
  io.sparse("shared_intermediate", v.shared_intermediate);
  io.sparse("dense_layers", v.dense_layers);
  io.sparse("normalised_routing", v.normalised_routing);
  io.sparse("router_aux_loss", v.router_aux_loss);
  io.sparse("router_z_loss", v.router_z_loss);
  io.sparse("sigmoid_routing", v.sigmoid_routing);
  io.sparse("routed_scale", v.routed_scale);
  io.sparse("router_groups", v.router_groups);
  if (io.includes(v.router_groups != 0)) io.later("chosen_groups", v.chosen_groups);
  if (!io.includes(v.swiglu_limit.num != 0)) return;
  io.later("swiglu_alpha", v.swiglu_alpha);
  io.later("swiglu_limit", v.swiglu_limit);
}

/// The names of the run.
void head_fields(auto& io, Is<RunFigures> auto& v) {
  io("tool", v.tool);
  io("version", v.version);
  io("commit", v.commit);
  io("run_id", v.run_id);
  io("name", v.name);
  io("created_unix_ns", v.created_unix_ns);
  io("plan_hash", v.plan_hash);
}

void result_fields(auto& io, Is<ClusterSummary> auto& v) {
  io("gpu", v.gpu);
  io.figure(ResultFigure::gpus, v.gpus);
  io.figure(ResultFigure::nodes, v.nodes);
  io.figure(ResultFigure::gpus_per_node, v.gpus_per_node);
  io("network", v.network);
}

void result_fields(auto& io, Is<PoolSummary> auto& v) {
  io("name", v.name);
  io("height_bytes", v.height);
  io("lower_bound_bytes", v.lower_bound);
}

void result_fields(auto& io, Is<PlanSummary> auto& v) {
  io("units", v.units);
  io("groups", v.groups);
  io("ops", v.ops);
  io("events", v.events);
  io("waits", v.waits);
  io("buffers", v.buffers);
  io("collectives", v.collectives);
  io("segments", v.segments);
  io("max_live_full_weights", v.max_live_full_weights);
  io("max_live_full_gradients", v.max_live_full_gradients);
  io("allocator", v.allocator);
  io("pools", v.pools);
  io("padding_bytes", v.padding);
  io.positive("model_flops", v.model_flops);
}

void result_fields(auto& io, Is<MemoryErrors> auto& v) {
  io("allocated", v.allocated);
  io("reserved", v.reserved);
  io("device", v.device);
  io("source", v.source);
}

void result_fields(auto& io, Is<CachedMemory> auto& v) {
  io("reserved_bytes", v.reserved);
  io("device_bytes", v.device);
  io("alloc_retries", v.retries);
  // Before `verdict_certain` existed, `fits_certain` had its meaning.
  const bool is_older = io.lacks("verdict_certain");
  if (!is_older) io("fits_certain", v.fits_certain);
  io(is_older ? "fits_certain" : "verdict_certain", v.certain);
  io.sparse("errors", v.errors);
}

template <class Io>
void memory_fields(Io& io, Is<MemorySummary> auto& v, Is<Predicted> auto& predicted) {
  io.figure(ResultFigure::capacity_bytes, v.capacity);
  io.figure(ResultFigure::allocated_bytes, v.allocated);
  io.figure(ResultFigure::peak_bytes, v.peak);
  if constexpr (Io::kIsJson) io("live_peak_bytes", predicted.live_peak);
  io("peak_op", predicted.peak_op);
  io.figure(ResultFigure::fits, v.fits);
  io.figure(ResultFigure::reserve_bytes, v.reserve);
  io.figure(ResultFigure::headroom_bytes, v.headroom, NumberRange::any);
  io.object(ResultFigure::categories, [&](auto& categories) {
    for (std::size_t i = 0; i < v.categories.size(); ++i)
      categories(Names<Category>::values.at(i), v.categories.at(i));
  });
  io("runtime_source", v.runtime_source);
  io.part("reserved_bytes", v.cached);
}

template <class Io>
void result_fields(Io& io, Is<ExposedUnit> auto& v) {
  io("unit", v.unit);
  io("exposed_ns", v.exposed);
  if constexpr (Io::kIsJson) io.sparse("mostly", v.mostly);
}

void result_fields(auto& io, Is<HostTime> auto& v) {
  io("host_issue_ns", v.issue);
  io("host_bound_ns", v.bound);
}

void time_fields(auto& io, Is<TimeSummary> auto& v, Is<Predicted> auto& predicted) {
  io.figure(ResultFigure::step_ns, v.step);
  io.figure(ResultFigure::compute_ns, v.compute);
  io.figure(ResultFigure::communication_ns, v.communication);
  io.figure(ResultFigure::exposed_communication_ns, v.exposed_communication);
  io.figure(ResultFigure::idle_ns, v.idle);
  io.figure(ResultFigure::contention_ns, v.contention);
  io.figure(ResultFigure::overlap_fraction, v.overlap_fraction, NumberRange::fraction);
  io.figure(ResultFigure::median_step_ns, v.median_step);
  io.figure(ResultFigure::tokens_per_second_per_gpu, v.tokens_per_second_per_gpu);
  io.figure(ResultFigure::tflops_per_gpu, v.tflops_per_gpu);
  io.figure(ResultFigure::mfu, v.mfu, NumberRange::utilization);
  io("exposed_units", predicted.exposed_units);
  io.part("host_issue_ns", v.host);
}

template <class Io>
void result_fields(Io& io, Is<TrafficSummary> auto& v) {
  io.figure(ResultFigure::all_gather_bytes, v.all_gather);
  io.figure(ResultFigure::reduce_scatter_bytes, v.reduce_scatter);
  io.figure(ResultFigure::all_reduce_bytes, v.all_reduce);
  if constexpr (Io::kIsJson) io.sparse("send_bytes", v.sends);
}

void result_fields(auto& io, Is<TrustSummary> auto& v) {
  io("tier", v.trust_level);
  io("step_error", v.step_error);
  io("text", v.text);
}

void result_fields(auto& io, Is<RankReport> auto& v) {
  io("ranks", v.ranks);
  io("simulated", v.simulated);
  io("slowest", v.slowest);
  io("compute_mean_ns", v.compute_mean);
  io("compute_most_ns", v.compute_most);
  io("waiting_mean_ns", v.waiting_mean);
  io("variation", v.variation);
}

void result_fields(auto& io, Is<ClassReport> auto& v) {
  io("role", v.role);
  io("ranks", v.ranks);
  io("allocated_bytes", v.allocated);
  io("peak_bytes", v.peak);
  io("host_bytes", v.host);
  io("step_ns", v.step);
  io("compute_ns", v.compute);
  io("exposed_communication_ns", v.exposed_communication);
  io("idle_ns", v.idle);
  io("send_bytes", v.sends);
  io.sparse("fullest", v.fullest);
  io.sparse("busiest", v.busiest);
}

void result_fields(auto& io, Is<RoutingRoom> auto& v) {
  io("room_rows", v.rows);
  io("needed_rows", v.needed);
  io("room_holds", v.holds);
  io.decimal("least_capacity_factor", v.least_factor);
  io("least_allocated_bytes", v.least_allocated);
  io("least_fits", v.least_fits);
}

void result_fields(auto& io, Is<RoutingReport> auto& v) {
  io("routing", v.routing);
  io("slowest_rank", v.slowest_rank);
  io.sparse("slowest_block", v.slowest_block);
  io("rows", v.rows);
  io("mean_rows", v.mean_rows);
  io("tiled_rows", v.tiled_rows);
  io("imbalance", v.imbalance);
  io("busiest_expert", v.busiest_expert);
  io("expert_imbalance", v.expert_imbalance);
  io.part("room_rows", v.room);
}

void result_fields(auto& io, Is<TrainingEstimate> auto& v) {
  io("tokens", v.tokens);
  io("seconds", v.seconds);
  io("gpu_hours", v.gpu_hours);
  io.sparse("cost", v.cost);
}

void result_fields(auto& io, Is<WouldFit> auto& v) {
  io("flags", v.flags);
  io("memory_bytes", v.memory);
  io("step_ns", v.step);
  io("tokens_per_step", v.tokens);
}

void result_fields(auto& io, Is<OtherEngine> auto& v) {
  io("engine", v.engine);
  if (!v.reason.empty()) return io("not_predicted", v.reason);
  io("fits", v.fits);
  io("fits_certain", v.certain);
  io("device_bytes", v.memory);
  io("capacity_bytes", v.capacity);
  io("step_ns", v.step);
  io("recompute", v.recompute);
}

/// The keys that only such results have.
void result_fields(auto& io, Is<Predicted> auto& v) {
  if (io.includes(!v.trust.trust_level.empty())) io("trust", v.trust);
  io.sparse("ranks", v.ranks);
  io.sparse("classes", v.classes);
  io.sparse("routing", v.routing);
  io.written("would_fit", v.would_fit);
  io.sparse("training", v.training);
  io.written("other_engines", v.other_engines);
}

void result_fields(auto& io, Is<ResumedFrom> auto& v) {
  io("step", v.step);
  io("run_id", v.run_id);
}

void result_fields(auto& io, Is<StepResult> auto& v) {
  io("step", v.step);
  io("loss", v.loss, NumberRange::any);
  io("grad_norm", v.grad_norm, NumberRange::any);
  io.known("step_ns", v.duration, v.timed);
  io.sparse("tokens", v.tokens);
  io.sparse("learning_rate", v.learning_rate, NumberRange::any);
  io.sparse("loss_scale", v.loss_scale, NumberRange::any);
  io.sparse("skipped", v.skipped);
}

void result_fields(auto& io, Is<EvaluationResult> auto& v) {
  io("step", v.step);
  io.real("loss", v.loss);
  io("tokens", v.tokens);
}

void result_fields(auto& io, Is<Measured> auto& v) {
  io.sparse("resumed", v.resumed);
  io.sparse("classes", v.classes);
  io.derived("skipped_steps",
             [&] { return std::ranges::count(v.steps, true, &StepResult::skipped); });
  io("steps", v.steps);
  io.sparse("evaluations", v.evaluations);
}

/// A struct with a description.
template <class T>
concept Described = requires(int& io, T& value) { result_fields(io, value); };

}  // namespace mfsdp
