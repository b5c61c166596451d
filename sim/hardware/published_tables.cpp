#include "sim/hardware/published_tables.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mfsdp {
namespace {

/// "a", "a and b", "a, b and c".
std::string in_words(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i)
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return text;
}

std::string source_of(const Gpu& gpu, std::string_view key) {
  for (const auto& [name, source] : gpu.sources)
    if (name == key) return source;
  return "";
}

}  // namespace

Result<Gpu> with_published_tables(Gpu gpu) {
  if (!gpu.published)
    return fail("--tables",
                fmt::format("the file of {} has no published tables: expected own (the file's "
                            "tables, scaled), or no --tables (each GPU's default)",
                            gpu.name));
  std::vector<std::string> parts;
  if (!gpu.published->gemm.empty()) {
    gpu.tables.gemm = gpu.published->gemm;
    gpu.tables.gemm_fp8.clear();            // its scale is that of the other table
    gpu.tables.gemm_fp8_blocks.clear();     // relative to it
    gpu.tables.grouped_warpgroups.clear();  // relative to the GEMMs of the other table
    gpu.table_sms = gpu.published->sms;
    gpu.gemm_scale = gpu.published->scale;
    parts.emplace_back("GEMMs");
  }
  if (!gpu.published->attention.empty()) {
    gpu.tables.attention = gpu.published->attention;
    gpu.tables.attention_warpgroups.clear();  // its scale is that of the published tables
    gpu.tables.attention_masked.clear();
    gpu.attention_scale = gpu.published->scale;
    parts.emplace_back("attention");
  }
  if (!gpu.published->grouped.empty()) {
    gpu.tables.grouped = gpu.published->grouped;
    parts.emplace_back("GEMMs of experts");
  }
  if (gpu.published->all_to_all) {
    gpu.all_to_all = gpu.published->all_to_all;
    parts.emplace_back("all-to-alls");
  }
  const std::string& of = gpu.published->of;
  gpu.published_prices = fmt::format(
      "prices of {} as others published them{}, not measured by us: {}", in_words(parts),
      of.empty() ? "" : fmt::format(" of {}, scaled", of), gpu.published->source);
  return gpu;
}

Result<Gpu> with_price_tables(Gpu gpu, std::optional<PriceTables> asked) {
  const PriceTables tables = asked.value_or(gpu.default_tables.value_or(PriceTables::own));
  if (tables == PriceTables::published) {
    MFSDP_LET(published, with_published_tables(std::move(gpu)));
    gpu = std::move(published);
  }
  if (!gpu.default_tables) return gpu;
  const std::string why = source_of(gpu, "tables.default");
  const std::string name =
      tables == PriceTables::own
          ? fmt::format("its own tables ({}, {}, scaled)", gpu.tables.gemm.filename().string(),
                        gpu.tables.attention.filename().string())
          : "published tables";
  gpu.priced_by = fmt::format("{} is priced by {}, {}{}{}", gpu.name, name,
                              tables == *gpu.default_tables ? "its default" : "as asked for",
                              why.empty() ? "" : ": ", why);
  return gpu;
}

}  // namespace mfsdp
