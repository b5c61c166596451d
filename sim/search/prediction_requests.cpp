#include "sim/search/prediction_requests.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "sim/hardware/cluster.hpp"
#include "sim/hardware/cluster_file.hpp"
#include "sim/hardware/gpu.hpp"
#include "sim/hardware/matmul_formats.hpp"
#include "sim/hardware/power.hpp"
#include "sim/hardware/published_tables.hpp"
#include "sim/predict/routing_file.hpp"
#include "sim/search/training_cost.hpp"

namespace mfsdp {
namespace {

std::int64_t node_size(const CommonOptions& common, const Gpu& gpu) {
  return common.gpus_per_node.value_or(usual_node_size(gpu));
}

Result<Cluster> cluster_of(const JobOptions& job, std::int64_t gpus,
                           const std::filesystem::path& gpus_dir) {
  const CommonOptions& common = job.common;
  const auto plain = [&]() -> Result<Cluster> {
    if (common.cluster) return load_cluster(*common.cluster, gpus_dir, gpus, common.gpus_per_node);
    MFSDP_LET(gpu, load_gpu(common.gpu, gpus_dir));
    return make_cluster(gpu, gpus, node_size(common, gpu));
  };
  MFSDP_LET(cluster, plain());
  if (job.host_launch) cluster.gpu.host_launch = *job.host_launch;
  MFSDP_SET(cluster.gpu, with_price_tables(std::move(cluster.gpu), job.tables));
  if (job.power_limit) {
    MFSDP_SET(cluster.gpu,
              with_power_limit(std::move(cluster.gpu), static_cast<double>(*job.power_limit)));
  } else {
    MFSDP_TRY(check_power_is_stated(cluster.gpu));
  }
  if (job.network_gbps) return with_network(cluster, job.network_gbps->value());
  return std::move(cluster);
}

RankVariation variation_of(const JobOptions& job) {
  RankVariation variation{
      .jitter = job.jitter, .seed = static_cast<std::uint64_t>(job.seed), .by_rank = job.by_rank};
  for (const SlowRankFlag& slow : job.slow_ranks)
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

Result<const PredictionRequests::Measured*> PredictionRequests::measured(const JobOptions& job,
                                                                         const Gpu& gpu) {
  const std::tuple key{job.common.gpu, job.common.cluster, job.tables};
  if (const auto known = measured_.find(key); known != measured_.end()) return &known->second;
  MFSDP_LET(tables, load_cost_tables(gpu.tables));
  Gpu unlimited = gpu;  // as its tables were measured
  unlimited.power.reset();
  const double error = kernel_error(tables, unlimited);
  return &(measured_[key] = {.tables = std::move(tables), .kernel_error = error});
}

Result<PredictionRequests::Priced> PredictionRequests::priced(const JobOptions& job,
                                                              std::int64_t gpus) {
  const CommonOptions& common = job.common;
  std::optional<std::pair<std::int64_t, std::int64_t>> network;
  if (job.network_gbps) network.emplace(job.network_gbps->num, job.network_gbps->den);
  std::optional<std::int64_t> host;
  if (job.host_launch) host = job.host_launch->value;
  const Machine machine{common.gpu,    common.cluster.value_or(""),
                        gpus,          common.gpus_per_node,
                        job.tables,    job.power_limit,
                        network,       host,
                        job.attention, job.anchor};
  if (const auto known = priced_.find(machine); known != priced_.end()) return known->second;
  const std::filesystem::path gpus_dir = scenarios_ / "gpus";
  MFSDP_LET(cluster, cluster_of(job, gpus, gpus_dir));
  MFSDP_TRY(check_prices(job.prices, cluster.gpu.name, gpus_dir));
  MFSDP_LET(kind, measured(job, cluster.gpu));
  CostModel costs(cluster, kind->tables);
  if (job.attention == AttentionChoice::cudnn) costs = costs.with_library_attention();
  Priced priced{.costs = nullptr,
                .errors = price_errors(kind->tables, cluster, kind->kernel_error)};
  if (job.anchor) {
    const auto costs_of = [&](std::int64_t count, std::int64_t per_node) -> Result<CostModel> {
      JobOptions measured = job;
      if (!cluster.gpu.owner_sets_power) measured.power_limit.reset();  // it ran at its GPU's own
      if (!common.cluster) measured.common.gpus_per_node = per_node;
      MFSDP_LET(machine_of_run, cluster_of(measured, count, gpus_dir));
      return make_cost_model(machine_of_run);
    };
    MFSDP_LET(anchor, load_anchor(*job.anchor, costs_of));
    costs = costs.scaled(anchor.kernel_factor, anchor.collective_factor);
    priced.anchor = anchor;
  }
  priced.costs = std::make_shared<const CostModel>(std::move(costs));
  return priced_[machine] = std::move(priced);
}

Result<std::shared_ptr<const OwnRuns>> PredictionRequests::own_runs() {
  if (own_runs_) return own_runs_;
  MFSDP_LET(runs, load_own_runs(scenarios_ / "fidelity"));
  own_runs_ = std::make_shared<const OwnRuns>(std::move(runs));
  return own_runs_;
}

Result<ModelShape> PredictionRequests::shape(const JobOptions& job) {
  MFSDP_LET(named, plans_.model(job.common.model));
  return named->shape;
}

Result<Gpu> PredictionRequests::gpu(const JobOptions& job) const {
  MFSDP_LET(cluster, cluster_of(job, 1, scenarios_ / "gpus"));
  return std::move(cluster.gpu);
}

Result<std::int64_t> PredictionRequests::gpus_per_node(const JobOptions& job) const {
  const CommonOptions& common = job.common;
  MFSDP_LET(kind, gpu(job));
  if (!common.cluster) return node_size(common, kind);
  MFSDP_LET(file, read_cluster_file(*common.cluster, scenarios_ / "clusters"));
  return file.gpus_per_node.value_or(common.gpus_per_node.value_or(kind.gpus_per_node));
}

Result<std::optional<std::int64_t>> PredictionRequests::limit_of_gpus(const JobOptions& job) const {
  if (say_gpus(job.given)) return job.common.gpus;
  return plans_.gpus_of_cluster(job.common);
}

namespace {

/// Flags that engine_config() replaces by the engine's own choice are errors where they were given.
Result<void> check_given(const JobOptions& job, const PlanConfig& config) {
  const EngineTraits& traits = traits_of(job.engine);
  if (traits.runs_plans) return {};
  Reasons reasons;
  // engine_config() takes mfsdp's default for the engine's only strategy, and refuses the others.
  if (traits.only_strategy && contains(job.given, "--strategy") &&
      config.strategy == Strategy::optim_grads_params && config.strategy != *traits.only_strategy)
    reasons.add(does_otherwise(job.engine, "--strategy", traits.shards));
  if (traits.only_gradients)
    for (const auto& [flag, type] : {std::pair("--grad-dtype", config.grad_dtype),
                                     std::pair("--reduce-dtype", config.reduce_dtype)})
      if (contains(job.given, flag) && type != *traits.only_gradients)
        reasons.add(does_otherwise(job.engine, flag, only_gradients_text(job.engine)));
  if (contains(job.given, "--recompute") && config.recompute.kind == Recompute::selective &&
      !recomputes_modules(job.engine, config.model)) {
    constexpr std::string_view kFlag = "--selective-ac";
    if (!traits.has_recomputation)
      reasons.add(no_recomputation(job.engine));
    else if (has_option(job.engine, kFlag))
      reasons.add(does_otherwise(job.engine, "--recompute",
                                 "has other selective recomputations: take --selective-ac op (by "
                                 "operator, torchtitan's default) or --selective-ac N (every N-th "
                                 "block)"));
    else
      reasons.add(cannot_predict(
          job.engine, "--recompute",
          "selective recomputation (by operator, torchtitan's default; of every n-th block)",
          "its memory and step lie between those of none and full, which can be asked for"));
  }
  return reasons.verdict();
}

constexpr const char* kExchangeOption = "cp_comm_type";

/// The engine's options, with the one that --cp-comm stands for.
Result<EngineOptions> options_of(const JobOptions& job) {
  EngineOptions options = job.engine_options;
  if (traits_of(job.engine).runs_plans || !contains(job.given, "--cp-comm")) return options;
  const std::string_view asked = to_string(job.common.config.cp_comm);
  if (!has_option(job.engine, kExchangeOption))
    return cannot_predict(job.engine, "--cp-comm", asked, "leave --cp-comm out");
  if (options.has(kExchangeOption))
    return fail("--cp-comm", "contradicts --engine-option cp_comm_type; give one of them");
  MFSDP_TRY(options.set(kExchangeOption, asked));
  return options;
}

}  // namespace

Result<PredictionRequest> PredictionRequests::read(const JobOptions& job) {
  CommonOptions common = job.common;
  common.mesh_rules = mesh_rules(job.engine);
  if (!contains(job.given, "--cp-comm") && has_option(job.engine, kExchangeOption))
    common.config.cp_comm = ContextExchange::p2p;  // its default
  MFSDP_LET(plan,
            plans_.read(common, {.gpus_are_chosen = say_gpus(job.given), .takes_jobs = true}));
  return read(plan, job);
}

Result<PredictionRequest> PredictionRequests::read(const PlanRequest& plan, const JobOptions& job) {
  Reasons reasons;
  reasons.add(check_given(job, plan.config));
  auto options = options_of(job);
  reasons.add(options);
  auto config = engine_config(job.engine, plan.config, options ? *options : job.engine_options);
  reasons.add(config);
  auto allocator = parse_allocator_settings(job.alloc_conf.value_or(""), "--alloc-conf");
  reasons.add(allocator);
  MFSDP_TRY(reasons.verdict());
  PredictionRequest request;
  request.engine = job.engine;
  request.options = std::move(*options);
  request.config = std::move(*config);
  request.allocator = *allocator;
  if (job.memory_limit) request.allocator.limit = job.memory_limit->value;
  request.meta = plan.meta;
  if (plan.job) set_job(request, plan.job, plan.hash);
  if (request.config.param_dtype == DType::fp64 && !job.memory_alone)
    return fail(
        "--param-dtype",
        "fp64 has no prices: expected bf16, fp16 or fp32 (fp64 is for mfsdp-exec on a CPU)");
  MFSDP_LET(prices, priced(job, request.config.mesh.world_size()));
  if (!job.memory_alone) MFSDP_TRY(check_format(request.config.fp8, prices.costs->cluster().gpu));
  request.costs = prices.costs;
  request.cache = cache_;
  request.least = least_;
  request.errors = prices.errors;
  request.anchor = prices.anchor;
  MFSDP_SET(request.own_runs, own_runs());
  request.variation = variation_of(job);
  if (job.routing) {
    MFSDP_LET(routing, routing_of(*job.routing));
    MFSDP_LET(blocks, routed_blocks(routing, request.config));
    request.routed = std::make_shared<const RoutedModel>(
        RoutedModel{.routing = std::move(routing), .blocks = std::move(blocks)});
  }
  request.reserve = reserve_of(job.reserve, prices.costs->cluster().gpu);
  return request;
}

}  // namespace mfsdp
