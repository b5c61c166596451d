#include "sim/calibrate/calibrate.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sim/cost/cost_model.hpp"
#include "tests/sim/calibrate/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;
using testing_calibrate::kData;
using testing_calibrate::kGpus;

class Calibrate : public testing::Test {
 protected:
  CalibrationRequest request(std::vector<std::filesystem::path> files,
                             const std::string& gpu = "h100") {
    return {.files = std::move(files),
            .gpu = gpu,
            .gpus_dir = kGpus,
            .output = folder_ / "mine.toml",
            .domain = {}};
  }

  /// Calibrates, writes, and prices the data with the files as load_gpu and load_cluster read them.
  /// Returns the relative errors of bus bandwidth.
  std::vector<double> round_trip(const CalibrationRequest& request) {
    const auto calibration = calibrate(request);
    if (!calibration) throw std::runtime_error(calibration.error().message());
    const auto written = write_calibration(*calibration);
    if (!written) throw std::runtime_error(written.error().message());
    const auto data = read_measurements(request.files).value();
    std::vector<double> errors;
    for (const CollectiveSample& sample : data.collectives) {
      const auto costs = make_cost_model(cluster_for(sample));
      if (!costs) throw std::runtime_error(costs.error().message());
      const CollectiveCost cost =
          costs->collective(sample.kind, sample.bytes, {.ranks = sample.ranks});
      errors.push_back(sample.ns / static_cast<double>(cost.duration.value) - 1);
    }
    return errors;
  }

  Cluster cluster_for(const CollectiveSample& sample) {
    const std::filesystem::path file = folder_ / "mine_cluster.toml";
    if (std::filesystem::exists(file))
      return load_cluster(file.string(), kGpus, sample.ranks, {}).value();
    const Gpu gpu = load_gpu((folder_ / "mine.toml").string(), kGpus).value();
    return make_cluster(gpu, sample.ranks, gpu.gpus_per_node).value();
  }

  std::string error(const CalibrationRequest& request) {
    const auto calibration = calibrate(request);
    return calibration ? "no error" : calibration.error().message();
  }

  test::ScratchFolder folder_;
};

TEST_F(Calibrate, ReproducesRealRunsBetweenNodes) {
  for (const char* name : {"all_reduce_16_h100.txt", "all_reduce_16_h200.txt"}) {
    const std::vector<double> errors = round_trip(request({kData / name}));
    EXPECT_GE(errors.size(), 25u);
    EXPECT_LT(summarise(errors).worst, 0.001) << name;  // 3 % are asked for
  }
}

TEST_F(Calibrate, ReproducesARealRunWhoseDomainsAreSmallerThanTheGpus) {
  for (const char* name : {"all_gather_8_gb300.txt", "all_gather_8_gb300.json"}) {
    CalibrationRequest four = request({kData / name}, "gb200");
    four.domain = 4;
    EXPECT_LT(summarise(round_trip(four)).worst, 0.001) << name;
  }
}

TEST_F(Calibrate, ReproducesARealRunInsideANode) {
  // 1024 to 2048 bytes took 9.57 us both, and 9.58 at 512: smoothed.
  const std::vector<double> errors =
      round_trip(request({kData / "all_reduce_4_gh200_srun_labels.txt"}, "h200"));
  EXPECT_EQ(errors.size(), 30u);
  EXPECT_LT(summarise(errors).worst, 0.03);
}

TEST_F(Calibrate, ReproducesItsTableOnGpusOfOtherLinks) {
  const auto data = read_measurements(request({kGpus / "tables/h200_nccl.csv"}).files).value();
  // NVLink of twice the bandwidth; PCIe, which cannot carry what the table has, 20 times as slow.
  for (const auto& [gpu, slower] : {std::pair{"b200", 1.0}, std::pair{"l40s", 20.0}}) {
    std::string csv = "collective,gpus,bytes,us\n";
    for (const CollectiveSample& sample : data.collectives)
      csv += fmt::format("{},{},{},{}\n", to_string(sample.kind), sample.ranks, sample.bytes.value,
                         sample.ns * slower / 1e3);
    test::write_file(folder_ / "table.csv", csv);
    const std::vector<double> errors = round_trip(request({folder_ / "table.csv"}, gpu));
    // Above 16 MiB; below, the table holds noise that prices smooth.
    std::vector<double> large;
    for (std::size_t i = 0; i < errors.size(); ++i)
      if (data.collectives[i].bytes.value > 16 * 1048576) large.push_back(errors[i]);
    EXPECT_EQ(large.size(), 36u);
    EXPECT_LT(summarise(large).worst, 0.03) << gpu;
  }
}

