#include "sim/calibrate/published.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <sstream>
#include <utility>

#include "core/model/hf_config.hpp"
#include "sim/calibrate/table_cells.hpp"
#include "sim/hardware/published_tables.hpp"
#include "sim/predict/prediction_request.hpp"

namespace mfsdp {
namespace {

constexpr double kPublishedGib = 1 << 30;

/// A row of the file.
class PublishedRow {
 public:
  PublishedRow(const CsvTable& table, std::size_t row) : table_(table), row_(row) {}

  [[nodiscard]] std::string text(std::string_view column) const {
    const auto cell = text_cell(table_, row_, column);
    return cell ? *cell : "";
  }
  [[nodiscard]] bool has(std::string_view column) const { return !text(column).empty(); }
  [[nodiscard]] Result<std::int64_t> integer(std::string_view column) const {
    return integer_cell(table_, row_, column);
  }
  [[nodiscard]] Result<double> number(std::string_view column) const {
    return number_cell(table_, row_, column);
  }
  [[nodiscard]] std::string place() const { return table_.place(row_); }

 private:
  const CsvTable& table_;
  std::size_t row_;
};

/// A reason to exclude a row; the first one that applies counts.
struct ExclusionRule {
  std::string_view text;
  bool (*excludes)(const PublishedRow& row);
};

bool cut_along(const PublishedRow& row, std::string_view axis) {
  return row.has(axis) && row.text(axis) != "1";
}

bool has_experts(const PublishedRow& row) { return cut_along(row, "ep"); }

bool is_of_mcore(const PublishedRow& row) {
  const auto engine = parse<EngineKind>(row.text("engine"));
  return engine && traits_of(*engine).has_experts;
}

/// With a scale for each tensor, as all published ones have.
bool is_in_fp8(const PublishedRow& row) {
  const auto engine = parse<EngineKind>(row.text("engine"));
  return row.text("precision") == "fp8" && engine && traits_of(*engine).has_fp8;
}

bool states(const PublishedRow& row, std::string_view option) {
  return row.text("options").find(option) != std::string::npos;
}

/// Recomputation in terms of configurations. Megatron-Core recomputes only on request; with
/// experts, it may recompute the norm before them and their activation.
std::optional<Recompute> recompute_of(const PublishedRow& row) {
  const std::string said = row.text("recompute");
  // By operator it is an option of the engine.
  if (said == "selective-op" && states(row, "--selective-ac=op")) return Recompute::none;
  if (said == "full") return Recompute::full;
  if (said == "none" || (said.empty() && is_of_mcore(row))) return Recompute::none;
  if (said == "layernorm+moe_act" && is_of_mcore(row) && has_experts(row))
    return Recompute::selective;
  return std::nullopt;
}

bool shares(const PublishedRow& row) { return cut_along(row, "tp") || cut_along(row, "cp"); }

bool is_described_mesh(const PublishedRow& row) {
  const auto engine = parse<EngineKind>(row.text("engine"));
  const bool is_titan = states(row, "--modules=torchtitan");
  const Modules modules = is_titan ? Modules::torchtitan : Modules::transformers;
  return engine && std::ranges::all_of(std::array{Axis::pp, Axis::tp, Axis::cp}, [&](Axis axis) {
           return !cut_along(row, to_string(axis)) || may_share(*engine, modules, axis);
         });
}

constexpr std::array<ExclusionRule, 11> kExclusionRules{
    {{"pipeline parallelism of an engine that is not described with it",
      [](const PublishedRow& row) { return cut_along(row, "pp") && !is_described_mesh(row); }},
     {"pipeline stages whose chunks or layers are not stated",
      [](const PublishedRow& row) { return cut_along(row, "pp") && !row.has("vpp"); }},
     {"tensor or context parallelism of an engine that is not described with it",
      [](const PublishedRow& row) { return shares(row) && !is_described_mesh(row); }},
     {"experts with tensor or context parallelism",
      [](const PublishedRow& row) { return shares(row) && has_experts(row); }},
     {"experts of an engine other than Megatron-Core's distributed optimizer",
      [](const PublishedRow& row) { return has_experts(row) && !is_of_mcore(row); }},
     {"another precision than bf16, or FP8 of an engine whose FP8 is not described",
      [](const PublishedRow& row) { return row.text("precision") != "bf16" && !is_in_fp8(row); }},
     {"a model that is not in the catalogue, or that no engine is described for",
      [](const PublishedRow& row) { return !row.has("shape"); }},
     {"a GPU that is not in the catalogue",
      [](const PublishedRow& row) { return !row.has("catalogue_gpu"); }},
     {"an engine that is not described",
      [](const PublishedRow& row) { return !row.has("engine"); }},
     {"recomputation of parts of a block, or not stated",
      [](const PublishedRow& row) { return !recompute_of(row); }},
     {"length, batch or tokens per second not stated", [](const PublishedRow& row) {
        return !row.has("seq_len") || !row.has("micro_batch") || !row.has("global_batch") ||
               !row.has("tokens_per_s_per_gpu");
      }}}};

const ExclusionRule* first_rule(const PublishedRow& row) {
  const auto found = std::ranges::find_if(
      kExclusionRules, [&](const ExclusionRule& rule) { return rule.excludes(row); });
  return found == kExclusionRules.end() ? nullptr : &*found;
}

/// "word=value" or "--flag=value", with blanks between.
Result<EngineOptions> published_options(const PublishedRow& row) {
  EngineOptions options;
  std::istringstream words(row.text("options"));
  for (std::string part; words >> part;) {
    const std::size_t sign = part.find('=');
    const bool is_flag = part.starts_with("--") && sign != std::string::npos;
    const Result<void> set =
        is_flag ? options.set(part.substr(0, sign), part.substr(sign + 1)) : options.set(part);
    if (!set) return fail(row.place(), set.error().message());
  }
  return options;
}

Result<std::int64_t> ranks_along(const PublishedRow& row, std::string_view axis) {
  if (!cut_along(row, axis)) return 1;
  return row.integer(axis);
}

Result<PlanConfig> published_config(const PublishedRow& row, EngineKind engine,
                                    const ModelShape& model, const EngineOptions& options) {
  PlanConfig config;
  MFSDP_LET(all, row.integer("gpus"));
  MFSDP_LET(tp, ranks_along(row, "tp"));
  MFSDP_LET(cp, ranks_along(row, "cp"));
  MFSDP_LET(pp, ranks_along(row, "pp"));
  if (all % (tp * cp * pp) != 0)
    return fail(row.place(),
                fmt::format("tp {} x cp {} x pp {} does not divide {} GPUs", tp, cp, pp, all));
  const std::int64_t gpus = all / tp / cp / pp;
  MFSDP_SET(config.seq_len, row.integer("seq_len"));
  MFSDP_SET(config.micro_batch, row.integer("micro_batch"));
  MFSDP_LET(global_batch, row.integer("global_batch"));
  const std::int64_t together = config.micro_batch * gpus;
  if (global_batch % together != 0)
    return fail(row.place(), fmt::format("global_batch {} is not a multiple of {} x {} sequences",
                                         global_batch, config.micro_batch, gpus));
  config.model = model;
  config.mesh = data_parallel_mesh(1, gpus);
  config.mesh.resize(Axis::cp, cp);
  config.mesh.resize(Axis::tp, tp);
  config.mesh.resize(Axis::pp, pp);
  if (has_experts(row)) {
    MFSDP_LET(ep, row.integer("ep"));
    if (gpus % ep != 0)
      return fail(row.place(), fmt::format("ep {} does not divide {} GPUs", ep, gpus));
    config.expert_parallel = ep;
    config.mesh = with_expert_grid(config.mesh, ep);
  }
  if (cut_along(row, "vpp")) {
    MFSDP_SET(config.virtual_stages, row.integer("vpp"));
    config.schedule = PipelineSchedule::interleaved;
  }
  // A table of positions is as long as the sequences of a run.
  if (!model.traits().rotates) config.model.max_seq_len = config.seq_len;
  if (row.text("dp_strategy").find("SHARD_GRAD_OP") != std::string::npos)
    config.strategy = Strategy::optim_grads;
  if (row.text("grad_dtype") == "bf16") {
    config.reduce_dtype = DType::bf16;
    if (traits_of(engine).reduces_in_grad_dtype) config.grad_dtype = DType::bf16;
  }
  config.microbatches = global_batch / together;
  if (is_in_fp8(row)) config.fp8 = Fp8Recipe::current;
  config.recompute = {.kind = recompute_of(row).value_or(Recompute::none)};
  MFSDP_TRY(validate(config, MeshRules::others));
  return engine_config(engine, config, options);
}

Result<std::shared_ptr<const CostModel>> published_costs(const PublishedRow& row,
                                                         const std::filesystem::path& scenarios,
                                                         std::optional<PriceTables> tables) {
  MFSDP_LET(gpus, row.integer("gpus"));
  MFSDP_LET(per_node, row.integer("gpus_per_node"));
  MFSDP_LET(kind, load_gpu(row.text("catalogue_gpu"), scenarios / "gpus"));
  if (!kind.published || kind.published->attention.empty()) tables = std::nullopt;
  MFSDP_LET(priced, with_price_tables(std::move(kind), tables));
  MFSDP_LET(cluster, make_cluster(priced, gpus, std::min(gpus, per_node)));
  MFSDP_LET(costs, make_cost_model(cluster));
  return std::make_shared<const CostModel>(std::move(costs));
}

/// Whether micro-benchmarks of that very GPU, ours or others', price it.
bool is_calibrated(const Gpu& gpu) {
  if (gpu.calibration == "measured") return true;
  return !gpu.published_prices.empty() && gpu.published->of.empty();
}

/// The shape is from the catalogue, or from the shapes beside the file.
Result<NamedModel> published_model(const PublishedRow& row,
                                   const std::filesystem::path& scenarios) {
  const std::filesystem::path own = scenarios / "fidelity/models" / row.text("shape");
  std::error_code ignored;
  if (std::filesystem::exists(own, ignored)) return load_model(own.string(), scenarios / "models");
  return load_model(row.text("shape"), scenarios / "models");
}

/// Predictions already made: many rows have one configuration, run by different versions.
struct Answered {
  EngineKind engine = EngineKind::mfsdp;
  std::string options;
  PlanConfig config;
  std::string gpu;
  std::int64_t gpus_per_node = 1;
  double tokens_per_s_per_gpu = 0;
  MemorySummary memory;
};

Result<Answered> answered(const PredictionRequest& request, std::vector<Answered>& all) {
  const Cluster& cluster = request.costs->cluster();
  const std::string options = request.options.changes(request.engine);
  const auto found = std::ranges::find_if(all, [&](const Answered& one) {
    return one.engine == request.engine && one.config == request.config && one.options == options &&
           one.gpu == cluster.gpu.name && one.gpus_per_node == cluster.gpus_per_node;
  });
  if (found != all.end()) return *found;
  MFSDP_LET(prediction, predict(request));
  MemorySummary memory = prediction.run.memory;
  // The most that a rank of any stage allocates.
  for (const ClassReport& stage : prediction.run.classes)
    memory.allocated = std::max(memory.allocated, stage.peak);
  all.push_back({.engine = request.engine,
                 .options = options,
                 .config = request.config,
                 .gpu = cluster.gpu.name,
                 .gpus_per_node = cluster.gpus_per_node,
                 .tokens_per_s_per_gpu = prediction.run.time.tokens_per_second_per_gpu,
                 .memory = memory});
  return all.back();
}

Result<void> judge(PublishedRun& run, const PublishedRow& row,
                   const std::filesystem::path& scenarios, std::optional<PriceTables> tables,
                   std::vector<Answered>& all) {
  const auto engine = parse<EngineKind>(run.engine);
  if (!engine)
    return fail(row.place(),
                fmt::format("engine is '{}', expected {}", run.engine, name_list<EngineKind>()));
  MFSDP_LET(model, published_model(row, scenarios));
  PredictionRequest request;
  request.engine = *engine;
  MFSDP_SET(request.options, published_options(row));
  MFSDP_SET(request.config, published_config(row, *engine, model.shape, request.options));
  MFSDP_SET(request.costs, published_costs(row, scenarios, tables));
  run.calibrated = is_calibrated(request.costs->cluster().gpu);
  const Result<Answered> answer = answered(request, all);
  if (!answer) return fail(row.place(), answer.error().message());
  const Answered& prediction = *answer;
  MFSDP_LET(tokens, row.number("tokens_per_s_per_gpu"));
  run.tokens_per_s_per_gpu = {.published = tokens, .predicted = prediction.tokens_per_s_per_gpu};
  // Engines are modelled with fp32 weights and states between steps.
  if (!row.has("peak_mem_gib") || row.has("main_dtype")) return {};
  MFSDP_LET(memory, row.number("peak_mem_gib"));
  const MemorySummary& made = prediction.memory;
  const bool reserved = row.text("mem_kind").find("reserved") != std::string::npos;
  run.memory_of = reserved ? "reserved" : "allocated";
  const Bytes bytes = reserved && made.cached ? made.cached->reserved : made.allocated;
  run.memory_gib = {.published = memory,
                    .predicted = static_cast<double>(bytes.value) / kPublishedGib};
  return {};
}

std::string described_run(const PublishedRow& row) {
  std::string text = fmt::format("{} GPUs, {} x {}", row.text("gpus"), row.text("seq_len"),
                                 row.text("micro_batch"));
  for (const char* axis : {"tp", "cp", "pp", "vpp"})
    if (cut_along(row, axis)) text += fmt::format(", {} {}", axis, row.text(axis));
  if (has_experts(row)) text += ", ep " + row.text("ep");
  if (is_in_fp8(row)) text += ", FP8";
  if (row.text("recompute") == "full") text += ", recomputed";
  if (row.text("recompute") == "layernorm+moe_act") text += ", parts recomputed";
  return text;
}

/// Adds the errors of one figure for the rows that share a name.
void add_errors(std::vector<PublishedErrors>& all, std::string_view by, const std::string& name,
                std::string_view of, double error) {
  auto found = std::ranges::find_if(all, [&](const PublishedErrors& errors) {
    return errors.by == by && errors.name == name && errors.of == of;
  });
  if (found == all.end())
    found = all.insert(all.end(), {.by = std::string(by), .name = name, .of = std::string(of)});
  found->mean = (found->mean * static_cast<double>(found->rows) + std::abs(error)) /
                static_cast<double>(found->rows + 1);
  ++found->rows;
  if (std::abs(error) > std::abs(found->worst)) found->worst = error;
}

/// "mosaicml/llm-foundry on h100": sources begin with an owner's repository.
std::string framework_of(const PublishedRun& run) {
  return run.source.substr(0, run.source.find(' ')) + " on " + run.catalogue_gpu;
}

/// Adds both figures of a run.
void add_figures(std::vector<PublishedErrors>& all, std::string_view by, const std::string& name,
                 const PublishedRun& run) {
  if (run.tokens_per_s_per_gpu)
    add_errors(all, by, name, "tokens/s/GPU", run.tokens_per_s_per_gpu->error());
  if (run.memory_gib) add_errors(all, by, name, "memory", run.memory_gib->error());
}

void summarise_errors(Published& published) {
  for (const PublishedRun& run : published.runs) {
    if (run.has_stages) {
      add_figures(published.errors, "stages", run.engine + " on " + run.catalogue_gpu, run);
      add_figures(published.errors, "stages", run.experts ? "experts" : "dense", run);
      continue;
    }
    if (run.shares) {
      add_figures(published.errors, "mesh", run.engine + " on " + run.catalogue_gpu, run);
      add_figures(published.errors, "mesh", "all with tp or cp", run);
      continue;
    }
    add_figures(published.errors, "engine", run.engine, run);
    add_figures(published.errors, "framework", framework_of(run), run);
    add_figures(published.errors, "gpu", run.catalogue_gpu, run);
  }
  for (const PublishedRun& run : published.runs)
    if (run.experts && !run.has_stages && run.tokens_per_s_per_gpu)
      for (const std::string& name :
           {run.origin, std::string(run.calibrated ? "GPUs with micro-benchmarks"
                                                   : "GPUs without micro-benchmarks")})
        add_errors(published.errors, "experts", name, "tokens/s/GPU",
                   run.tokens_per_s_per_gpu->error());
  std::ranges::stable_sort(published.errors, {}, &PublishedErrors::by);
}

}  // namespace

Result<Published> published_runs(const std::filesystem::path& scenarios,
                                 std::optional<PriceTables> tables) {
  MFSDP_LET(table, read_table(scenarios / "fidelity/published_steps.csv"));
  Published published;
  std::vector<Answered> all;
  for (const ExclusionRule& rule : kExclusionRules)
    published.excluded.push_back({.rule = std::string(rule.text)});
  for (std::size_t i = 0; i < table.rows(); ++i) {
    const PublishedRow row(table, i);
    PublishedRun run{.origin = row.text("origin"),
                     .source = row.text("source"),
                     .model = row.text("model"),
                     .gpu = row.text("gpu"),
                     .engine = row.text("engine"),
                     .catalogue_gpu = row.text("catalogue_gpu"),
                     .what = described_run(row),
                     .experts = has_experts(row),
                     .shares = shares(row),
                     .has_stages = cut_along(row, "pp")};
    if (const ExclusionRule* rule = first_rule(row)) {
      run.excluded = rule->text;
      ++std::ranges::find(published.excluded, rule->text, &Exclusion::rule)->rows;
    } else {
      MFSDP_TRY(judge(run, row, scenarios, tables, all));
    }
    published.runs.push_back(std::move(run));
  }
  std::erase_if(published.excluded, [](const Exclusion& rule) { return rule.rows == 0; });
  summarise_errors(published);
  return published;
}

}  // namespace mfsdp
