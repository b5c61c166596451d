// Clusters and tables of the shipped catalogue, for the cost tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/read_file.hpp"
#include "sim/cost/cost_model.hpp"
#include "sim/cost/csv.hpp"

namespace mfsdp::testing_cost {

inline const std::filesystem::path kGpus =
    std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios/gpus";

inline constexpr std::array kKinds{CollectiveKind::all_gather, CollectiveKind::all_reduce,
                                   CollectiveKind::reduce_scatter};

inline Cluster cluster_of(const std::string& gpu, std::int64_t gpus,
                          std::int64_t gpus_per_node = 8) {
  const auto kind = load_gpu(gpu, kGpus);
  if (!kind) throw std::runtime_error(kind.error().message());
  return make_cluster(*kind, gpus, gpus_per_node).value();
}

inline CostModel model_of(const std::string& gpu, std::int64_t gpus,
                          std::int64_t gpus_per_node = 8) {
  auto model = make_cost_model(cluster_of(gpu, gpus, gpus_per_node));
  if (!model) throw std::runtime_error(model.error().message());
  return *std::move(model);
}

inline CostTables h200_tables() {
  return load_cost_tables(cluster_of("h200", 8).gpu.tables).value();
}

/// A shipped table as text cells.
inline CsvTable csv(const std::string& name) {
  const std::string path = (kGpus / "tables" / name).string();
  return CsvTable::parse(read_file(path, "a table", std::size_t{1} << 20).value(), path).value();
}

inline double number(const CsvTable& table, std::size_t row, const char* column) {
  return std::stod(table.cell(row, table.column(column).value()));
}

}  // namespace mfsdp::testing_cost