TEST_F(Calibrate, ReproducesRunsOfGpusWithoutASwitch) {
  // Two of eight MI300X have one link of seven; the samples are 1.2 times as slow as the catalogue.
  const Gpu gpu = load_gpu("mi300x", kGpus).value();
  const CostModel base = make_cost_model(make_cluster(gpu, 8, 8).value()).value();
  std::string csv = "collective,gpus,bytes,us\n";
  for (const std::int64_t ranks : {2, 4, 8})
    for (std::int64_t bytes = 1 << 20; bytes <= (1 << 30); bytes *= 4) {
      const CollectiveCost cost =
          base.collective(CollectiveKind::all_gather, Bytes(bytes), {.ranks = ranks});
      csv += "all_gather," + std::to_string(ranks) + "," + std::to_string(bytes) + "," +
             std::to_string(static_cast<double>(cost.duration.value) * 1.2e-3) + "\n";
    }
  test::write_file(folder_ / "runs.csv", csv);
  const std::vector<double> errors = round_trip(request({folder_ / "runs.csv"}, "mi300x"));
  EXPECT_EQ(errors.size(), 18u);
  EXPECT_LT(summarise(errors).worst, 0.03);
}

/// The report's line with that name.
const FidelityRow& row_of(const Calibration& calibration, std::string_view what, Evaluation how) {
  const auto found = std::ranges::find_if(calibration.errors, [&](const FidelityRow& row) {
    return row.what == what && row.evaluation == how;
  });
  if (found == calibration.errors.end()) throw std::runtime_error("no such row");
  return *found;
}

TEST_F(Calibrate, AFileGivenTwiceDoesNotPredictItself) {
  const std::filesystem::path between = kData / "all_reduce_16_h200.txt";
  const std::filesystem::path inside = kGpus / "tables/h200_nccl.csv";
  const auto once = calibrate(request({between, inside}, "h200"));
  const auto twice = calibrate(request({between, inside, between, inside}, "h200"));
  ASSERT_TRUE(once && twice);
  for (const char* what : {"all, with the others' ratios", "all_gather on 8"}) {
    const ErrorSummary error = row_of(*once, what, Evaluation::leave_one_out).error;
    const ErrorSummary doubled = row_of(*twice, what, Evaluation::leave_one_out).error;
    EXPECT_GT(error.mean, 0.005) << what;
    EXPECT_EQ(doubled.rows, error.rows) << what;
    EXPECT_DOUBLE_EQ(doubled.mean, error.mean) << what;
  }
  const std::filesystem::path copies = kGpus / "tables/h200_copy.csv";
  EXPECT_EQ(error(request({copies, copies}, "h200")),
            "--calibrate: a size of copies is measured twice; give each once");
}

TEST_F(Calibrate, NoNicPassesItsLineRate) {
  // The run's switches reduce (NVLS, SHARP): faster than rings over 8 NICs of 50 GB/s can be.
  const auto calibration = calibrate(request({kData / "all_reduce_16_h200.txt"}, "h200"));
  ASSERT_TRUE(calibration) << calibration.error().message();
  EXPECT_THAT(calibration->notes,
              Contains(AllOf(StartsWith("nic_gb_per_s: the test is bound by the link inside "
                                        "nodes: the NIC is at least 47.85 GB/s, "),
                             HasSubstr("switches that reduce (NVLS, SHARP)"))));
  EXPECT_DOUBLE_EQ(calibration->gpu.nic_bandwidth, 50);
  EXPECT_THAT(calibration->gpu.sources,
              Contains(Pair("node.nic_gb_per_s",
                            "taken over from h200: bound by the link inside nodes, "
                            "the NIC is at least 47.85 GB/s")));
  // Its file, as a base, keeps the line rate.
  ASSERT_TRUE(write_calibration(*calibration));
  const Gpu written = load_gpu((folder_ / "mine.toml").string(), kGpus).value();
  ASSERT_TRUE(written.nic_line_rate);
  EXPECT_DOUBLE_EQ(*written.nic_line_rate, 50);
  EXPECT_THAT(calibration->notes,
              Contains("not measured between domains, priced with the NIC that all_reduce fitted: "
                       "all_gather, reduce_scatter"));
}

