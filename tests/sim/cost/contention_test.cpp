// Kernels beside collectives: the measured curves as the model has them. How well it predicts the
// rows of h200_overlap.csv is in tests/sim/calibrate/fidelity_test.cpp.
#include "sim/cost/contention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using testing_cost::number;

Gpu h200() { return testing_cost::cluster_of("h200", 8).gpu; }

/// Mean of `value(row)` by the column `blocks`, over the rows that `keep` accepts.
std::map<double, double> means(const CsvTable& table, const std::function<bool(std::size_t)>& keep,
                               const std::function<double(std::size_t)>& value) {
  const std::size_t column = table.column("blocks").value();
  std::map<double, std::pair<double, int>> sums;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (!keep(row)) continue;
    auto& [sum, count] = sums[std::stod(table.cell(row, column))];
    sum += value(row);
    ++count;
  }
  std::map<double, double> result;
  for (const auto& [blocks, sum] : sums) result[blocks] = sum.first / sum.second;
  return result;
}

TEST(Contention, OccupancyIsTheMeasuredCurve) {
  const CsvTable table = testing_cost::csv("h200_occupied_sms.csv");
  const std::size_t neighbour = table.column("neighbour").value();
  const auto measured = means(
      table, [&](std::size_t row) { return table.cell(row, neighbour) == "spin"; },
      [&](std::size_t row) {
        return 1 - number(table, row, "solo_ms") / number(table, row, "beside_ms");
      });
  ASSERT_EQ(measured.size(), 11U);
  for (const auto& [blocks, lost] : measured) {
    const Contention cost =
        contention(h200(), {.transport = Transport::nccl, .blocks = blocks, .duration_ns = 1});
    EXPECT_NEAR(share(cost.occupancy), lost, 1e-4) << blocks;
    EXPECT_EQ(cost.traffic, PerKernelClass<std::int64_t>{});
    EXPECT_EQ(cost.draw, 0);
  }
}

TEST(Contention, DragIsTheMeasuredRatio) {
  const CsvTable table = testing_cost::csv("h200_collectives_beside_kernels.csv");
  const std::size_t name = table.column("case").value();
  const auto ratio = [&](std::size_t row) {
    return number(table, row, "neighbour_ms") / number(table, row, "alone_ms");
  };
  const auto named = [&](std::string_view part) {
    return [&, part](std::size_t row) {
      const std::string& text = table.cell(row, name);
      return text.starts_with("one_") && text.find(part) != std::string::npos &&
             (part == "copy_engine" || text.find("copy_engine") == std::string::npos);
    };
  };
  const auto drag = [](Transport transport, double blocks) {
    return share(contention(h200(), {.transport = transport, .blocks = blocks, .duration_ns = 1})
                     .drag[KernelClass::product]);
  };
  // 0 blocks in the table: NCCL's choice, 24 channels of a ring and 9 blocks of a symmetric kernel.
  const auto ring_default = means(table, named("default"), ratio);
  const auto ring_few = means(table, named("max_ctas"), ratio);
  const auto symmetric = means(table, named("symmetric"), ratio);
  EXPECT_NEAR(drag(Transport::nccl, 24), ring_default.at(0), 5e-4);
  EXPECT_NEAR(drag(Transport::nccl, 8), ring_few.at(8), 5e-4);
  EXPECT_NEAR(drag(Transport::nccl, 4), ring_few.at(4), 5e-4);
  EXPECT_NEAR(drag(Transport::symmetric, 9), symmetric.at(0), 5e-4);
  EXPECT_NEAR(drag(Transport::symmetric, 8), symmetric.at(8), 5e-4);
  EXPECT_NEAR(drag(Transport::copy_engine, 0), means(table, named("copy_engine"), ratio).at(0),
              5e-4);
}

constexpr std::array kTransports{Transport::nccl, Transport::symmetric, Transport::copy_engine};

/// Rows of kernels beside collectives of a transport on two H100.
struct BesideRow {
  std::string collective;
  double lost = 0;      ///< by the kernels, of their speed
  double slower = 0;    ///< times as long as alone, waiting for SMs included
  double bytes = 0;     ///< that the collective reads and writes
  double alone_ns = 0;  ///< of the collective
};

