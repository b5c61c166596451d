#include "sim/hardware/published_tables.hpp"

#include <fmt/format.h>

namespace mfsdp {

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
    gpu.gemm_scale = 1;
    parts.emplace_back("products");
  }
  if (!gpu.published->attention.empty()) {
    gpu.tables.attention = gpu.published->attention;
    gpu.attention_scale = 1;
    parts.emplace_back("attention");
  }
  gpu.published_prices =
      fmt::format("prices of {} as others published them, not measured by us: {}",
                  fmt::join(parts, " and "), gpu.published->source);
  return gpu;
}

}  // namespace mfsdp