/// A fit based on a fitted machine may exceed the first fit, but not the data sheet.
TEST_F(Calibrate, ALaterFitIsBoundByTheDataSheetToo) {
  const auto csv_of = [&](double scale) {
    std::string csv = "collective,gpus,nodes,bytes,us\n";
    for (std::int64_t bytes = 1 << 26; bytes <= (std::int64_t{1} << 32); bytes *= 4)
      csv += fmt::format("all_gather,16,2,{},{}\n", bytes,
                         60 + scale * static_cast<double>(bytes) / 340e3);
    test::write_file(folder_ / "runs.csv", csv);
    return folder_ / "runs.csv";
  };
  const auto slow = calibrate(request({csv_of(4)}));
  ASSERT_TRUE(slow) << slow.error().message();
  ASSERT_TRUE(write_calibration(*slow));
  EXPECT_LT(slow->gpu.nic_bandwidth, 20);
  CalibrationRequest again = request({csv_of(0.95)}, (folder_ / "mine.toml").string());
  again.output = folder_ / "again.toml";
  const auto fast = calibrate(again);
  ASSERT_TRUE(fast) << fast.error().message();
  EXPECT_GT(fast->gpu.nic_bandwidth, 45);
  EXPECT_LE(fast->gpu.nic_bandwidth, 50);
}

/// Published tables of the base are kept unless a measurement replaces them.
TEST_F(Calibrate, KeepsPublishedTablesBesideWhatWasMeasured) {
  const auto written = [&](const std::filesystem::path& file) {
    EXPECT_TRUE(write_calibration(calibrate(request({file}, "b200")).value()));
    return load_gpu((folder_ / "mine.toml").string(), kGpus).value();
  };
  const Gpu copies = written(kGpus / "tables/h200_copy.csv");
  ASSERT_TRUE(copies.published);
  EXPECT_EQ(copies.default_tables, PriceTables::published);
  EXPECT_EQ(copies.published->gemm, load_gpu("b200", kGpus).value().published->gemm);
  const Gpu products = written(kGpus / "tables/h200_gemm_bf16.csv");
  ASSERT_TRUE(products.published);
  EXPECT_EQ(products.published->gemm, "");
  EXPECT_NE(products.published->attention, "");
}

TEST_F(Calibrate, SaysWhichRowsItCannotReproduce) {
  // As if NVLink joined both hosts. 512 KiB took 152 us, 1 MiB 64 us.
  const auto calibration = calibrate(request({kData / "all_gather_8_gb300.txt"}, "gb200"));
  ASSERT_TRUE(calibration) << calibration.error().message();
  EXPECT_THAT(calibration->notes,
              Contains(StartsWith("1 of 23 collectives are priced more than 3 % off")));
  EXPECT_THAT(calibration->notes,
              Contains("the files were measured on \"NVIDIA GB300\", values not measured are "
                       "gb200's (--gpu)"));
}

