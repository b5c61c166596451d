// The axes that random configurations must reach: each axis of the planner's choices, its values,
// and how often they were drawn.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.hpp"
#include "tests/support/random_configurations.hpp"

namespace mfsdp::test {

/// any_config() with every dtype that the planner has, exact sums, and whole units frozen beside
/// parts of others.
inline rc::Gen<PlanConfig> any_planner_config(Models models = Models::all) {
  return rc::gen::exec([models] {
    using enum DType;
    PlanConfig config = *any_config(models);
    if (!config.has_lora() && *rc::gen::inRange(0, 10) == 0)
      config.frozen = names_in(config.model.family, {"embed_tokens", "layernorm"});
    if (!config.has_fp8()) config.param_dtype = *rc::gen::element(bf16, bf16, fp16, fp32, fp64);
    drop_impossible_fp8(config);
    config.loss_scale = {};
    config.loss_scale_window = 0;
    if (config.param_dtype == fp64) {
      config.main_dtype = config.grad_dtype = config.reduce_dtype = fp64;
      config.state_dtype = StateDtype::full;
      if (config.reduce == Transport::symmetric) config.reduce = Transport::copy_engine;
      return config;
    }
    config.main_dtype = *rc::gen::element(fp32, config.param_dtype);
    config.reduce_dtype = *rc::gen::element(fp32, bf16, fp16);
    if (!reduces_alike(config)) config.reduce_dtype = config.grad_dtype;
    if (*rc::gen::inRange(0, 4) == 0) {
      config.exact_sums = true;
      drop_impossible_fp8(config);
      config.grad_dtype = config.reduce_dtype = fp32;
      config.logits_chunk = config.seq_len * *rc::gen::inRange<std::int64_t>(1, 3);
    }
    if (config.param_dtype == fp16 && *rc::gen::inRange(0, 3) > 0) {
      config.loss_scale = {.num = 1'024};
      if (!config.exact_sums) config.loss_scale_window = *rc::gen::element<std::int64_t>(0, 2'000);
    }
    return config;
  });
}

/// One axis of configurations.
struct PlannerAxis {
  std::string name;
  std::vector<std::string> values;
  std::function<std::string(const Program&)> value_of;
};

namespace axes {

template <class Enum>
std::vector<std::string> names_of() {
  return {Names<Enum>::values.begin(), Names<Enum>::values.end()};
}

inline PlannerAxis flag(std::string name, std::function<bool(const Program&)> is_set) {
  return {.name = std::move(name), .values = {"no", "yes"}, .value_of = [is_set](const Program& p) {
            return is_set(p) ? "yes" : "no";
          }};
}

/// Numbers from `low` to `high`.
inline PlannerAxis number(std::string name, std::int64_t low, std::int64_t high,
                          std::function<std::int64_t(const PlanConfig&)> of) {
  PlannerAxis axis{.name = std::move(name), .values = {}, .value_of = [of](const Program& p) {
                     return std::to_string(of(p.config));
                   }};
  for (std::int64_t value = low; value <= high; ++value)
    axis.values.push_back(std::to_string(value));
  return axis;
}

template <class Enum>
PlannerAxis choice(std::string name, std::function<Enum(const PlanConfig&)> of,
                   std::vector<std::string> values = names_of<Enum>()) {
  return {.name = std::move(name), .values = std::move(values), .value_of = [of](const Program& p) {
            return std::string(to_string(of(p.config)));
          }};
}

inline bool has_empty_shard(const Program& program) {
  return std::ranges::any_of(program.groups, [&](const Group& group) {
    const std::int64_t part = group.elements / program.config.mesh.size(Axis::dp_shard);
    for (std::int64_t rank = 0; rank < program.config.mesh.size(Axis::dp_shard); ++rank)
      if (std::ranges::none_of(group.parameters, [&](const PlacedParameter& p) {
            return p.offset < (rank + 1) * part && p.offset + p.elements() > rank * part;
          }))
        return true;
    return false;
  });
}

inline bool has_padding(const Program& program) {
  return std::ranges::any_of(
      program.groups, [](const Group& group) { return group.used_elements() < group.elements; });
}

inline std::string frozen_part(const Program& program) {
  if (program.config.frozen.empty()) return "nothing";
  bool whole = false;
  bool part = false;
  for (const PlanUnit& unit : program.units) {
    const auto of_unit = [&](bool trains) {
      return std::ranges::any_of(program.groups, [&](const Group& group) {
        return group.unit == unit.id && group.requires_grad == trains;
      });
    };
    whole = whole || (of_unit(false) && !of_unit(true));
    part = part || (of_unit(false) && of_unit(true));
  }
  return whole && part ? "units and parts" : whole ? "units" : "parts of units";
}

inline std::string outer_axis(const Program& program) {
  if (program.config.mesh.size(Axis::dp_outer) == 1) return "one";
  return program.config.outer_strategy == Strategy::optim ? "HFSDP" : "HSDP";
}

inline std::string recompute(const Program& program) {
  const RecomputePolicy& policy = program.config.recompute;
  return std::string(to_string(policy.kind)) + (policy.full_blocks > 0 ? " of some blocks" : "");
}

inline std::string segments(const Program& program) {
  std::string names;
  for (const Segment& segment : program.plans[0].segments)
    names += (names.empty() ? "" : " ") + segment.name +
             (segment.repeat > 1 ? " x " + std::to_string(segment.repeat) : "");
  return names;
}

inline std::string adapters(const Program& program) {
  const PlanConfig& config = program.config;
  if (!config.has_lora()) return "none";
  if (config.model.fused_weights) return "of fused layers";
  return std::ssize(config.lora_targets) == std::ssize(lora_targets(config.model))
             ? "of all layers"
             : "of some layers";
}

inline std::string experts(const Program& program) {
  const ModelShape& model = program.config.model;
  if (model.experts == 0) return "none";
  return model.dense_layers.empty() ? "in all blocks" : "in some";
}

inline std::string dealt_experts(const Program& program) {
  const PlanConfig& config = program.config;
  if (!config.is_expert_parallel()) return "none";
  const std::string of = config.model.family == Family::gpt_oss  ? "with biases"
                         : config.model.shared_intermediate != 0 ? "beside a shared one"
                                                                 : "alone";
  return of + (config.capacity_factor.num == 0 ? "" : ", capped");
}

inline std::string logits_chunks(const Program& program) {
  const PlanConfig& config = program.config;
  if (config.tokens_per_microbatch() <= config.logits_chunk) return "one";
  return config.tokens_per_microbatch() % config.logits_chunk == 0 ? "equal" : "last is shorter";
}

inline std::string heads(const Program& program) {
  const ModelShape& model = program.config.model;
  if (model.kv_heads == model.heads) return "as many";
  return model.kv_heads == 1 ? "one" : "grouped";
}

inline std::string windows(const Program& program) {
  const ModelShape& model = program.config.model;
  if (model.sliding_layers.empty()) return "none";
  if (model.window_of(true, program.config.seq_len) == 0) return "that leave out nothing";
  return std::ssize(model.sliding_layers) == model.layers ? "of all layers" : "of some";
}

inline std::string loss_scale_of(const Program& program) {
  if (!program.config.scales_loss()) return "none";
  return program.config.loss_scale_window == 0 ? "fixed" : "dynamic";
}

inline std::string passes(const Program& program) {
  std::string names;
  for (const Plan& plan : program.plans) names += (names.empty() ? "" : ", ") + plan.name;
  return names;
}

}  // namespace axes

/// Every value is to be drawn; a value that is not listed is a fault of the list.
inline std::vector<PlannerAxis> planner_axes() {
  using namespace axes;
  using Config = PlanConfig;
  const std::vector<std::string> floats{"bf16", "fp16", "fp32", "fp64"};
  return {
      choice<Strategy>("strategy", [](const Config& c) { return c.strategy; }),
      {.name = "outer axis", .values = {"one", "HSDP", "HFSDP"}, .value_of = outer_axis},
      {.name = "ranks of dp_shard",
       .values = {"1", "2", "3", "7", "8", "64"},
       .value_of =
           [](const Program& p) { return std::to_string(p.config.mesh.size(Axis::dp_shard)); }},
      choice<LayoutRule>("layout", [](const Config& c) { return c.layout; }),
      flag("empty shard", has_empty_shard),
      flag("padding", has_padding),
      flag("tied weights", [](const Program& p) { return p.config.model.tied_embeddings; }),
      {.name = "frozen",
       .values = {"nothing", "parts of units", "units", "units and parts"},
       .value_of = frozen_part},
      {.name = "adapters",
       .values = {"none", "of some layers", "of all layers", "of fused layers"},
       .value_of = adapters},
      {.name = "recompute",
       .values = {"none", "selective", "full", "full of some blocks"},
       .value_of = recompute},
      {.name = "segments of a step",
       .values = {"only optimizer", "first last optimizer", "first middle last optimizer",
                  "first middle x 2 last optimizer", "first middle x 3 last optimizer"},
       .value_of = segments},
      {.name = "passes", .values = {"train, eval"}, .value_of = passes},
      choice<DType>(
          "weights", [](const Config& c) { return c.param_dtype; }, floats),
      choice<DType>(
          "main weights", [](const Config& c) { return c.main_dtype; }, floats),
      choice<DType>("main gradients", [](const Config& c) { return c.grad_dtype; },
                    {"bf16", "fp32", "fp64"}),
      choice<DType>(
          "gradients on the wire", [](const Config& c) { return c.reduce_dtype; }, floats),
      choice<Fp8Recipe>("FP8", [](const Config& c) { return c.fp8; }),
      choice<Fp8Accumulate>("sums of FP8", [](const Config& c) { return c.fp8_accumulate; }),
      choice<Fp8Amax>("amaxes of a history", [](const Config& c) { return c.fp8_amax; }),
      number("blocks kept in bf16", 0, 1, [](const Config& c) { return c.fp8_keep_bf16; }),
      flag("casts of weights gathered", [](const Program& p) { return p.config.fp8_gather; }),
      flag("exact sums", [](const Program& p) { return p.config.exact_sums; }),
      {.name = "loss scale", .values = {"none", "fixed", "dynamic"}, .value_of = loss_scale_of},
      choice<AllocatorPolicy>("allocator", [](const Config& c) { return c.allocator; }),
      choice<Optimizer>("optimizer", [](const Config& c) { return c.optimizer; }),
      choice<StateDtype>("states", [](const Config& c) { return c.state_dtype; }),
      flag("rates by name", [](const Program& p) { return !p.config.lr_scale.empty(); }),
      flag("decay by name", [](const Program& p) { return !p.config.no_decay.empty(); }),
      flag("clipping", [](const Program& p) { return p.config.clip.num != 0; }),
      flag("deterministic", [](const Program& p) { return p.config.deterministic; }),
      flag("masked documents", [](const Program& p) { return p.config.document_mask; }),
      number("prefetch", 0, 3, [](const Config& c) { return c.prefetch; }),
      number("gradient slots", 1, 4, [](const Config& c) { return c.grad_slots; }),
      choice<CollectivePlacement>("placement", [](const Config& c) { return c.placement; }),
      choice<Transport>("gathers by", [](const Config& c) { return c.gather; }),
      choice<Transport>("reductions by", [](const Config& c) { return c.reduce; }),
      number("blocks kept gathered", 0, 4, [](const Config& c) { return c.keep_gathered; }),
      number("layers", 1, 4, [](const Config& c) { return c.model.layers; }),
      number("micro-batch", 1, 3, [](const Config& c) { return c.micro_batch; }),
      {.name = "chunks of logits",
       .values = {"one", "equal", "last is shorter"},
       .value_of = logits_chunks},
      {.name = "key and value heads", .values = {"one", "grouped", "as many"}, .value_of = heads},
      flag("biases", [](const Program& p) { return p.config.model.qkv_bias; }),
      flag("norms of query and key", [](const Program& p) { return p.config.model.qk_norm; }),
      {.name = "windows",
       .values = {"none", "that leave out nothing", "of some", "of all layers"},
       .value_of = windows},
      flag("two tables of angles",
           [](const Program& p) { return p.config.model.has_other_rope(); }),
      flag("heads that turn in part",
           [](const Program& p) { return p.config.model.rotary_dim != 0; }),
      flag("own scale of scores",
           [](const Program& p) { return p.config.model.query_scalar.num != 0; }),
      flag("cap of scores", [](const Program& p) { return p.config.model.score_cap.num != 0; }),
      choice<Family>("family", [](const Config& c) { return c.model.family; }),
      {.name = "activation",
       .values = axes::names_of<Activation>(),
       .value_of =
           [](const Program& p) { return std::string(to_string(p.config.model.activation)); }},
      {.name = "experts", .values = {"none", "in all blocks", "in some"}, .value_of = experts},
      {.name = "experts that are dealt out",
       .values = {"none", "alone", "with biases", "beside a shared one", "alone, capped",
                  "with biases, capped", "beside a shared one, capped"},
       .value_of = dealt_experts},
      {.name = "strategy of experts dealt out",
       .values = {"as the rest", "no_shard", "optim", "optim_grads", "optim_grads_params"},
       .value_of =
           [](const Program& p) {
             const auto& own = p.config.expert_strategy;
             return own ? std::string(to_string(*own)) : std::string("as the rest");
           }},
      {.name = "experts dealt out beside groups",
       .values = {"one", "HSDP", "HFSDP"},
       .value_of =
           [](const Program& p) { return p.config.is_expert_parallel() ? outer_axis(p) : "one"; }},
      flag("experts that a token does not choose",
           [](const Program& p) {
             return p.config.model.experts_per_token < p.config.model.experts;
           }),
      flag("an expert that all tokens share",
           [](const Program& p) { return p.config.model.shared_intermediate != 0; }),
      flag("weights of experts that sum to 1",
           [](const Program& p) { return p.config.model.normalised_routing; }),
      flag("loss of experts' balance",
           [](const Program& p) { return p.config.model.router_aux_loss.num != 0; }),
      flag("loss of routers' logits",
           [](const Program& p) { return p.config.model.router_z_loss.num != 0; }),
      flag("latent vectors of queries",
           [](const Program& p) { return p.config.model.query_latent != 0; }),
      flag("routing by sigmoids", [](const Program& p) { return p.config.model.sigmoid_routing; }),
      flag("groups of experts", [](const Program& p) { return p.config.model.router_groups != 0; }),
      flag("experts' clamped activation",
           [](const Program& p) { return p.config.model.swiglu_limit.num != 0; }),
      flag("norms of what is added", [](const Program& p) { return p.config.model.output_norms; }),
      flag("norms by 1 + weight",
           [](const Program& p) { return p.config.model.zero_centered_norms; }),
      flag("scaled embedding", [](const Program& p) { return p.config.model.scaled_embedding; }),
      flag("cap of logits", [](const Program& p) { return p.config.model.logit_cap.num != 0; }),
  };
}

class AxisCounts {
 public:
  void count(const Program& program) {
    for (const PlannerAxis& axis : axes_) ++counts_[axis.name][axis.value_of(program)];
  }

  /// One line for each axis: values with how often they were drawn.
  [[nodiscard]] std::string table() const {
    std::string text;
    for (const PlannerAxis& axis : axes_) {
      text += fmt::format("{:<24}", axis.name);
      for (const std::string& value : axis.values)
        text += fmt::format(" {} {},", value, times(axis, value));
      text.back() = '\n';
    }
    return text;
  }

  /// Values that were never drawn, and drawn ones that no axis lists.
  [[nodiscard]] std::vector<std::string> gaps() const {
    std::vector<std::string> gaps;
    for (const PlannerAxis& axis : axes_) {
      for (const std::string& value : axis.values)
        if (times(axis, value) == 0) gaps.push_back(axis.name + ": never " + value);
      if (const auto drawn = counts_.find(axis.name); drawn != counts_.end())
        for (const auto& [value, count] : drawn->second)
          if (std::ranges::find(axis.values, value) == axis.values.end())
            gaps.push_back(axis.name + ": not listed: " + value);
    }
    return gaps;
  }

 private:
  [[nodiscard]] std::int64_t times(const PlannerAxis& axis, const std::string& value) const {
    const auto drawn = counts_.find(axis.name);
    if (drawn == counts_.end()) return 0;
    const auto found = drawn->second.find(value);
    return found == drawn->second.end() ? 0 : found->second;
  }

  std::vector<PlannerAxis> axes_ = planner_axes();
  std::map<std::string, std::map<std::string, std::int64_t>> counts_;
};

}  // namespace mfsdp::test
