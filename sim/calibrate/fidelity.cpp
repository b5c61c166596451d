#include "sim/calibrate/fidelity.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/read_file.hpp"
#include "sim/calibrate/measurements.hpp"
#include "sim/calibrate/table_cells.hpp"
#include "sim/cost/tables.hpp"

namespace mfsdp {
namespace {

using Rows = std::vector<FidelityRow>;

void add(Rows& rows, std::string group, std::string what, std::span<const double> errors,
         Evaluation evaluation, std::string source) {
  rows.push_back({.group = std::move(group),
                  .what = std::move(what),
                  .error = summarise(errors),
                  .evaluation = evaluation,
                  .trust_level = TrustLevel::calibrated,
                  .source = std::move(source)});
}

void add_gemm(Rows& rows, std::span<const GemmRow> table, const Gpu& gpu) {
  struct Named {
    GemmKind kind;
    std::string_view name;
  };
  constexpr std::array<Named, 3> kKinds{{{GemmKind::forward, "forward"},
                                         {GemmKind::input_gradient, "dgrad"},
                                         {GemmKind::weight_gradient, "wgrad"}}};
  const std::string source = "gpus/tables/h200_gemm_bf16.csv";
  for (const Evaluation evaluation : {Evaluation::fit, Evaluation::leave_one_out}) {
    std::vector<double> all;
    for (const auto& [kind, name] : kKinds) {
      const std::vector<double> errors = gemm_errors(table, gpu, kind, evaluation);
      all.insert(all.end(), errors.begin(), errors.end());
      add(rows, "GEMM", std::string(name), errors, evaluation, source);
    }
    add(rows, "GEMM", "all", all, evaluation, source);
  }
  add(rows, "GEMM", "all, by the law's three constants", gemm_law_errors(table, gpu),
      Evaluation::fit, source);
  for (const auto& [kind, name] : kKinds)
    add(rows, "GEMM", fmt::format("{}, best constant rate", name),
        constant_rate_errors(table, kind), Evaluation::comparison, source);
}

void add_attention(Rows& rows, const CostTables& tables, const Gpu& gpu) {
  for (const Evaluation evaluation : {Evaluation::fit, Evaluation::leave_one_out})
    for (const bool backward : {false, true}) {
      const std::string direction = backward ? "backward" : "forward";
      add(rows, "attention", direction,
          attention_errors(tables.attention, gpu, backward, evaluation), evaluation,
          "gpus/tables/h200_attention_bf16.csv");
      if (!tables.attention_warpgroups.empty())
        add(rows, "attention", direction + ", by our own kernels",
            attention_errors(tables.attention_warpgroups, gpu, backward, evaluation,
                             kWarpgroupAttention),
            evaluation, "gpus/tables/h200_attention_warpgroups.csv");
      if (!tables.attention_masked.empty())
        add(rows, "attention", direction + ", with a mask",
            attention_errors(tables.attention_masked, gpu, backward, evaluation, kMaskedAttention),
            evaluation, "gpus/tables/h200_attention_masked.csv");
    }
}

void add_collectives(Rows& rows, std::span<const CollectiveRow> table, const Cluster& cluster) {
  struct Range {
    ByteRange bytes;
    std::string_view name;
  };
  constexpr std::array<Range, 3> kRanges{
      {{{.least = 0, .below = kMebibyte}, "below 1 MiB"},
       {{.least = kMebibyte, .below = 16 * kMebibyte + 1}, "1 to 16 MiB"},
       {{.least = 16 * kMebibyte + 1}, "above 16 MiB"}}};
  constexpr std::array<CollectiveKind, 2> kSharded{CollectiveKind::all_gather,
                                                   CollectiveKind::reduce_scatter};
  constexpr std::array<CollectiveKind, 1> kReplicated{CollectiveKind::all_reduce};
  for (const Evaluation evaluation : {Evaluation::fit, Evaluation::leave_one_out}) {
    for (const auto& [range, name] : kRanges) {
      add(rows, "collective", fmt::format("all-gather and reduce-scatter {}", name),
          collective_errors(table, cluster, kSharded, range, evaluation), evaluation,
          "gpus/tables/h200_nccl.csv");
      add(rows, "collective", fmt::format("all-reduce {}", name),
          collective_errors(table, cluster, kReplicated, range, evaluation), evaluation,
          "gpus/tables/h200_nccl.csv");
    }
  }
}

/// Copies that fit in the L2 cache, or that PyTorch's launch dominates, have a separate row.
Result<void> add_copies(Rows& rows, const CostModel& costs,
                        const std::filesystem::path& scenarios) {
  const std::string source = "gpus/tables/h200_copy.csv";
  const std::filesystem::path file = scenarios / source;
  MFSDP_LET(text, read_file(file, "a table", kMostScenarioBytes));
  MFSDP_LET(samples, parse_copy_table(text, file.string()));
  constexpr double kBeyondCache = 128 * kMebibyte;
  std::vector<double> large;
  std::vector<double> small;
  for (const CopySample& sample : samples) {
    const Nanos price =
        costs.copy(CopyKind::d2d, Bytes(static_cast<std::int64_t>(sample.bytes / 2)));
    const double error = static_cast<double>(price.value) / sample.ns - 1;
    (sample.bytes >= kBeyondCache ? large : small).push_back(error);
  }
  add(rows, "copy", "from 128 MiB moved", large, Evaluation::fit, source);
  add(rows, "copy", "smaller: in cache, or one PyTorch launch", small, Evaluation::unseen, source);
  return {};
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }

}  // namespace

Result<std::vector<FidelityRow>> fidelity(const std::filesystem::path& scenarios) {
  MFSDP_LET(gpu, load_gpu("h200", scenarios / "gpus"));
  MFSDP_LET(cluster, make_cluster(gpu, 8, 8));
  MFSDP_LET(tables, load_cost_tables(gpu.tables));
  const CostModel costs(cluster, tables);
  Rows rows;
  add_gemm(rows, tables.gemm, gpu);
  add_attention(rows, tables, gpu);
  add_collectives(rows, tables.collective, cluster);
  MFSDP_TRY(add_copies(rows, costs, scenarios));
  for (const auto part :
       {published_tables_fidelity, contention_fidelity, network_fidelity, step_fidelity}) {
    MFSDP_LET(more, part(scenarios));
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

std::vector<std::vector<std::string>> fidelity_cells(const std::vector<FidelityRow>& rows) {
  std::vector<std::vector<std::string>> cells{
      {"data", "what", "rows", "mean", "worst", "bias", "how", "tier", "source"}};
  for (const FidelityRow& row : rows) {
    const bool priced = row.error.rows > 0;
    cells.push_back({row.group, row.what, std::to_string(row.error.rows),
                     priced ? percent(row.error.mean) : "not modelled",
                     priced ? percent(row.error.worst) : "-",
                     priced ? fmt::format("{:+.2f} %", 100 * row.error.bias) : "-",
                     std::string(to_string(row.evaluation)),
                     std::string(to_string(row.trust_level)), row.source});
  }
  return cells;
}

std::string fidelity_csv(const std::vector<FidelityRow>& rows) {
  std::string csv = "data,what,rows,mean_error,worst_error,bias,how,tier,source\n";
  for (const FidelityRow& row : rows)
    csv += fmt::format("{},\"{}\",{},{:.6f},{:.6f},{:.6f},{},{},{}\n", row.group, row.what,
                       row.error.rows, row.error.mean, row.error.worst, row.error.bias,
                       to_string(row.evaluation), to_string(row.trust_level), row.source);
  return csv;
}

std::string fidelity_json(const std::vector<FidelityRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FidelityRow& row : rows)
    list.push_back({{"data", row.group},
                    {"what", row.what},
                    {"rows", row.error.rows},
                    {"mean_error", row.error.mean},
                    {"worst_error", row.error.worst},
                    {"bias", row.error.bias},
                    {"how", to_string(row.evaluation)},
                    {"tier", to_string(row.trust_level)},
                    {"source", row.source}});
  return nlohmann::ordered_json{{"schema", "mfsdp.fidelity/1"},
                                {"cost_model_version", kCostModelVersion},
                                {"rows", std::move(list)}}
             .dump(2) +
         "\n";
}

}  // namespace mfsdp