TEST_F(Calibrate, AGpuWithEveryPartIsMeasured) {
  const std::filesystem::path tables = kGpus / "tables";
  const auto everything =
      request({tables / "h200_gemm_bf16.csv", tables / "h200_attention_bf16.csv",
               tables / "h200_nccl.csv", tables / "h200_copy.csv"},
              "b200");
  const auto calibration = calibrate(everything);
  ASSERT_TRUE(calibration) << calibration.error().message();
  ASSERT_TRUE(write_calibration(*calibration));
  EXPECT_EQ(folder_.file_count(), 4u);
  const Gpu gpu = load_gpu((folder_ / "mine.toml").string(), kGpus).value();
  EXPECT_EQ(gpu.calibration, "measured");
  EXPECT_EQ(gpu.capacity, load_gpu("b200", kGpus).value().capacity);
  EXPECT_NEAR(gpu.copy_bandwidth(), 4240, 0.01 * 4240);  // 4.238 TB/s at 8.6 GB, of the table
  EXPECT_THAT(gpu.sources,
              Contains(Pair("compute.gemm_scale", "measured: 114 GEMMs of h200_gemm_bf16.csv")));
  EXPECT_THAT(gpu.sources, Contains(Pair("compute.bf16_tflops",
                                         "taken over from b200: vendor data sheet, dense")));
  EXPECT_THAT(gpu.sources, Contains(Pair("node.gpus", "taken over from b200")));
  EXPECT_THAT(gpu.sources, Contains(Pair("tables.collective",
                                         "measured: all_gather, reduce_scatter, all_reduce of "
                                         "h200_nccl.csv")));
  // The new tables hold what those hold that they were made from.
  const Gpu h200 = load_gpu("h200", kGpus).value();
  const CostTables old = load_cost_tables(h200.tables).value();
  const CostTables fresh = load_cost_tables(gpu.tables).value();
  ASSERT_EQ(fresh.gemm.size(), old.gemm.size());
  for (std::size_t i = 0; i < old.gemm.size(); ++i)
    EXPECT_DOUBLE_EQ(fresh.gemm[i].flops_per_ns, old.gemm[i].flops_per_ns);
  for (std::size_t i = 0; i < old.attention.size(); ++i)
    EXPECT_DOUBLE_EQ(fresh.attention[i].ns, old.attention[i].ns);
}

TEST_F(Calibrate, Fp8KeepsItsTableWhereItsScaleIsTheirs) {
  const auto table_of = [&](const char* file, const std::string& base) {
    EXPECT_TRUE(write_calibration(calibrate(request({kGpus / file}, base)).value()));
    return load_gpu((folder_ / "mine.toml").string(), kGpus).value().tables.gemm_fp8;
  };
  const std::filesystem::path shipped = kGpus / "tables/h200_gemm_fp8.csv";
  EXPECT_EQ(table_of("tables/h200_gemm_bf16.csv", "h200"), shipped);
  EXPECT_EQ(table_of("tables/h200_gemm_bf16.csv", "h100_96_500w"), "");
  EXPECT_EQ(table_of("tables/h200_attention_bf16.csv", "h100_96_500w"), shipped);
}

/// The H200's table of mfsdp-exec's own kernels holds at 700 W, where its scale is 1.
TEST_F(Calibrate, OwnKernelsOfAttentionKeepTheirTableWhereItsScaleIsTheirs) {
  const std::filesystem::path measured = kGpus / "tables/h200_attention_bf16.csv";
  const std::filesystem::path own = kGpus / "tables/h200_attention_warpgroups.csv";
  const auto table_of = [&](const std::filesystem::path& file, const std::string& base) {
    EXPECT_TRUE(write_calibration(calibrate(request({file}, base)).value()));
    return load_gpu((folder_ / "mine.toml").string(), kGpus).value().tables.attention_warpgroups;
  };
  EXPECT_EQ(table_of(measured, "h200"), own);
  EXPECT_EQ(table_of(measured, "h100_96_500w"), "");
  EXPECT_EQ(table_of(kGpus / "tables/h200_gemm_bf16.csv", "h100_96_500w"), own);
  EXPECT_EQ(table_of(measured, "b200"), "");
}

TEST_F(Calibrate, AGpuWithSomePartsSaysWhich) {
  const auto calibration = calibrate(request({kGpus / "tables/h200_gemm_bf16.csv"}));
  ASSERT_TRUE(calibration) << calibration.error().message();
  ASSERT_TRUE(write_calibration(*calibration));
  const Gpu gpu = load_gpu((folder_ / "mine.toml").string(), kGpus).value();
  EXPECT_EQ(gpu.calibration, "datasheet");
  EXPECT_EQ(gpu.measured, (MeasuredParts{.gemm = true}));
  EXPECT_EQ(gpu.tables.attention, kGpus / "tables/h200_attention_bf16.csv");
  EXPECT_THAT(calibration_text(*calibration), HasSubstr("GEMM all, leave-one-out"));
}

