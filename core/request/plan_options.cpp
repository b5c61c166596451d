#include "core/request/plan_options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/model/lora.hpp"
#include "core/plan/context_parallel.hpp"
#include "core/plan/loss_scale.hpp"
#include "core/plan/pipeline.hpp"
#include "core/plan/tensor_parallel.hpp"
#include "core/plan/transport.hpp"

namespace mfsdp {
namespace {

/// Microbatches per rank and step: the global batch over all ranks' micro-batches.
Result<std::int64_t> microbatches_of(const CommonOptions& options, std::int64_t seq_len) {
  MFSDP_LET(given, global_batch_of(options, seq_len));
  if (!given) return 1;
  const std::int64_t batch = *given;
  const auto readers = std::max<std::int64_t>(
      options.gpus / options.context_parallel / options.tensor_parallel / options.pipeline_parallel,
      1);
  const std::int64_t unit = checked_mul(options.config.micro_batch, readers);
  if (batch % unit == 0) return batch / unit;
  const std::int64_t below = batch / unit * unit;
  const std::string nearest =
      below == 0 ? fmt::format("the smallest is {}", unit)
                 : fmt::format("the nearest are {} and {}", below, checked_add(below, unit));
  return fail(
      "--global-batch",
      fmt::format(
          "{} is not a multiple of --micro-batch {} times --gpus {}{}{}{}; {}", batch,
          options.config.micro_batch, options.gpus,
          options.context_parallel > 1 ? fmt::format(" / --cp {}", options.context_parallel) : "",
          options.tensor_parallel > 1 ? fmt::format(" / --tp {}", options.tensor_parallel) : "",
          options.pipeline_parallel > 1 ? fmt::format(" / --pp {}", options.pipeline_parallel) : "",
          nearest));
}

Result<Mesh> mesh_of(const CommonOptions& options) {
  const std::int64_t pp = options.pipeline_parallel;
  if (options.gpus % pp != 0)
    return fail("--pp", fmt::format("{} does not divide --gpus {}", pp, options.gpus));
  const std::int64_t of_stage = options.gpus / pp;
  if (of_stage % options.outer_dp != 0)
    return fail("--outer-dp",
                fmt::format("{} does not divide --gpus {}{}", options.outer_dp, options.gpus,
                            pp > 1 ? fmt::format(" / --pp {}", pp) : ""));
  if (options.config.outer_strategy == Strategy::optim && options.outer_dp == 1)
    return fail("--outer-strategy",
                "optim (HFSDP) needs --outer-dp 2 or more: it shards over the groups");
  const std::int64_t of_group = of_stage / options.outer_dp;
  const std::int64_t cp = options.context_parallel;
  const std::int64_t tp = options.tensor_parallel;
  const char* const where = options.outer_dp > 1 ? "in each group of --outer-dp"
                            : pp > 1             ? "of each stage (--gpus / --pp)"
                                                 : "of --gpus";
  for (const auto& [flag, ranks] : {std::pair{"--cp", cp}, std::pair{"--tp", tp}})
    if (of_group % ranks != 0)
      return fail(flag, fmt::format("{} does not divide {}, the ranks {}", ranks, of_group, where));
  if (of_group % checked_mul(cp, tp) != 0)
    return fail("--tp", fmt::format("{} x {} of --cp do not divide {}, the ranks {}", tp, cp,
                                    of_group, where));
  Mesh mesh = data_parallel_mesh(options.outer_dp, of_group / cp / tp);
  mesh.resize(Axis::cp, cp);
  mesh.resize(Axis::tp, tp);
  mesh.resize(Axis::pp, pp);
  // validate() reports numbers that do not divide them.
  const std::int64_t ep = options.config.expert_parallel;
  if (ep > 1 && of_group % ep == 0) mesh = with_expert_grid(std::move(mesh), ep);
  return mesh;
}

/// The LoRA targets in the order of layers, by default PEFT's. Targets that the model lacks come
/// last; validate() refuses them.
void normalise_lora(PlanConfig& config) {
  constexpr Rational alpha{8, 1};
  if (!config.has_lora()) return;
  if (config.lora_alpha.num == 0) config.lora_alpha = alpha;
  std::vector<std::string>& names = config.lora_targets;
  if (names.empty()) names = default_lora_targets(config.model);
  const bool all = names == std::vector<std::string>{"all-linear"};
  std::vector<std::string> ordered;
  for (const LoraTarget& target : lora_targets(config.model))
    if (all || std::ranges::find(names, target.name) != names.end())
      ordered.emplace_back(target.name);
  for (const std::string& name : names)
    if (!all && std::ranges::find(ordered, name) == ordered.end()) ordered.push_back(name);
  names = std::move(ordered);
}

/// fp16 weights have a dynamic loss scale unless flags ask for another.
void set_loss_scale(const CommonOptions& options, PlanConfig& config) {
  const bool asked = options.loss_scale.has_value();
  const bool dynamic =
      asked ? options.dynamic_loss_scale : config.param_dtype == DType::fp16 && !config.exact_sums;
  config.loss_scale = options.loss_scale.value_or(Rational{.num = dynamic ? loss_scale::first : 0});
  config.loss_scale_window = options.loss_scale_window.value_or(dynamic ? loss_scale::window : 0);
}

/// Registered memory is addressable inside one node only.
Result<void> check_windows(const PlanConfig& config, std::int64_t node) {
  const std::int64_t sharing = config.mesh.size(Axis::dp_shard);
  if (config.mesh.world_size() <= node || node % sharing == 0) return {};
  for (const auto& [flag, transport] :
       {std::pair{"--gather", config.gather}, std::pair{"--reduce", config.reduce}})
    if (traits_of(transport).uses_windows)
      return fail(flag, fmt::format("expected nccl where {} GPUs share the shards on nodes of {}: "
                                    "{} reaches the GPUs of one node (--outer-dp makes groups)",
                                    sharing, node, to_string(transport)));
  return {};
}

/// Rules of plans that do not depend on the number of GPUs, of which a search tries many.
Result<void> check_own_shares(const CommonOptions& options, const ModelShape& model,
                              std::int64_t seq_len) {
  if (options.context_parallel > 1)
    MFSDP_TRY(
        check_context_shares(model, seq_len, options.context_parallel, options.config.cp_comm));
  if (options.tensor_parallel > 1)
    MFSDP_TRY(check_tensor_shares(
        model, checked_mul(seq_len, options.config.micro_batch) / options.context_parallel,
        options.tensor_parallel));
  return {};
}

/// Normalises the configuration, so that equal meanings give equal configurations.
void normalise(PlanConfig& config) {
  // With one group nothing is placed on the outer axis.
  if (config.mesh.size(Axis::dp_outer) == 1) config.outer_strategy = Strategy::no_shard;
  if (config.recompute.full_blocks == config.model.layers) config.recompute.full_blocks = 0;
  if (config.expert_parallel == 1) config.expert_parallel = 0;
  if (config.virtual_stages == 1) config.virtual_stages = 0;
  if (config.microbatch_group == config.mesh.size(Axis::pp)) config.microbatch_group = 0;
  if (sequence_parts(config.mesh) == 1) config.cp_comm = ContextExchange::a2a;
  // With one rank of expt_dp nothing is placed on that axis.
  const bool as_the_rest =
      config.expert_strategy == config.strategy || config.mesh.size(Axis::expt_dp) == 1;
  if (config.is_expert_parallel() && as_the_rest) config.expert_strategy.reset();
  std::vector<std::string>& frozen = config.frozen;
  std::ranges::sort(frozen);
  const auto repeated = std::ranges::unique(frozen);
  frozen.erase(repeated.begin(), repeated.end());
  normalise_lora(config);
}

}  // namespace

Result<std::int64_t> count_nodes(std::int64_t gpus, std::int64_t gpus_per_node,
                                 std::string_view flag) {
  if (gpus <= gpus_per_node) return 1;
  if (gpus % gpus_per_node == 0) return gpus / gpus_per_node;
  const std::int64_t below = gpus / gpus_per_node * gpus_per_node;
  return fail(
      std::string(flag),
      fmt::format("{} GPUs do not fill nodes of {} (--gpus-per-node); expected at most {} "
                  "or a multiple of it: the nearest are {} and {}",
                  gpus, gpus_per_node, gpus_per_node, below, checked_add(below, gpus_per_node)));
}

std::int64_t seq_len_of(const CommonOptions& options, const ModelShape& model) {
  return options.seq_len.value_or(std::min(options.config.seq_len, model.max_seq_len));
}

Result<std::optional<std::int64_t>> global_batch_of(const CommonOptions& options,
                                                    std::int64_t seq_len) {
  if (!options.batch_tokens) return options.global_batch;
  const std::int64_t tokens = *options.batch_tokens;
  if (tokens >= seq_len && tokens % seq_len == 0) return tokens / seq_len;
  return fail("--global-batch",
              fmt::format("{} tokens are not a whole number of sequences of {} tokens (a number "
                          "without k or M counts sequences)",
                          tokens, seq_len));
}

Result<PlanConfig> make_plan_config(const CommonOptions& options, const ModelShape& model) {
  const std::int64_t seq_len = seq_len_of(options, model);
  if (options.mesh_rules == MeshRules::planner)
    MFSDP_TRY(check_own_shares(options, model, seq_len));
  Reasons reasons;
  // The reader of a cluster file checks the nodes there.
  if (!options.cluster) reasons.add(count_nodes(options.gpus, options.node_size(), "--gpus"));
  const auto mesh = mesh_of(options);
  const auto microbatches = microbatches_of(options, seq_len);
  reasons.add(mesh);
  reasons.add(microbatches);
  MFSDP_TRY(reasons.verdict());
  PlanConfig config = options.config;
  config.model = model;
  config.mesh = *mesh;
  config.microbatches = *microbatches;
  config.seq_len = seq_len;
  set_loss_scale(options, config);
  normalise(config);
  MFSDP_TRY(validate(config, options.mesh_rules));
  if (options.mesh_rules == MeshRules::planner || options.pipeline_parallel == 1)
    MFSDP_TRY(check_pipeline(config));
  if (!options.cluster) MFSDP_TRY(check_windows(config, options.node_size()));
  return config;
}

}  // namespace mfsdp