std::vector<BesideRow> rows_of(const std::string& kernels, Transport transport) {
  const CsvTable table = testing_cost::csv("h100_block_beside_collectives.csv");
  const auto cell = [&](std::size_t row, const char* column) {
    return table.cell(row, table.column(column).value());
  };
  std::vector<BesideRow> rows;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (cell(row, "kernels") != kernels || cell(row, "transport") != to_string(transport)) continue;
    const double alone = number(table, row, "alone_ms");
    rows.push_back({.collective = cell(row, "collective") + " " + cell(row, "dtype"),
                    .lost = 1 - number(table, row, "solo_ms") / number(table, row, "beside_ms"),
                    .slower = number(table, row, "collective_ms") / alone,
                    // Half of the bytes leave each GPU; each is read and written once.
                    .bytes = cell(row, "dtype") == "fp32" ? 872.4e6 : 436.2e6,
                    .alone_ns = alone * 1e6});
  }
  return rows;
}

double mean(const std::vector<BesideRow>& rows, const std::function<double(const BesideRow&)>& of) {
  double sum = 0;
  for (const BesideRow& row : rows) sum += of(row);
  return sum / static_cast<double>(rows.size());
}

/// Time that a collective of the transport costs kernels, per millisecond of its time alone: the
/// share that they lose while it is resident, times its duration then.
double measured_loss(const std::string& kernels, Transport transport) {
  return mean(rows_of(kernels, transport),
              [](const BesideRow& row) { return row.lost * row.slower; });
}

TEST(Contention, AttentionLosesMeasuredSharesOfWhatProductsLose) {
  for (const Transport transport : kTransports) {
    const Contention cost =
        contention(h200(), {.transport = transport, .blocks = 9, .duration_ns = 1});
    const double products = measured_loss("products", transport);
    EXPECT_EQ(cost.weight[KernelClass::product], kContentionUnit);
    const auto expect = [&](KernelClass kind, const char* kernels) {
      EXPECT_NEAR(share(cost.weight[kind]), measured_loss(kernels, transport) / products, 2e-3)
          << to_string(transport) << ", " << kernels;
    };
    expect(KernelClass::attention_forward, "attention_forward");
    expect(KernelClass::attention_backward, "attention_backward");
  }
}

TEST(Contention, CopiesAndCollectivesSlowEachOtherAsMeasured) {
  const Gpu h100 = testing_cost::cluster_of("h100", 2).gpu;
  for (const Transport transport : kTransports) {
    const std::vector<BesideRow> rows = rows_of("copy", transport);
    double blocks = 0;
    if (transport == Transport::nccl) blocks = 24;
    if (transport == Transport::symmetric) blocks = 9;
    const auto cost = [&](const BesideRow& row) {
      return contention(h100, {.transport = transport,
                               .blocks = blocks,
                               .bytes = row.bytes,
                               .duration_ns = row.alone_ns});
    };
    EXPECT_NEAR(share(cost(rows.front()).drag[KernelClass::memory]),
                mean(rows, [](const BesideRow& row) { return row.slower; }), 1e-3)
        << to_string(transport);
    const auto modelled = [&](const BesideRow& row) {
      const Contention own = cost(row);
      return share(own.weight[KernelClass::memory]) * share(own.occupancy) +
             share(own.traffic[KernelClass::memory]) / share(own.drag[KernelClass::memory]);
    };
    // With a link half as fast, copies take less of the collective's time, down to the effect of
    // GEMMs.
    BesideRow slow = rows.front();
    slow.alone_ns *= 2;
    EXPECT_LE(cost(slow).drag[KernelClass::memory], cost(rows.front()).drag[KernelClass::memory]);
    slow.alone_ns *= 1e3;
    EXPECT_EQ(cost(slow).drag[KernelClass::memory],
              std::min(cost(slow).drag[KernelClass::product],
                       cost(rows.front()).drag[KernelClass::memory]));
    const double measured = mean(rows, [](const BesideRow& row) { return row.lost; });
    EXPECT_NEAR(mean(rows, modelled) / measured, 1, 0.01) << to_string(transport);
  }
}

/// Modelled loss of GEMMs beside rings of 436.2 MB (bf16) or 872.4 MB (fp32) on two H100.
double modelled_loss(double bytes, double alone_ms) {
  Gpu h100 = testing_cost::cluster_of("h100", 2).gpu;
  const Contention cost = contention(
      h100,
      {.transport = Transport::nccl, .blocks = 24, .bytes = bytes, .duration_ns = alone_ms * 1e6});
  return share(cost.occupancy) * share(cost.drag[KernelClass::product]) + share(cost.draw);
}