TEST_F(Calibrate, RefusesCopiesFasterThanTheMemory) {
  // The H200's copies reach 4.24 TB/s; an H100's memory has 3.35.
  EXPECT_THAT(error(request({kGpus / "tables/h200_copy.csv"}, "h100")),
              HasSubstr("h200_copy.csv:6: copies run at 4273 GB/s, but h100 has 3350 GB/s"));
}

TEST_F(Calibrate, TheGpuFileAloneCarriesTheNetwork) {
  const std::filesystem::path file = kData / "all_reduce_16_h100.txt";
  ASSERT_TRUE(write_calibration(calibrate(request({file})).value()));
  const Gpu gpu = load_gpu((folder_ / "mine.toml").string(), kGpus).value();
  const Cluster two_nodes = make_cluster(gpu, 16, 8).value();
  const Cluster by_file =
      load_cluster((folder_ / "mine_cluster.toml").string(), kGpus, 16, {}).value();
  EXPECT_DOUBLE_EQ(two_nodes.network_bandwidth(), by_file.network_bandwidth());
  EXPECT_EQ(two_nodes.nic_latency, by_file.nic_latency);
  EXPECT_NE(two_nodes.network_bandwidth(), 50);  // the H100's data sheet
  EXPECT_THAT(two_nodes.network, HasSubstr("network fitted to measurements"));
  const CostModel costs = make_cost_model(two_nodes).value();
  const auto data = read_measurements(std::vector{file}).value();
  for (const CollectiveSample& sample : data.collectives) {
    const CollectiveCost cost =
        costs.collective(sample.kind, sample.bytes, {.ranks = sample.ranks});
    EXPECT_NEAR(static_cast<double>(cost.duration.value) / sample.ns, 1, 0.001) << sample.place;
  }
}

TEST_F(Calibrate, AGpuFileOfSmallDomainsCarriesTheNetworkToo) {
  CalibrationRequest four = request({kData / "all_gather_8_gb300.txt"}, "gb200");
  four.domain = 4;
  ASSERT_TRUE(write_calibration(calibrate(four).value()));
  const Gpu gpu = load_gpu((folder_ / "mine.toml").string(), kGpus).value();
  const Cluster by_flag = make_cluster(gpu, 8, 4).value();
  const Cluster by_file =
      load_cluster((folder_ / "mine_cluster.toml").string(), kGpus, 8, {}).value();
  EXPECT_EQ(by_flag.domain, 4);
  EXPECT_DOUBLE_EQ(by_flag.network_bandwidth(), by_file.network_bandwidth());
}

TEST_F(Calibrate, AClusterOfOtherNicsIsNotMeasured) {
  ASSERT_TRUE(write_calibration(calibrate(request({kData / "all_reduce_16_h100.txt"})).value()));
  const auto network_of = [&](const std::string& text) {
    test::write_file(folder_ / "other.toml", text);
    return load_cluster((folder_ / "other.toml").string(), kGpus, 16, 8).value();
  };
  const Cluster same = network_of("gpu = \"mine.toml\"\n");
  EXPECT_THAT(same.network, HasSubstr("network fitted to measurements"));
  const Cluster other = network_of("gpu = \"mine.toml\"\nnic_gbits_per_s = 100\n");
  EXPECT_THAT(other.network, HasSubstr("network modelled, not measured: 8 x 12.5 GB/s a node"));
  EXPECT_TRUE(other.gpu.tables.network.empty());
}

