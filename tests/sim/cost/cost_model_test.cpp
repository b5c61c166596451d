#include "sim/cost/cost_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/plan/newton_schulz.hpp"
#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

Operand tensor(Access access, DType dtype, std::vector<std::int64_t> shape) {
  Operand operand;
  operand.access = access;
  operand.dtype = dtype;
  operand.shape = std::move(shape);
  return operand;
}

Kernel gemm(DType inputs, DType output) {
  return {.kind = KernelKind::gemm,
          .operands = {tensor(Access::read, inputs, {8192, 4096}),
                       tensor(Access::read, inputs, {6144, 4096}),
                       tensor(Access::write, output, {8192, 6144}),
                       tensor(Access::scratch, DType::uint8, {32 << 20})},
          .attributes = {{"k", 4096}, {"kind", 0}, {"m", 8192}, {"n", 6144}},
          .flops = 2LL * 8192 * 6144 * 4096};
}

class CostModelTest : public testing::Test {
 protected:
  CostModel model_ = testing_cost::model_of("h200", 8);
};

TEST_F(CostModelTest, StatesWhatItStandsOn) {
  EXPECT_EQ(model_.calibration(), "measured");
  EXPECT_EQ(testing_cost::model_of("h100", 8).calibration(), "datasheet");
  EXPECT_EQ(model_.version(), "20");
}

