#include "sim/tool/catalogue.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "core/model/hf_config.hpp"
#include "core/model/model.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/hardware/cluster_file.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

/// Enough GPUs for whole nodes of any cluster in the catalogue.
constexpr std::int64_t kWholeNodes = 144;

Result<Table> models_table(const fs::path& scenarios) {
  Table table{.columns = {{"model"},
                          {"parameters", Align::right},
                          {"active", Align::right},
                          {"layers", Align::right},
                          {"hidden", Align::right},
                          {"heads", Align::right},
                          {"kv heads", Align::right},
                          {"vocabulary", Align::right},
                          {"max sequence", Align::right}},
              .rows = {}};
  MFSDP_LET(names, list_models(scenarios / "models"));
  for (const std::string& name : names) {
    MFSDP_LET(model, load_model(name, scenarios / "models"));
    const ModelShape& shape = model.shape;
    const Model made = make_model(shape, DType::bf16);
    table.rows.push_back(
        {name, format_count(made.parameter_count()), format_count(made.active_parameter_count()),
         format_count(shape.layers), format_count(shape.hidden), format_count(shape.heads),
         format_count(shape.kv_heads), format_count(shape.vocab), format_count(shape.max_seq_len)});
  }
  return table;
}

/// Watts: the file's limit, or the range from which the owner of a machine chooses.
std::string power_text(const Gpu& gpu) {
  if (gpu.owner_sets_power)
    return fmt::format("{} to {}", format_real(gpu.owner_sets_power->least, 0),
                       format_real(gpu.owner_sets_power->most, 0));
  return gpu.power ? format_real(gpu.power->own, 0) : "unknown";
}

Result<Table> gpus_table(const fs::path& scenarios) {
  Table table{.columns = {{"gpu"},
                          {"title"},
                          {"GiB", Align::right},
                          {"bf16 TFLOP/s", Align::right},
                          {"memory GB/s", Align::right},
                          {"link GB/s", Align::right},
                          {"GPUs linked", Align::right},
                          {"power W", Align::right},
                          {"calibration"}},
              .rows = {}};
  MFSDP_LET(names, list_gpus(scenarios / "gpus"));
  for (const std::string& name : names) {
    MFSDP_LET(gpu, load_gpu(name, scenarios / "gpus"));
    table.rows.push_back({name, gpu.title, format_gib(gpu.capacity), format_real(gpu.bf16, 0),
                          format_real(gpu.memory_bandwidth, 0), format_real(gpu.link_bandwidth, 0),
                          format_count(gpu.domain), power_text(gpu), gpu.calibration});
  }
  return table;
}

std::string fabric_text(const ClusterFile& file) {
  return file.fabric == Fabric::rail ? "rail" : "fat tree";
}

Result<Table> clusters_table(const fs::path& scenarios) {
  Table table{.columns = {{"cluster"},
                          {"title"},
                          {"gpu"},
                          {"per node", Align::right},
                          {"GPUs linked", Align::right},
                          {"Gbit/s per node", Align::right},
                          {"fabric"}},
              .rows = {}};
  MFSDP_LET(names, list_clusters(scenarios / "clusters"));
  for (const std::string& name : names) {
    MFSDP_LET(file, read_cluster_file(name, scenarios / "clusters"));
    MFSDP_LET(cluster, load_cluster(name, scenarios / "gpus", kWholeNodes, std::nullopt));
    const double gbits = cluster.nic_bandwidth * static_cast<double>(cluster.nics_per_node) * 8;
    table.rows.push_back({name, file.title, cluster.gpu.name, format_count(cluster.gpus_per_node),
                          format_count(cluster.domain), format_real(gbits, 0), fabric_text(file)});
  }
  return table;
}

}  // namespace

Result<std::string> catalogue(const SimOptions& options, const Session& session) {
  MFSDP_LET(table, options.list_models     ? models_table(session.scenarios)
                   : options.list_clusters ? clusters_table(session.scenarios)
                                           : gpus_table(session.scenarios));
  return options.common.output == OutputFormat::md ? render_markdown_table(table)
                                                   : render_table(table, session.style);
}

}  // namespace mfsdp