TEST_F(Calibrate, RefusesWhatNoGpuOfTheKindCanReach) {
  const auto refused = [&](const std::string& text) {
    test::write_file(folder_ / "data.csv", text);
    return error(request({folder_ / "data.csv"}));
  };
  // 2 * 8192 * 4096 * 4096 FLOPs; an H100's peak is 989 TFLOP/s.
  EXPECT_THAT(refused("kind,M,N,K,tflops\nfwd,8192,4096,4096,600\n"
                      "dgrad,8192,4096,4096,1700\nwgrad,8192,4096,4096,600\n"),
              EndsWith("data.csv:3: a GEMM of 8192 x 4096 x 4096 runs at 1700 TFLOP/s, above the "
                       "peak of h100, 989 TFLOP/s; expected times of h100 (--gpu), in the units of "
                       "the columns"));
  // 2 * 8192^2 * 32 * 128 = 5.5e11 FLOPs in 0.3 ms.
  EXPECT_THAT(refused("direction,B,S,heads,head_dim,ms\nfwd,1,8192,32,128,0.3\n"
                      "bwd,1,8192,32,128,3\n"),
              HasSubstr("data.csv:2: attention forward over 8192 tokens runs at 1833 TFLOP/s"));
  // 7/8 GiB in 1 ms and NVLink's 450 GB/s; an all-reduce sends twice that, which switches halve.
  const std::string head = "collective,gpus,bytes,us\n";
  EXPECT_THAT(refused(head + "all_gather,8,1048576,50\nall_gather,8,1073741824,1000\n"),
              HasSubstr("data.csv:3: all_gather on 8 GPUs has a bus bandwidth of 939.5 GB/s, above "
                        "the 450 GB/s that the link of h100 can carry"));
  EXPECT_EQ(refused(head + "all_reduce,8,1048576,50\nall_reduce,8,1073741824,2200\n"), "no error");
}

TEST_F(Calibrate, RefusesRunsThatDoNotBelongTogether) {
  test::write_file(folder_ / "two.csv",
                   "collective,gpus,nodes,bytes,us\nall_gather,16,2,1048576,50\n"
                   "all_gather,16,4,1048576,50\n");
  EXPECT_THAT(error(request({folder_ / "two.csv"})),
              HasSubstr("two.csv:3: has 4 ranks on each host, an earlier run 8; give runs of one"));
  test::write_file(folder_ / "one.csv", "collective,gpus,bytes,us\nall_gather,8,1048576,50\n");
  EXPECT_THAT(error(request({folder_ / "one.csv"})), HasSubstr("one size; expected two or more"));
  const std::filesystem::path gemm = kGpus / "tables/h200_gemm_bf16.csv";
  EXPECT_EQ(error(request({gemm, gemm})),
            "--calibrate: a shape of GEMM is measured twice; give each once");
  EXPECT_THAT(error(request({gemm}, "h1000")), HasSubstr("unknown GPU \"h1000\""));
  CalibrationRequest none = request({kData / "all_reduce_16_h100.txt"});
  none.domain = 0;
  EXPECT_EQ(error(none), "--calibrate: a domain of 0 GPUs; expected 1 to 65536");
  none.domain = 5;
  EXPECT_THAT(error(none), HasSubstr("16 ranks do not fill domains of 5 GPUs"));
}

TEST_F(Calibrate, WritesAllFilesOrNone) {
  const auto calibration = calibrate(request({kData / "all_reduce_16_h100.txt"}));
  ASSERT_TRUE(calibration) << calibration.error().message();
  ASSERT_EQ(calibration->files.size(), 3u);
  // A user's file has the name of a table: it is not changed, and no other file is written.
  test::write_file(folder_ / "mine_network.csv", "my notes\n");
  const auto refused = write_calibration(*calibration);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("mine_network.csv: exists and was not written by a calibration"));
  EXPECT_EQ(folder_.file_count(), 1u);
  std::filesystem::remove(folder_ / "mine_network.csv");
  // If a cluster file cannot be written, no table is left.
  std::filesystem::create_directory(folder_ / "mine_cluster.toml");
  EXPECT_FALSE(write_calibration(*calibration));
  EXPECT_EQ(folder_.file_count(), 1u);
  std::filesystem::remove(folder_ / "mine_cluster.toml");
  // Files of a calibration are replaced, and so is the stated output, with any content.
  test::write_file(folder_ / "mine.toml", "my notes\n");
  EXPECT_TRUE(write_calibration(*calibration));
  EXPECT_TRUE(write_calibration(*calibration));
  EXPECT_EQ(folder_.file_count(), 3u);
}

TEST_F(Calibrate, IsTheSameEveryTime) {
  const auto once = calibrate(request({kData / "all_reduce_16_h200.txt"}));
  const auto again = calibrate(request({kData / "all_reduce_16_h200.txt"}));
  ASSERT_TRUE(once && again);
  ASSERT_EQ(once->files.size(), again->files.size());
  for (std::size_t i = 0; i < once->files.size(); ++i)
    EXPECT_EQ(once->files[i].content, again->files[i].content);
}

}  // namespace
}  // namespace mfsdp