TEST_F(CostModelTest, GemmIsTheTables) {
  // Table: 652.9 TFLOP/s, 2 * 8192 * 6144 * 4096 = 412.3e9 FLOP: 631.5 us.
  EXPECT_NEAR(static_cast<double>(model_.kernel(gemm(DType::bf16, DType::bf16)).value), 631'514, 2);
}

TEST_F(CostModelTest, AnFp32OutputIsAnAccumulator) {
  EXPECT_EQ(model_.kernel(gemm(DType::bf16, DType::fp32)),
            model_.kernel(gemm(DType::bf16, DType::bf16)));
  EXPECT_NEAR(static_cast<double>(model_.kernel(gemm(DType::fp32, DType::fp32)).value),
              631'514 * 989.0 / 67, 100);
}

TEST_F(CostModelTest, ThinGemmIsBoundByMemory) {
  Kernel thin = gemm(DType::bf16, DType::bf16);
  thin.operands = {tensor(Access::read, DType::bf16, {1, 4096}),
                   tensor(Access::read, DType::bf16, {128256, 4096}),
                   tensor(Access::write, DType::bf16, {1, 128256})};
  thin.attributes = {{"k", 4096}, {"kind", 0}, {"m", 1}, {"n", 128256}};
  // 2 * (4096 + 128256 * 4096 + 128256) bytes / (4238.4 * 0.9 GB/s) + 3 us = 278.5 us, against
  // 2 * 128 * 128256 * 4096 FLOP / 660 TFLOP/s = 204 us for one row of tiles.
  EXPECT_NEAR(static_cast<double>(model_.kernel(thin).value), 278'500, 200);
}

/// Balanced experts: 8 with 1000 rows each cost as much as one GEMM of 8 * 1024 rows, because 1000
/// rows are eight tiles of 128. Weight gradients cost as one GEMM of 8 * 1536 outputs over 1000
/// rows.
TEST_F(CostModelTest, GroupedProductsAreOneOfWholeTiles) {
  Kernel grouped = gemm(DType::bf16, DType::bf16);
  grouped.kind = KernelKind::grouped_product;
  grouped.operands.clear();  // as in other engines
  grouped.attributes = {{"experts", 8}, {"k", 4096}, {"m", 8000}, {"n", 6144}};
  EXPECT_EQ(model_.kernel(grouped), model_.kernel(gemm(DType::bf16, DType::bf16)));
  grouped.kind = KernelKind::grouped_weight_gradient;
  grouped.attributes.back() = {"n", 768};
  Kernel whole = gemm(DType::bf16, DType::bf16);
  whole.attributes = {{"k", 4096}, {"kind", 2}, {"m", 1000}, {"n", 6144}};
  EXPECT_EQ(model_.kernel(grouped), model_.kernel(whole));
}

/// At a shape of the table a kernel of mfsdp-exec, which has operands, has its measured time.
TEST_F(CostModelTest, OwnGroupedProductsTakeWhatWasMeasured) {
  Kernel grouped = gemm(DType::bf16, DType::bf16);
  grouped.attributes = {{"experts", 8}, {"k", 4096}, {"m", 8192}, {"n", 28672}, {"gradient", 4}};
  const auto expect_rate = [&](KernelKind kind, double tflops) {
    grouped.kind = kind;
    const double measured = 2.0 * 8192 * 28672 * 4096 / (tflops * 1e3);
    EXPECT_NEAR(static_cast<double>(model_.kernel(grouped).value), measured, 1e-3 * measured);
  };
  expect_rate(KernelKind::grouped_product, 575.7);
  expect_rate(KernelKind::grouped_input_gradient, 558.2);
  expect_rate(KernelKind::grouped_weight_gradient, 365.4);
}

/// 128 experts with a row each: 128 matrices are read for one tile of rows each.
TEST_F(CostModelTest, GroupedProductsOfFewRowsReadTheirMatrices) {
  Kernel few = gemm(DType::bf16, DType::bf16);
  few.kind = KernelKind::grouped_product;
  few.operands = {tensor(Access::read, DType::bf16, {128, 2048}),
                  tensor(Access::read, DType::bf16, {128 * 1536, 2048}),
                  tensor(Access::read, DType::int32, {128}),
                  tensor(Access::write, DType::bf16, {128, 1536})};
  few.attributes = {{"experts", 128}, {"k", 2048}, {"m", 128}, {"n", 1536}};
  // 2 * (128 * 2048 + 128 * 1536 * 2048 + 128 * 1536) + 512 bytes / (4238.4 * 0.9 GB/s) + 3 us.
  EXPECT_GE(static_cast<double>(model_.kernel(few).value), 214'000);
}

/// In whole tiles 4000, 1, 129, 128 and 3742 rows are 4096, 128, 256, 128 and 3840: 8448 in all.
TEST_F(CostModelTest, GroupedProductsTakeTheRowsOfEachExpert) {
  Kernel grouped = gemm(DType::bf16, DType::bf16);
  grouped.kind = KernelKind::grouped_product;
  grouped.operands.clear();  // as in other engines
  grouped.attributes = {{"experts", 8}, {"k", 4096}, {"m", 8000}, {"n", 6144}};
  const ExpertRows uneven{.rows = {4000, 1, 129, 128, 0, 0, 0, 3742}};
  EXPECT_EQ(uneven.total(), 8000);
  EXPECT_EQ(uneven.tiled(), 8448);
  Kernel whole = gemm(DType::bf16, DType::bf16);
  whole.attributes = {{"k", 4096}, {"kind", 0}, {"m", 8448}, {"n", 6144}};
  EXPECT_EQ(model_.kernel(grouped, &uneven), model_.kernel(whole));
  EXPECT_GT(model_.kernel(grouped, &uneven), model_.kernel(grouped));
  const ExpertRows even{.rows = std::vector<std::int64_t>(8, 1000)};
  EXPECT_EQ(model_.kernel(grouped, &even), model_.kernel(grouped));
}

/// Two experts with sums over 1000 and 7000 rows, each with half of the outputs: half of the time
/// of a GEMM with all outputs over 1000 rows, and half of the time over 7000.
TEST_F(CostModelTest, WeightGradientsSumOverTheRowsOfEachExpert) {
  Kernel grouped = gemm(DType::bf16, DType::bf16);
  grouped.kind = KernelKind::grouped_weight_gradient;
  grouped.operands.clear();  // as in other engines
  grouped.attributes = {{"experts", 2}, {"k", 4096}, {"m", 8000}, {"n", 3072}};
  const ExpertRows uneven{.rows = {1000, 7000}};
  const auto over = [&](std::int64_t rows) {
    Kernel whole = gemm(DType::bf16, DType::bf16);
    whole.attributes = {{"k", 4096}, {"kind", 2}, {"m", rows}, {"n", 6144}};
    return static_cast<double>(model_.kernel(whole).value);
  };
  EXPECT_NEAR(static_cast<double>(model_.kernel(grouped, &uneven).value),
              (over(1000) + over(7000)) / 2, 1);
}

/// Capacity for 16384 rows, 8192 when balanced. Kernels of arrived rows have an attribute experts
/// or peers. Kernels of a rank's own tokens have neither, and their number of rows does not depend
/// on the routing.
TEST_F(CostModelTest, RowsThatArriveAreTheRoutings) {
  const ExpertRows routed{.rows = {12000, 288}};
  for (const char* known : {"experts", "peers", "top_k"}) {
    Kernel kernel{.kind = KernelKind::permute_rows,
                  .operands = {tensor(Access::read, DType::bf16, {16384, 4096}),
                               tensor(Access::write, DType::bf16, {16384, 4096})},
                  .attributes = {{"balanced_rows", 8192}, {"m", 16384}, {known, 2}},
                  .flops = 0};
    Kernel more = kernel;
    more.attributes.front() = {"balanced_rows", 12288};
    const bool arrived = std::string_view(known) != "top_k";
    EXPECT_EQ(model_.kernel(kernel, &routed), model_.kernel(arrived ? more : kernel)) << known;
    EXPECT_GT(model_.kernel(more), model_.kernel(kernel));
  }
}

TEST_F(CostModelTest, AttentionIsTheTables) {
  Kernel kernel{.kind = KernelKind::attention_forward,
                .operands = {},
                .attributes = {{"batch", 1},
                               {"deterministic", 0},
                               {"head_dim", 128},
                               {"heads", 32},
                               {"kv_heads", 8},
                               {"seq", 8192}},
                .flops = 0};
  EXPECT_NEAR(static_cast<double>(model_.kernel(kernel).value), 1'016'600, 2);
  kernel.kind = KernelKind::attention_backward;
  EXPECT_NEAR(static_cast<double>(model_.kernel(kernel).value), 2'964'900, 2);
  kernel.attributes[1].value = {.num = 1};
  EXPECT_NEAR(static_cast<double>(model_.kernel(kernel).value), 1.087 * 2'914'900 + 50'000, 1'000);
}

/// Calls with bf16 queries, which mfsdp-exec's own kernels take on GPUs of compute capability 9.0;
/// calls with fp16 queries use cuDNN on all GPUs.
TEST_F(CostModelTest, AttentionOfOurOwnKernelsIsTheirTables) {
  const auto ms = [](const CostModel& model, KernelKind kind, DType dtype) {
    Operand query = tensor(Access::read, dtype, {1, 32, 8192, 128});
    query.role = "query";
    const Kernel kernel{
        .kind = kind,
        .operands = {query},
        .attributes = {{"batch", 1}, {"head_dim", 128}, {"heads", 32}, {"seq", 8192}}};
    return static_cast<double>(model.kernel(kernel).value) / 1e6;
  };
  constexpr KernelKind kForward = KernelKind::attention_forward;
  constexpr KernelKind kBackward = KernelKind::attention_backward;
  EXPECT_TRUE(model_.has_warpgroups());
  EXPECT_NEAR(ms(model_, kForward, DType::bf16), 0.9159, 1e-4);
  EXPECT_NEAR(ms(model_, kBackward, DType::bf16), 2.5961, 1e-4);
  EXPECT_NEAR(ms(model_, kForward, DType::fp16), 1.0166, 1e-4);
  const CostModel library = model_.with_library_attention();
  EXPECT_FALSE(library.has_warpgroups());
  EXPECT_NEAR(ms(library, kForward, DType::bf16), 1.0166, 1e-4);
  EXPECT_NEAR(ms(library, kBackward, DType::bf16), 2.9649, 1e-4);
  for (const char* gpu : {"a100_80", "b200"}) {
    const CostModel other = testing_cost::model_of(gpu, 8);
    EXPECT_FALSE(other.has_warpgroups()) << gpu;
    EXPECT_EQ(ms(other, kForward, DType::bf16), ms(other, kForward, DType::fp16)) << gpu;
  }
}

TEST_F(CostModelTest, ProductsInFp8TakeTheirMeasuredTimes) {
  Kernel fp8{.kind = KernelKind::gemm_fp8, .operands = {}};
  fp8.attributes = {{"k", 4096}, {"kind", 0}, {"m", 8192}, {"n", 28672}};
  const auto time = [&](const CostModel& model) {
    return static_cast<double>(model.kernel(fp8).value);
  };
  const auto table = testing_cost::csv("h200_gemm_fp8.csv");
  const auto measured = [&](const std::string& kind, const std::string& sums) {
    for (std::size_t row = 0; row < table.rows(); ++row)
      if (table.cell(row, table.column("kind").value()) == kind &&
          table.cell(row, table.column("accumulate").value()) == sums &&
          testing_cost::number(table, row, "M") == 8192 &&
          testing_cost::number(table, row, "N") == 28672 &&
          testing_cost::number(table, row, "K") == 4096)
        return 1.026e6 * testing_cost::number(table, row, "ms");
    return 0.0;
  };
  EXPECT_NEAR(time(model_), measured("fwd", "split"), 0.002 * time(model_));
  fp8.attributes.insert(fp8.attributes.begin(), {"fast", 1});
  EXPECT_NEAR(time(model_), measured("fwd", "fast"), 0.002 * time(model_));
  fp8.attributes[2].value = {.num = 2, .den = 1};
  EXPECT_NEAR(time(model_), measured("wgrad", "fast"), 0.002 * time(model_));
  Operand gradient = tensor(Access::read_write, DType::fp32, {});
  gradient.role = "weight_grad";
  fp8.operands = {gradient};
  EXPECT_NEAR(time(model_), 1.065 * measured("wgrad", "fast"), 0.002 * time(model_));
}

/// The ratios of the four measured shapes: 0.924 and 0.750 on average.
TEST_F(CostModelTest, ProductsWithScalesOfBlocksTakeTheirMeasuredShare) {
  Kernel fp8{.kind = KernelKind::gemm_fp8, .operands = {}};
  fp8.attributes = {{"k", 4096}, {"kind", 0}, {"m", 8192}, {"n", 28672}};
  Kernel blocks = fp8;
  blocks.kind = KernelKind::gemm_blocks;
  blocks.attributes.emplace_back("block", 128);
  const auto ratio = [&](std::int64_t kind) {
    fp8.attributes[1].value = blocks.attributes[1].value = {.num = kind};
    return static_cast<double>(model_.kernel(fp8).value) /
           static_cast<double>(model_.kernel(blocks).value);
  };
  EXPECT_NEAR(ratio(0), (1033.0 / 1136 + 1019.0 / 1086 + 1064.0 / 1153 + 1071.0 / 1155) / 4, 1e-4);
  EXPECT_NEAR(ratio(1), 0.924, 1e-3);
  EXPECT_NEAR(ratio(2), (847.0 / 1136 + 821.0 / 1086 + 872.0 / 1153 + 855.0 / 1155) / 4, 1e-4);
}

/// B200: 4,500 TFLOP/s of FP8 and 9,000 of NVFP4 to 2,250 of bf16.
TEST_F(CostModelTest, FourBitsTakeTheirShareOfThePeak) {
  Kernel wide{.kind = KernelKind::gemm, .operands = {}};
  wide.attributes = {{"k", 4096}, {"kind", 0}, {"m", 8192}, {"n", 28672}};
  Kernel narrow = wide;
  narrow.kind = KernelKind::gemm_blocks;
  narrow.attributes.emplace_back("block", 32);
  const CostModel model = testing_cost::model_of("b200", 8);
  const auto times = [&] {
    return static_cast<double>(model.kernel(wide).value) /
           static_cast<double>(model.kernel(narrow).value);
  };
  EXPECT_NEAR(times(), 2, 1e-3);
  Operand codes = tensor(Access::read, DType::fp4_e2m1x2, {8192, 2048});
  codes.role = "input";
  narrow.operands = {codes};
  EXPECT_NEAR(times(), 4, 1e-3);
}

TEST_F(CostModelTest, UnmeasuredProductsInFp8TakeHalfTheTimeOfBf16) {
  Kernel wide{.kind = KernelKind::gemm, .operands = {}};
  wide.attributes = {{"k", 4096}, {"kind", 0}, {"m", 8192}, {"n", 28672}};
  Kernel narrow = wide;
  narrow.kind = KernelKind::gemm_fp8;
  const CostModel model = testing_cost::model_of("b200", 8);
  EXPECT_NEAR(static_cast<double>(model.kernel(wide).value),
              2 * static_cast<double>(model.kernel(narrow).value), 2);
}

TEST_F(CostModelTest, OtherKernelsMoveBytes) {
  // AdamW on 1,003,782,656 parameters: reads gradient, weight and two moments, writes the latter
  // three and a bf16 weight, 30 bytes each: 3 us + 30.11 GB / (0.974 * 4,238.4 GB/s) = 7.298 ms.
  const std::int64_t count = 1'003'782'656;
  const Kernel adamw{.kind = KernelKind::update,
                     .operands = {tensor(Access::read, DType::fp32, {count}),
                                  tensor(Access::read_write, DType::fp32, {count}),
                                  tensor(Access::read_write, DType::fp32, {count}),
                                  tensor(Access::read_write, DType::fp32, {count}),
                                  tensor(Access::write, DType::bf16, {count})},
                     .attributes = {},
                     .flops = 0};
  EXPECT_EQ(adamw.bytes(), 30 * count);
  EXPECT_NEAR(static_cast<double>(model_.kernel(adamw).value), 7'297'600, 1'000);
  const Kernel nothing{
      .kind = KernelKind::norm_finish, .operands = {}, .attributes = {}, .flops = 0};
  EXPECT_EQ(model_.kernel(nothing), Nanos(3000));
}

/// A kernel of PyTorch that moves 1 GB so.
Kernel moving(AccessPattern pattern) {
  return {.kind = KernelKind::cast,
          .operands = {},
          .attributes = {{"bytes", 1'000'000'000}, {"pattern", static_cast<int>(pattern)}}};
}

TEST_F(CostModelTest, PlacesInViewsAreWorkedOutBySms) {
  const auto us = [](const CostModel& model, AccessPattern pattern) {
    return std::llround(static_cast<double>(model.kernel(moving(pattern)).value) / 1e3);
  };
  const CostModel h100 = testing_cost::model_of("h100", 8);
  // 3 us and 1 GB at 0.9 of a copy's 4.2384 and 2.97145 TB/s.
  EXPECT_EQ(us(model_, AccessPattern::contiguous), 265);
  EXPECT_EQ(us(h100, AccessPattern::contiguous), 377);
  // At 1.69536 TB/s and 0.84768 TB/s of 132 SMs, which both have.
  for (const CostModel& model : {model_, h100}) {
    EXPECT_EQ(us(model, AccessPattern::strided), 593);
    EXPECT_EQ(us(model, AccessPattern::pieces), 1183);
  }
  // An A100's 108 SMs: 1.38711 TB/s, where 0.9 of its copy is 1.53.
  const CostModel a100 = testing_cost::model_of("a100_80", 8);
  EXPECT_EQ(us(a100, AccessPattern::strided), 724);
}

TEST_F(CostModelTest, CopiesFollowTheMeasurement) {
  const CsvTable table = testing_cost::csv("h200_copy.csv");
  const std::size_t sizes = table.column("bytes_moved").value();
  const std::size_t times = table.column("ms").value();
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const double moved = table.number(row, sizes).value();
    if (moved < 1e8) continue;  // fits in the cache, or waits for the framework's launch
    const double measured = table.number(row, times).value() * 1e6;
    const Nanos copy = model_.copy(CopyKind::d2d, Bytes(static_cast<std::int64_t>(moved / 2)));
    EXPECT_NEAR(static_cast<double>(copy.value), measured, 0.015 * measured) << moved;
  }
  // 1 MB over PCIe: 3 us + 1e6 / 51.5 = 19.4 us
  EXPECT_EQ(model_.copy(CopyKind::h2d, Bytes(1'000'000)), Nanos(3'000 + 19'417));
}

TEST_F(CostModelTest, KernelsWithoutAttributesAreBoundByThePeak) {
  Kernel kernel = gemm(DType::bf16, DType::bf16);
  kernel.attributes.clear();
  // 412.3e9 FLOP / 989 TFLOP/s = 416.9 us
  EXPECT_NEAR(static_cast<double>(model_.kernel(kernel).value), 416'900, 100);
}

TEST_F(CostModelTest, AbsurdSizesAreErrorsNotUndefined) {
  Kernel kernel = gemm(DType::bf16, DType::bf16);
  kernel.attributes = {{"k", INT64_MAX}, {"kind", 7}, {"m", INT64_MAX}, {"n", INT64_MAX}};
  EXPECT_THROW(static_cast<void>(model_.kernel(kernel)), OverflowError);
  EXPECT_GT(model_.collective(CollectiveKind::all_reduce, Bytes(INT64_MAX), {.ranks = 8}).duration,
            Nanos(0));
}

TEST(MakeCostModel, NamesAMissingTable) {
  Cluster cluster = testing_cost::cluster_of("h200", 8);
  cluster.gpu.tables.gemm = "/nowhere/gemm.csv";
  const auto model = make_cost_model(cluster);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().message(),
            "/nowhere/gemm.csv: cannot be opened: No such file or directory");
}

TEST(FullBytes, CountsAsNcclDoes) {
  Collective collective;
  collective.count = 100;
  collective.dtype = DType::fp32;
  collective.kind = CollectiveKind::all_gather;
  EXPECT_EQ(full_bytes(collective, 8), Bytes(3200));
  collective.kind = CollectiveKind::reduce_scatter;
  EXPECT_EQ(full_bytes(collective, 8), Bytes(3200));
  collective.kind = CollectiveKind::all_reduce;
  EXPECT_EQ(full_bytes(collective, 8), Bytes(400));
}

/// Matrices of OLMo-2-1B on one H200, alone (docs/lab/2026-11-30-kernels.md): each of some 50 and 80
/// kernels has a launch. Without these the prices are 35 % short.
TEST_F(CostModelTest, NewtonSchulzHasItsLaunches) {
  const auto milliseconds = [&](std::int64_t rows, std::int64_t cols) {
    const Kernel kernel{.kind = KernelKind::newton_schulz,
                        .operands = {tensor(Access::read_write, DType::bf16, {rows, cols})},
                        .attributes = {{"cols", cols}, {"rows", rows}},
                        .flops = newton_schulz_flops(rows, cols)};
    return static_cast<double>(model_.kernel(kernel).value) * 1e-6;
  };
  EXPECT_NEAR(milliseconds(2048, 2048) / 0.556, 1, 0.12);
  EXPECT_NEAR(milliseconds(8192, 2048) / 0.953, 1, 0.17);  // mean of 1.000 and 0.905
  EXPECT_EQ(newton_schulz_launches(2048, 2048), 49);       // as a CUDA graph of it has nodes
  EXPECT_EQ(newton_schulz_launches(1024, 4096), 77);
}

}  // namespace
}  // namespace mfsdp
