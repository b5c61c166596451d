#include "sim/tool/asker.hpp"

#include <filesystem>
#include <system_error>

#include "sim/hardware/cluster.hpp"
#include "sim/hardware/cluster_file.hpp"
#include "sim/hardware/gpu.hpp"
#include "sim/hardware/power.hpp"
#include "sim/hardware/published_tables.hpp"
#include "sim/predict/routing_file.hpp"
#include "sim/tool/training.hpp"

namespace mfsdp {
namespace {

Result<Cluster> cluster_of(const SimOptions& options, std::int64_t gpus,
                           const std::filesystem::path& gpus_dir) {
  const CommonOptions& common = options.common;
  const auto plain = [&]() -> Result<Cluster> {
    if (common.cluster) return load_cluster(*common.cluster, gpus_dir, gpus, common.gpus_per_node);
    MFSDP_LET(gpu, load_gpu(common.gpu, gpus_dir));
    return make_cluster(gpu, gpus, common.node_size());
  };
  MFSDP_LET(cluster, plain());
  if (options.host_launch) cluster.gpu.host_launch = *options.host_launch;
  MFSDP_LET(priced, with_price_tables(std::move(cluster.gpu), options.tables));
  cluster.gpu = std::move(priced);
  if (options.power_limit) {
    MFSDP_LET(limited,
              with_power_limit(std::move(cluster.gpu), static_cast<double>(*options.power_limit)));
    cluster.gpu = std::move(limited);
  }
  if (options.network_gbps) return with_network(cluster, options.network_gbps->value());
  return std::move(cluster);
}

/// By a flag, or by a search for their number.
bool gpus_are_chosen(const SimOptions& options) {
  return options.find == Find::min_gpus || say_gpus(options.given);
}

RankVariation variation_of(const SimOptions& options) {
  RankVariation variation{.jitter = options.jitter,
                          .slow = {},
                          .seed = static_cast<std::uint64_t>(options.seed),
                          .by_rank = options.by_rank};
  for (const SlowRankFlag& slow : options.slow_ranks)
    variation.slow.push_back({.rank = slow.rank, .factor = slow.factor});
  return variation;
}

Result<Routing> routing_of(const RoutingFlag& flag) {
  if (!flag.is_file) {
    Routing routing{.text = flag.text, .zipf = {}, .counts = {}, .blocks = {}};
    if (flag.zipf) routing.zipf = flag.zipf->value();
    return routing;
  }
  std::error_code ignored;
  if (!std::filesystem::exists(flag.text, ignored))
    return fail("--routing", in_quotes(flag.text) +
                                 " is not balanced, zipf:S such as zipf:1.2, "
                                 "nor a file that is there");
  return load_routing(flag.text);
}

Bytes reserve_of(const Reserve& reserve, const Gpu& gpu) {
  if (const auto* bytes = std::get_if<Bytes>(&reserve)) return *bytes;
  const auto& part = std::get<Rational>(reserve);
  const Int128 whole = Int128{gpu.capacity.value} * part.num;
  return Bytes(checked_narrow((whole + part.den - 1) / part.den));
}

}  // namespace

Result<const Asker::Measured*> Asker::measured(const SimOptions& options, const Gpu& gpu) {
  const std::tuple key{options.common.gpu, options.common.cluster, options.tables};
  if (const auto known = measured_.find(key); known != measured_.end()) return &known->second;
  MFSDP_LET(tables, load_cost_tables(gpu.tables));
  Gpu unlimited = gpu;  // as its tables were measured
  unlimited.power.reset();
  const double error = kernel_error(tables, unlimited);
  return &(measured_[key] = {.tables = std::move(tables), .kernel_error = error});
}

Result<Asker::Priced> Asker::priced(const SimOptions& options, std::int64_t gpus) {
  const CommonOptions& common = options.common;
  std::optional<std::pair<std::int64_t, std::int64_t>> network;
  if (options.network_gbps) network.emplace(options.network_gbps->num, options.network_gbps->den);
  std::optional<std::int64_t> host;
  if (options.host_launch) host = options.host_launch->value;
  const Machine machine{
      common.gpu,       common.cluster.value_or(""), gpus,    common.gpus_per_node,
      options.tables,   options.power_limit,         network, host,
      options.attention};
  if (const auto known = priced_.find(machine); known != priced_.end()) return known->second;
  const std::filesystem::path gpus_dir = session_.scenarios / "gpus";
  MFSDP_LET(cluster, cluster_of(options, gpus, gpus_dir));
  MFSDP_TRY(check_prices(options, cluster.gpu.name, session_));
  MFSDP_LET(kind, measured(options, cluster.gpu));
  CostModel costs(cluster, kind->tables);
  if (options.attention == AttentionChoice::cudnn) costs = costs.with_library_attention();
  Priced priced{.costs = nullptr,
                .errors = price_errors(kind->tables, cluster, kind->kernel_error),
                .anchor = {}};
  if (options.anchor) {
    const auto costs_of = [&](std::int64_t count, std::int64_t per_node) -> Result<CostModel> {
      SimOptions measured = options;
      measured.power_limit.reset();  // it ran at its GPU's own
      if (!common.cluster) measured.common.gpus_per_node = per_node;
      MFSDP_LET(machine_of_run, cluster_of(measured, count, gpus_dir));
      return make_cost_model(machine_of_run);
    };
    MFSDP_LET(anchor, load_anchor(*options.anchor, costs_of));
    costs = costs.scaled(anchor.kernel_factor, anchor.collective_factor);
    priced.anchor = anchor;
  }
  priced.costs = std::make_shared<const CostModel>(std::move(costs));
  return priced_[machine] = std::move(priced);
}

Result<std::shared_ptr<const std::vector<OwnStep>>> Asker::own_steps() {
  if (own_steps_) return own_steps_;
  const std::filesystem::path file = session_.scenarios / "fidelity" / "own_steps.csv";
  std::error_code ignored;
  std::vector<OwnStep> steps;  // without the file no error is known
  if (std::filesystem::exists(file, ignored)) {
    MFSDP_LET(loaded, load_own_steps(file));
    steps = std::move(loaded);
  }
  own_steps_ = std::make_shared<const std::vector<OwnStep>>(std::move(steps));
  return own_steps_;
}

Result<ModelShape> Asker::shape(const SimOptions& options) {
  MFSDP_LET(named, requests_.model(options.common.model));
  return named->shape;
}

Result<Gpu> Asker::gpu(const SimOptions& options) const {
  MFSDP_LET(cluster, cluster_of(options, 1, session_.scenarios / "gpus"));
  return std::move(cluster.gpu);
}

Result<std::int64_t> Asker::gpus_per_node(const SimOptions& options) const {
  const CommonOptions& common = options.common;
  if (!common.cluster) return common.node_size();
  MFSDP_LET(file, read_cluster_file(*common.cluster, session_.scenarios / "clusters"));
  MFSDP_LET(kind, gpu(options));
  return file.gpus_per_node.value_or(common.gpus_per_node.value_or(kind.gpus_per_node));
}

Result<std::optional<std::int64_t>> Asker::limit_of_gpus(const SimOptions& options) const {
  if (say_gpus(options.given)) return options.common.gpus;
  return requests_.gpus_of_cluster(options.common);
}

namespace {

/// What engine_config() takes as a default, and is no choice of the engine's where it was asked
/// for.
Result<void> check_given(const SimOptions& options, const PlanConfig& config) {
  const EngineTraits& traits = traits_of(options.engine);
  if (traits.runs_plans) return {};
  if (traits.shards_states_alone && contains(options.given, "--strategy") &&
      config.strategy != Strategy::optim)
    return does_otherwise(options.engine, "--strategy", traits.shards);
  if (contains(options.given, "--recompute") && config.recompute.kind == Recompute::selective &&
      !recomputes_modules(options.engine, config.model)) {
    if (!traits.has_recomputation) return no_recomputation(options.engine);
    return cannot_predict(
        options.engine, "--recompute",
        "selective recomputation (by operator, torchtitan's default; of every n-th block)",
        "its memory and step lie between those of none and full, which can be asked for");
  }
  return {};
}

}  // namespace

Result<Question> Asker::question(const SimOptions& options) {
  MFSDP_LET(request, requests_.read(options.common, {.gpus_are_chosen = gpus_are_chosen(options)}));
  return question(request, options);
}

Result<Question> Asker::question(const PlanRequest& request, const SimOptions& options) {
  MFSDP_TRY(check_given(options, request.config));
  Question question;
  question.engine = options.engine;
  MFSDP_LET(config, engine_config(options.engine, request.config));
  question.config = std::move(config);
  if (!traits_of(options.engine).runs_plans && options.alloc_conf) {
    MFSDP_LET(allocator, parse_allocator_settings(*options.alloc_conf, "--alloc-conf"));
    question.allocator = allocator;
  }
  if (options.memory_limit) question.allocator.limit = options.memory_limit->value;
  question.meta = request.meta;
  question.program = request.program;
  if (question.config.param_dtype == DType::fp64 && !options.memory_alone)
    return fail(
        "--param-dtype",
        "fp64 has no prices: expected bf16, fp16 or fp32 (fp64 is for mfsdp-exec on a CPU)");
  MFSDP_LET(prices, priced(options, question.config.mesh.world_size()));
  question.costs = prices.costs;
  question.cache = cache_;
  question.least = least_;
  question.errors = prices.errors;
  question.anchor = prices.anchor;
  MFSDP_LET(steps, own_steps());
  question.own_steps = std::move(steps);
  question.variation = variation_of(options);
  if (options.routing) {
    MFSDP_LET(routing, routing_of(*options.routing));
    MFSDP_LET(blocks, routed_blocks(routing, question.config));
    question.routed = std::make_shared<const RoutedModel>(
        RoutedModel{.routing = std::move(routing), .blocks = std::move(blocks)});
  }
  question.reserve = reserve_of(options.reserve, prices.costs->cluster().gpu);
  return question;
}

}  // namespace mfsdp