TEST(Contention, ProductsBesideRingsOfTwoGpusLoseWithinAThirdOfWhatWasMeasured) {
  // Half of the bytes leave each GPU; each is read and written once.
  EXPECT_NEAR(modelled_loss(436.2e6, 0.8631) / 0.3864, 1, 0.33);
  EXPECT_NEAR(modelled_loss(436.2e6, 0.9179) / 0.3961, 1, 0.33);
  EXPECT_NEAR(modelled_loss(872.4e6, 1.6769) / 0.3376, 1, 0.33);
}

/// Mean of `alone_ms` over runs 1 and 2 of a case on four GPUs, NCCL's choice of blocks.
double alone_on_four(const std::string& name) {
  const CsvTable table = testing_cost::csv("h200_collectives_beside_kernels.csv");
  const auto mean = means(
      table, [&](std::size_t row) { return table.cell(row, table.column("case").value()) == name; },
      [&](std::size_t row) { return number(table, row, "alone_ms"); });
  return mean.at(0);
}

double alone_on_eight(const std::string& name) {
  const CsvTable table = testing_cost::csv("h200_overlap.csv");
  for (std::size_t row = 0; row < table.rows(); ++row)
    if (table.cell(row, table.column("collective").value()) == name)
      return number(table, row, "collectives_alone_ms");
  throw std::runtime_error("no row " + name);
}

double alone_on_two(const std::string& collective, Transport transport) {
  for (const BesideRow& row : rows_of("products", transport))
    if (row.collective == collective) return row.alone_ns;
  throw std::runtime_error("no row " + collective);
}

/// Measured time with registered memory relative to rings, on `gpus` GPUs.
double measured_ratio(std::int64_t gpus, Transport transport, const std::string& collective,
                      const std::string& windows, const std::string& rings) {
  if (gpus == 2)
    return alone_on_two(collective, transport) / alone_on_two(collective, Transport::nccl);
  const auto alone = gpus == 4 ? alone_on_four : alone_on_eight;
  return alone(windows) / alone(rings);
}

TEST(Contention, WindowsTakeTheMeasuredRatioOfRings) {
  const CollectiveModel model(testing_cost::h200_tables().collective,
                              testing_cost::cluster_of("h200", 8));
  const auto ratio = [&](CollectiveKind kind, Transport transport, DType dtype,
                         std::int64_t ranks) {
    const auto cost = [&](Transport by) {
      return model.cost(kind, Bytes(436'207'616), {.ranks = ranks},
                        {.transport = by, .dtype = dtype});
    };
    const CollectiveCost rings = cost(Transport::nccl);
    const CollectiveCost windows = cost(transport);
    EXPECT_EQ(windows.latency, rings.latency);
    return static_cast<double>(windows.duration.value - rings.latency.value) /
           static_cast<double>(rings.duration.value - rings.latency.value);
  };
  using enum CollectiveKind;
  for (const std::int64_t gpus : {2, 4, 8}) {
    const auto expect = [&](CollectiveKind kind, Transport transport, DType dtype,
                            const std::string& windows, const std::string& rings) {
      const std::string collective =
          std::string(to_string(kind)) + " " + std::string(to_string(dtype));
      EXPECT_NEAR(ratio(kind, transport, dtype, gpus),
                  measured_ratio(gpus, transport, collective, windows, rings), 1e-3)
          << gpus << " " << windows;
    };
    expect(all_gather, Transport::copy_engine, DType::bf16, "ag_symmetric_copy_engine",
           "ag_default");
    expect(all_gather, Transport::symmetric, DType::bf16, "ag_symmetric", "ag_default");
    expect(reduce_scatter, Transport::symmetric, DType::bf16, "rs_bf16_symmetric",
           "rs_bf16_default");
    expect(reduce_scatter, Transport::symmetric, DType::fp32, "rs_fp32_symmetric",
           "rs_fp32_default");
    EXPECT_EQ(ratio(all_to_all, Transport::copy_engine, DType::bf16, gpus),  // as a gather
              ratio(all_gather, Transport::copy_engine, DType::bf16, gpus));
  }
  EXPECT_NEAR(ratio(all_gather, Transport::copy_engine, DType::bf16, 3),  // between two and four
              (0.7269 / 0.8631 + 3.7275 / 4.5595) / 2, 1e-3);
  // Copy engines hold no SM; between nodes registered memory is not used.
  const auto cost = [&](std::int64_t gpus, Transport by) {
    return CollectiveModel(testing_cost::h200_tables().collective,
                           testing_cost::cluster_of("h200", gpus))
        .cost(all_gather, Bytes(1 << 20), {.ranks = gpus}, {.transport = by, .dtype = DType::bf16});
  };
  EXPECT_EQ(cost(8, Transport::copy_engine).contention.occupancy, 0);
  EXPECT_EQ(cost(16, Transport::copy_engine), cost(16, Transport::nccl));
}

