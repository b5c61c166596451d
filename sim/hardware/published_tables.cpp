#include "sim/hardware/published_tables.hpp"

#include <fmt/format.h>

#include <string>
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

}  // namespace

Result<Gpu> with_published_tables(Gpu gpu) {
  if (!gpu.published)
    return fail("--tables",
                fmt::format("no tables of {} were published that its file has: expected "
                            "own, the tables that it names, scaled",
                            gpu.name));
  std::vector<std::string> parts;
  if (!gpu.published->gemm.empty()) {
    gpu.tables.gemm = gpu.published->gemm;
    gpu.table_sms = gpu.published->sms;
    gpu.gemm_scale = gpu.published->scale;
    parts.emplace_back("products");
  }
  if (!gpu.published->attention.empty()) {
    gpu.tables.attention = gpu.published->attention;
    gpu.tables.attention_warpgroups.clear();  // the scale is of the published ones
    gpu.attention_scale = gpu.published->scale;
    parts.emplace_back("attention");
  }
  if (!gpu.published->grouped.empty()) {
    gpu.tables.grouped = gpu.published->grouped;
    parts.emplace_back("products of experts");
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

}  // namespace mfsdp
