// Tables that others published for GPUs (--tables published): how well the other rows predict a
// row, and the error of the H200's scaled tables.

#include "sim/calibrate/fidelity.hpp"
#include "sim/cost/attention.hpp"
#include "sim/cost/gemm.hpp"
#include "sim/cost/grouped.hpp"
#include "sim/hardware/published_tables.hpp"

namespace mfsdp {
namespace {

using Errors = std::vector<double>;

void join(Errors& all, const Errors& more) { all.insert(all.end(), more.begin(), more.end()); }

/// Times by the GPU's own tables relative to the published ones, minus 1.
Errors own_gemm_errors(const CostTables& own, const CostTables& published, const Gpu& gpu) {
  const GemmCost cost(own.gemm, gpu);
  Errors errors;
  for (const GemmRow& row : published.gemm) {
    const double measured = 2 * row.m * row.n * row.k / row.flops_per_ns;
    errors.push_back(cost.nanoseconds(shape_of(row), false) / measured - 1);
  }
  return errors;
}

Errors own_attention_errors(const CostTables& own, const CostTables& published, const Gpu& gpu) {
  const AttentionCost cost(own.attention, gpu);
  Errors errors;
  for (const AttentionRow& row : published.attention) {
    const AttentionShape shape{.batch = static_cast<std::int64_t>(row.batch),
                               .seq = static_cast<std::int64_t>(row.seq),
                               .heads = static_cast<std::int64_t>(row.heads),
                               .head_dim = static_cast<std::int64_t>(row.head_dim),
                               .backward = row.backward};
    errors.push_back(cost.nanoseconds(shape) / row.ns - 1);
  }
  return errors;
}

Errors left_out_gemm(const CostTables& published, const Gpu& gpu) {
  Errors errors;
  for (const GemmKind kind :
       {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient})
    join(errors, gemm_errors(published.gemm, gpu, kind, Evaluation::leave_one_out));
  return errors;
}

Errors left_out_attention(const CostTables& published, const Gpu& gpu) {
  Errors errors;
  for (const bool backward : {false, true})
    join(errors, attention_errors(published.attention, gpu, backward, Evaluation::leave_one_out));
  return errors;
}

/// GEMMs of experts: predicted by the other rows of their table, or at the rates of single GEMMs.
Errors grouped_errors(const CostTables& tables, const Gpu& gpu, bool by_the_others) {
  const GemmCost gemm(tables.gemm, gpu);
  Errors errors;
  for (std::size_t i = 0; i < tables.grouped.size(); ++i) {
    std::vector<GroupedRow> others;
    if (by_the_others) others = tables.grouped;
    if (by_the_others) others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const GroupedRow& row = tables.grouped[i];
    const GroupedProduct product = product_of(row);
    errors.push_back(GroupedCost(others, gemm, gpu.gemm_scale).ratio(product) *
                         even_grouped_ns(gemm, product, false) / measured_ns(row) -
                     1);
  }
  return errors;
}

std::string source_of(const std::filesystem::path& table) {
  return (std::filesystem::path("gpus/tables") / table.filename()).string();
}

FidelityRow row_of(std::string group, std::string what, const Errors& errors, Evaluation evaluation,
                   const std::filesystem::path& table) {
  return {.group = std::move(group),
          .what = std::move(what),
          .error = summarise(errors),
          .evaluation = evaluation,
          .trust_level = TrustLevel::datasheet,
          .source = source_of(table)};
}

}  // namespace

Result<std::vector<FidelityRow>> published_tables_fidelity(const std::filesystem::path& scenarios) {
  MFSDP_LET(names, list_gpus(scenarios / "gpus"));
  std::vector<FidelityRow> rows;
  for (const std::string& name : names) {
    MFSDP_LET(gpu, load_gpu(name, scenarios / "gpus"));
    if (!gpu.published || !gpu.published->of.empty()) continue;
    MFSDP_LET(other, with_published_tables(gpu));
    MFSDP_LET(own, load_cost_tables(gpu.tables));
    MFSDP_LET(published, load_cost_tables(other.tables));
    const std::string whose = name + ", published";
    const std::string scaled = whose + ", by the H200's table, scaled";
    if (!gpu.published->gemm.empty()) {
      rows.push_back(row_of("GEMM", whose, left_out_gemm(published, other),
                            Evaluation::leave_one_out, other.tables.gemm));
      rows.push_back(row_of("GEMM", scaled, own_gemm_errors(own, published, gpu),
                            Evaluation::unseen, other.tables.gemm));
    }
    if (!gpu.published->grouped.empty()) {
      const std::string experts = whose + ", of experts";
      rows.push_back(row_of("GEMM", experts, grouped_errors(published, other, true),
                            Evaluation::leave_one_out, other.tables.grouped));
      rows.push_back(row_of("GEMM", experts + ", as one GEMM",
                            grouped_errors(published, other, false), Evaluation::unseen,
                            other.tables.grouped));
    }
    if (!gpu.published->attention.empty()) {
      rows.push_back(row_of("attention", whose, left_out_attention(published, other),
                            Evaluation::leave_one_out, other.tables.attention));
      rows.push_back(row_of("attention", scaled, own_attention_errors(own, published, gpu),
                            Evaluation::unseen, other.tables.attention));
    }
  }
  return rows;
}

}  // namespace mfsdp