/// Of 218 M elements on H200s.
CollectiveCost symmetric_or(Transport by, CollectiveKind kind, DType dtype, std::int64_t ranks) {
  const std::int64_t bytes = 218'103'808 * (dtype == DType::fp32 ? 4 : 2);
  return CollectiveModel(testing_cost::h200_tables().collective,
                         testing_cost::cluster_of("h200", 16))
      .cost(kind, Bytes(bytes), {.ranks = ranks}, {.transport = by, .dtype = dtype});
}

TEST(Contention, SymmetricSumsLoseToProductsAsGathersDo) {
  // Their blocks begin with a whole cache (carveout_probe), whatever they sum.
  const auto drag = [](CollectiveKind kind, DType dtype, std::int64_t ranks) {
    return symmetric_or(Transport::symmetric, kind, dtype, ranks)
        .contention.drag[KernelClass::product];
  };
  const std::int64_t gathers = drag(CollectiveKind::all_gather, DType::bf16, 2);
  EXPECT_GT(gathers, kContentionUnit);
  for (const std::int64_t ranks : {2, 4, 8})
    for (const DType dtype : {DType::bf16, DType::fp32})
      EXPECT_EQ(drag(CollectiveKind::reduce_scatter, dtype, ranks), gathers);
}

TEST(Contention, CollectivesOfADomainWantAPartOfTheLink) {
  const auto wanted = [](Transport by, CollectiveKind kind, DType dtype, std::int64_t ranks) {
    return share(symmetric_or(by, kind, dtype, ranks).link_share);
  };
  // A gather beside a reduction on two GPUs, as in steps: rings 1.65 times as long, beside a
  // symmetric sum 1.24 to 1.45, and such kernels together hardly.
  const double rings = wanted(Transport::nccl, CollectiveKind::all_gather, DType::bf16, 2);
  EXPECT_NEAR(rings + wanted(Transport::nccl, CollectiveKind::reduce_scatter, DType::fp32, 2), 1.65,
              0.1);
  const double sums = wanted(Transport::symmetric, CollectiveKind::reduce_scatter, DType::fp32, 2);
  EXPECT_NEAR(rings + sums, 1.3, 0.1);
  EXPECT_NEAR(sums + wanted(Transport::symmetric, CollectiveKind::all_gather, DType::bf16, 2), 1,
              0.06);
  // More ranks send faster; copy engines were not measured, and the network has one price.
  EXPECT_GT(wanted(Transport::nccl, CollectiveKind::all_gather, DType::bf16, 8), 0.95);
  EXPECT_EQ(wanted(Transport::copy_engine, CollectiveKind::all_gather, DType::bf16, 2), 1);
  EXPECT_EQ(wanted(Transport::nccl, CollectiveKind::all_gather, DType::bf16, 16), 1);
}

TEST(Contention, OtherGpusHoldSharesOfTheirSms) {
  Gpu half = h200();
  half.sms = 66;  // 12 of 66 are 24 of 132
  const auto occupancy = [](const Gpu& gpu, double blocks) {
    return contention(gpu, {.transport = Transport::nccl, .blocks = blocks, .duration_ns = 1})
        .occupancy;
  };
  EXPECT_EQ(occupancy(half, 12), occupancy(h200(), 24));
  EXPECT_EQ(occupancy(h200(), 100), occupancy(h200(), 48));  // beyond the curve: its end
}

}  // namespace
}  // namespace mfsdp
