// The fields of the plan's JSON: each struct lists its fields in sorted order. One description
// serves writing (canonical JSON) and reading (with the place of every error).
//
// `Io` offers  io("key", field)  for a field that is always present, and
// io.sparse("key", field)  for one that is left out while null, false or empty.
#pragma once

#include "core/plan/plan_file.hpp"

namespace mfsdp::describe {

/// A fraction that is written as an integer if it is one. It may be negative; other fractions may
/// not.
struct Number {
  Rational& value;
};

/// An integer that may be negative.
struct Signed {
  std::int64_t& value;
};

void fields(auto& io, Rational& v) {
  io("den", v.den);
  io("num", v.num);
}

void fields(auto& io, RopeScaling& v) {
  io.sparse("attention_factor", v.attention_factor);
  io.sparse("exact_range", v.exact_range);
  io("factor", v.factor);
  io("high_freq_factor", v.high_freq_factor);
  io.sparse("kind", v.kind);
  io.sparse("long_factors", v.long_factors);
  io("low_freq_factor", v.low_freq_factor);
  io("original_max_seq_len", v.original_max_seq_len);
  io.sparse("score_magnitude", v.score_magnitude);
  io.sparse("short_factors", v.short_factors);
}

void fields(auto& io, ModelShape& v) {
  io.sparse("activation", v.activation);
  io.sparse("chosen_groups", v.chosen_groups);
  io.sparse("dense_layers", v.dense_layers);
  io.sparse("embedding_multiplier", v.embedding_multiplier);
  io.sparse("expert_intermediate", v.expert_intermediate);
  io.sparse("experts", v.experts);
  io.sparse("experts_per_token", v.experts_per_token);
  io("family", v.family);
  io.sparse("fused_weights", v.fused_weights);
  io("head_dim", v.head_dim);
  io("heads", v.heads);
  io("hidden", v.hidden);
  io.sparse("index_dim", v.index_dim);
  io.sparse("index_heads", v.index_heads);
  io("intermediate", v.intermediate);
  io("kv_heads", v.kv_heads);
  io.sparse("kv_latent", v.kv_latent);
  io.sparse("latent_norm_eps", v.latent_norm_eps);
  io("layers", v.layers);
  io.sparse("local_rope_theta", v.local_rope_theta);
  io.sparse("logit_cap", v.logit_cap);
  io.sparse("logit_multiplier", v.logit_multiplier);
  io("max_seq_len", v.max_seq_len);
  io.sparse("nope_layers", v.nope_layers);
  io.sparse("normalised_routing", v.normalised_routing);
  io.sparse("output_norms", v.output_norms);
  io.sparse("qk_norm", v.qk_norm);
  io.sparse("qkv_bias", v.qkv_bias);
  io.sparse("query_latent", v.query_latent);
  io.sparse("query_scalar", v.query_scalar);
  io.sparse("residual_multiplier", v.residual_multiplier);
  io("rms_norm_eps", v.rms_norm_eps);
  io("rope_scaling", v.rope_scaling);
  io("rope_theta", v.rope_theta);
  io.sparse("rotary_dim", v.rotary_dim);
  io.sparse("routed_scale", v.routed_scale);
  io.sparse("router_aux_loss", v.router_aux_loss);
  io.sparse("router_groups", v.router_groups);
  io.sparse("router_z_loss", v.router_z_loss);
  io.sparse("scaled_embedding", v.scaled_embedding);
  io.sparse("score_cap", v.score_cap);
  io.sparse("shared_index_layers", v.shared_index_layers);
  io.sparse("shared_intermediate", v.shared_intermediate);
  io.sparse("sigmoid_routing", v.sigmoid_routing);
  io.sparse("sliding_layers", v.sliding_layers);
  io.sparse("sliding_window", v.sliding_window);
  io.sparse("swiglu_alpha", v.swiglu_alpha);
  io.sparse("swiglu_limit", v.swiglu_limit);
  io.sparse("tied_embeddings", v.tied_embeddings);
  io.sparse("value_dim", v.value_dim);
  io("vocab", v.vocab);
  io.sparse("zero_centered_norms", v.zero_centered_norms);
}

void fields(auto& io, MeshAxis& v) {
  io("axis", v.axis);
  io("size", v.size);
}

void fields(auto& io, Mesh& v) {
  io("dense", v.dense);
  io.sparse("experts", v.experts);
}

void fields(auto& io, RecomputePolicy& v) {
  io("full_blocks", v.full_blocks);
  io("kind", v.kind);
}

void fields(auto& io, PlanConfig& v) {
  io("allocator", v.allocator);
  io.sparse("base_dtype", v.base_dtype);
  io.sparse("capacity_factor", v.capacity_factor);
  io("clip", v.clip);
  io.sparse("cp_comm", v.cp_comm);
  io.sparse("deterministic", v.deterministic);
  io.sparse("document_mask", v.document_mask);
  io.sparse("exact_sums", v.exact_sums);
  io.sparse("expert_parallel", v.expert_parallel);
  io.sparse("expert_strategy", v.expert_strategy);
  io.sparse("fp8", v.fp8);
  io.sparse("fp8_accumulate", v.fp8_accumulate);
  io.sparse("fp8_amax", v.fp8_amax);
  io.sparse("fp8_gather", v.fp8_gather);
  io.sparse("fp8_history", v.fp8_history);
  io.sparse("fp8_keep_bf16", v.fp8_keep_bf16);
  io.sparse("frozen", v.frozen);
  io.sparse("gather", v.gather);
  io("grad_dtype", v.grad_dtype);
  io("grad_slots", v.grad_slots);
  io.sparse("keep_gathered", v.keep_gathered);
  io.sparse("layers_of_stages", v.layers_of_stages);
  io("layout", v.layout);
  io("logits_chunk", v.logits_chunk);
  io.sparse("lora_alpha", v.lora_alpha);
  io.sparse("lora_rank", v.lora_rank);
  io.sparse("lora_targets", v.lora_targets);
  io.sparse("loss_scale", v.loss_scale);
  io.sparse("loss_scale_window", v.loss_scale_window);
  io.sparse("lr_scale", v.lr_scale);
  io("main_dtype", v.main_dtype);
  io("mesh", v.mesh);
  io("micro_batch", v.micro_batch);
  io.sparse("microbatch_group", v.microbatch_group);
  io("microbatches", v.microbatches);
  io("model", v.model);
  io.sparse("no_decay", v.no_decay);
  io("optimizer", v.optimizer);
  io("outer_strategy", v.outer_strategy);
  io("param_dtype", v.param_dtype);
  io.sparse("placement", v.placement);
  io("prefetch", v.prefetch);
  io("recompute", v.recompute);
  io.sparse("reduce", v.reduce);
  io("reduce_dtype", v.reduce_dtype);
  io.sparse("schedule", v.schedule);
  io("seq_len", v.seq_len);
  io.sparse("state_dtype", v.state_dtype);
  io("strategy", v.strategy);
  io.sparse("virtual_stages", v.virtual_stages);
}

void fields(auto& io, RankStride& v) {
  io("axis", v.axis);
  io("bytes", v.bytes);
}

void fields(auto& io, Operand& v) {
  io("access", v.access);
  io("buffer", v.buffer);
  io("dtype", v.dtype);
  io("offset", v.offset);
  io.sparse("rank_strides", v.rank_strides);
  io("role", v.role);
  io("shape", v.shape);
  io.sparse("strides", v.strides);
}

void fields(auto& io, IndexStep& v) {
  Signed step{v.step};
  io("axis", v.axis);
  io("step", step);
}

void fields(auto& io, Attribute& v) {
  Number value{v.value};
  io("name", v.name);
  io.sparse("per", v.per);
  io("value", value);
}

void fields(auto& io, Kernel& v) {
  io("attributes", v.attributes);
  io("flops", v.flops);
  io("kind", v.kind);
  io("operands", v.operands);
}

void fields(auto& io, PeerStep& v) {
  Signed step{v.step};
  io("axis", v.axis);
  io("step", step);
}

void fields(auto& io, Collective& v) {
  io("communicator", v.communicator);
  io("count", v.count);
  io("dtype", v.dtype);
  io.sparse("input", v.input);
  io("kind", v.kind);
  io.sparse("output", v.output);
  io.sparse("peer", v.peer);
  io("reduction", v.reduction);
}

void fields(auto& io, Copy& v) {
  io("input", v.input);
  io("kind", v.kind);
  io("output", v.output);
}

void fields(auto& io, Record& v) { io("event", v.event); }

void fields(auto& io, Binding& v) {
  io("distance", v.distance);
  io("record", v.record);
}

void fields(auto& io, Wait& v) {
  io("bindings", v.bindings);
  io("event", v.event);
}

void fields(auto& io, HostWait& v) {
  io("bindings", v.bindings);
  io("event", v.event);
}

void fields(auto& io, Acquire& v) { io("buffer", v.buffer); }

void fields(auto& io, Release& v) { io("buffer", v.buffer); }

void fields(auto& io, GroupBegin& v) { io("communicator", v.communicator); }

void fields(auto& io, GroupEnd& v) { io("communicator", v.communicator); }

void fields(auto& io, Op& v) {
  io("body", v.body);
  io.sparse("group", v.group);
  io("id", v.id);
  io.sparse("lag", v.lag);
  io("name", v.name);
  io("phase", v.phase);
  io("stream", v.stream);
  io.sparse("unit", v.unit);
}

void fields(auto& io, Stream& v) {
  io("id", v.id);
  io("role", v.role);
}

void fields(auto& io, Communicator& v) {
  io("axes", v.axes);
  io("id", v.id);
  io("purpose", v.purpose);
  io("size", v.size);
  io.sparse("transport", v.transport);
}

void fields(auto& io, Event& v) {
  io("id", v.id);
  io.sparse("instances", v.instances);
  io("name", v.name);
}

void fields(auto& io, Pool& v) {
  io("alignment", v.alignment);
  io("height", v.height);
  io("id", v.id);
  io("lower_bound", v.lower_bound);
  io("name", v.name);
  io.sparse("registered", v.registered);
  io("space", v.space);
}

void fields(auto& io, AxisPlacement& v) {
  io("axis", v.axis);
  io.sparse("dim", v.dim);
  io("kind", v.kind);
}

void fields(auto& io, HeldGroup& v) {
  io("group", v.group);
  io("offset", v.offset);
}

void fields(auto& io, Contents& v) {
  io.sparse("dealt", v.dealt);
  io.sparse("groups", v.groups);
  io("kind", v.kind);
  io.sparse("placement", v.placement);
  io.sparse("port", v.port);
  io.sparse("state", v.state);
}

void fields(auto& io, Buffer& v) {
  io("category", v.category);
  io("dtype", v.dtype);
  io.sparse("holds", v.holds);
  io("id", v.id);
  io.sparse("instances", v.instances);
  io("name", v.name);
  io("offset", v.offset);
  io.sparse("persistent", v.persistent);
  io("pool", v.pool);
  io("size", v.size);
  io.sparse("slot_class", v.slot_class);
  io.sparse("unit", v.unit);
}

void fields(auto& io, PlacedParameter& v) {
  io.sparse("decay", v.decay);
  io("name", v.name);
  io("offset", v.offset);
  io.sparse("rate", v.rate);
  io("role", v.role);
  io("shape", v.shape);
}

void fields(auto& io, Group& v) {
  io("chunk", v.chunk);
  io.sparse("cut", v.cut);
  io("dtype", v.dtype);
  io("elements", v.elements);
  io.sparse("fp8", v.fp8);
  io.sparse("gradient", v.gradient);
  io("id", v.id);
  io.sparse("optimizer", v.optimizer);
  io("parameters", v.parameters);
  io.sparse("quantised", v.quantised);
  io.sparse("reduce", v.reduce);
  io.sparse("requires_grad", v.requires_grad);
  io.sparse("shard", v.shard);
  io.sparse("state", v.state);
  io("unit", v.unit);
  io.sparse("weight", v.weight);
}

void fields(auto& io, PlanUnit& v) {
  io("id", v.id);
  io("kind", v.kind);
  io("name", v.name);
  io("position", v.position);
}

void fields(auto& io, Pass& v) {
  io("id", v.id);
  io("name", v.name);
  io("ops", v.ops);
}

void fields(auto& io, PassCall& v) {
  Signed lag_step{v.lag_step};
  io.sparse("lag", v.lag);
  io.sparse("lag_step", lag_step);
  io("pass", v.pass);
}

/// A segment has calls or ops of its own. The list of ops is written also if it is empty.
void fields(auto& io, Segment& v) {
  io.sparse("calls", v.calls);
  io.sparse("live_in", v.live_in);
  io.sparse("live_out", v.live_out);
  io("microbatches", v.microbatches);
  io("name", v.name);
  if (v.calls.empty()) io("ops", v.ops);
  io("repeat", v.repeat);
}

void fields(auto& io, Plan& v) {
  io("name", v.name);
  io.sparse("passes", v.passes);
  io.sparse("role", v.stated_role);
  io("segments", v.segments);
}

void fields(auto& io, MeshPlace& v) {
  io("axis", v.axis);
  io("index", v.index);
}

void fields(auto& io, RankClass& v) {
  io.sparse("at", v.at);
  io("ranks", v.ranks);
  io("role", v.role);
}

void fields(auto& io, ClassEntry& v) {
  io.sparse("at", v.rank_class.at);
  io.sparse("buffers", v.buffers);
  io.sparse("plans", v.plans);
  io.sparse("pools", v.pools);
  io("ranks", v.rank_class.ranks);
  io("role", v.rank_class.role);
}

void fields(auto& io, Meta& v) {
  io("hash", v.stored_hash);
  io("model_name", v.model_name);
  io("tool_version", v.tool_version);
}

/// A program, or the entries of several classes (PlanFile).
void program_fields(auto& io, Program& v, auto& classes) {
  io("buffers", v.buffers);
  io("classes", classes);
  io("communicators", v.communicators);
  io("config", v.config);
  io("events", v.events);
  io("groups", v.groups);
  io.meta("meta", v.meta);
  io("plans", v.plans);
  io("pools", v.pools);
  io.schema("schema");
  io("streams", v.streams);
  io("units", v.units);
}

void fields(auto& io, Program& v) { program_fields(io, v, v.classes); }

void fields(auto& io, PlanFile& v) { program_fields(io, v.common, v.classes); }

}  // namespace mfsdp::describe
