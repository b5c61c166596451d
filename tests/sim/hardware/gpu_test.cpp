#include "sim/hardware/gpu.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/scenarios.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::kGpus;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const std::string kGood = R"(title = "Test"
calibration = "datasheet"
[compute]
bf16_tflops = 100
fp32_tflops = 10.0
sms = 100
gemm_scale = 0.5
attention_scale = 0.25
launch_ns = 2000
[memory]
capacity_bytes = 40000000000
gb_per_s = 1000.0
copy_fraction = 0.5
runtime_bytes = 1000000000
first_communicator_bytes = 900
communicator_bytes = 500
runtime_source = "test"
host_gb_per_s = 20
[link]
kind = "xgmi"
gb_per_s = 448
efficiency = 1
per_peer_gb_per_s = 64
domain = 8
collective_sms = 10
[node]
gpus = 8
nics = 4
nic_gb_per_s = 25
nic_latency_ns = 1000
[source]
"compute.sms" = "counted"
)";

/// kGood with one line replaced.
std::string with(const std::string& line, const std::string& other) {
  std::string text = kGood;
  const std::size_t at = text.find(line);
  EXPECT_NE(at, std::string::npos) << line;
  return text.replace(at, line.size(), other);
}

std::string error_of(const std::string& text) {
  const auto gpu = parse_gpu(text, "x.toml");
  return gpu ? "no error" : gpu.error().message();
}

/// The figures that a data sheet has.
const std::string kDataSheet = R"([compute]
bf16_tflops = 494.5
sms = 100
[memory]
capacity_bytes = "24 GB"
gb_per_s = 1000
[link]
kind = "pcie"
gb_per_s = 31
)";

TEST(ParseGpu, ReadsEveryField) {
  const auto gpu = parse_gpu(kGood, "x.toml");
  ASSERT_TRUE(gpu) << gpu.error().message();
  EXPECT_EQ(gpu->title, "Test");
  EXPECT_EQ(gpu->bf16, 100);
  EXPECT_EQ(gpu->fp32, 10);
  EXPECT_EQ(gpu->sms, 100);
  EXPECT_EQ(gpu->gemm_scale, 0.5);
  EXPECT_EQ(gpu->attention_scale, 0.25);
  EXPECT_EQ(gpu->launch, Nanos(2000));
  EXPECT_EQ(gpu->capacity, Bytes(40'000'000'000));
  EXPECT_EQ(gpu->copy_bandwidth(), 500);  // 1000 GB/s * 0.5
  EXPECT_EQ(gpu->runtime, Bytes(1'000'000'000));
  EXPECT_EQ(gpu->runtime_source, "test");
  EXPECT_EQ(runtime_bytes(*gpu, 0), Bytes(1'000'000'000));
  EXPECT_EQ(runtime_bytes(*gpu, 3), Bytes(1'000'000'000 + 900 + 2 * 500));
  EXPECT_EQ(gpu->host_bandwidth, 20);
  EXPECT_EQ(gpu->link, LinkKind::xgmi);
  EXPECT_EQ(gpu->link_bandwidth, 448);
  EXPECT_EQ(gpu->per_peer_bandwidth, 64.0);
  EXPECT_EQ(gpu->domain, 8);
  EXPECT_EQ(gpu->collective_sms, 10);
  EXPECT_EQ(gpu->gpus_per_node, 8);
  EXPECT_EQ(gpu->nics_per_node, 4);
  EXPECT_EQ(gpu->nic_bandwidth, 25);
  EXPECT_EQ(gpu->nic_latency, Nanos(1000));
  EXPECT_TRUE(gpu->tables.gemm.empty());
  ASSERT_EQ(gpu->sources.size(), 1u);
  EXPECT_EQ(gpu->sources[0].second, "counted");
}

/// A fast host by default.
TEST(ParseGpu, TheHostMayBeNamed) {
  EXPECT_EQ(parse_gpu(kGood, "g.toml")->host_launch, kHostLaunch);
  EXPECT_EQ(parse_gpu(kGood, "g.toml")->l2, kUsualL2);
  const std::string slow = with("nics = 4\n", "nics = 4\nhost_launch_ns = 9000\n");
  EXPECT_EQ(parse_gpu(slow, "g.toml")->host_launch, Nanos(9000));
  const auto wrong = parse_gpu(with("nics = 4\n", "nics = 4\nhost_launch_ns = -1\n"), "g.toml");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message(), HasSubstr("node.host_launch_ns"));
}

/// Without the key nothing is known.
TEST(ParseGpu, StatesWhatMatrixUnitsMultiply) {
  EXPECT_TRUE(parse_gpu(kGood, "g.toml")->formats.empty());
  const auto of = [](const std::string& lines) {
    return parse_gpu(with("sms = 100\n", "sms = 100\n" + lines), "g.toml");
  };
  const auto gpu = of("matmul_formats = \"bf16, fp8, nvfp4\"\nnvfp4_tflops = 400\n");
  ASSERT_TRUE(gpu) << gpu.error().message();
  EXPECT_TRUE(gpu->multiplies(MatmulFormat::fp8));
  EXPECT_FALSE(gpu->multiplies(MatmulFormat::mxfp8));
  EXPECT_EQ(gpu->nvfp4, 400);
  EXPECT_EQ(format_list(gpu->formats), "bf16, fp8, nvfp4");
  const auto unknown = of("matmul_formats = \"bf16, fp9\"\n");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message(), HasSubstr("must list formats, separated by"));
  const auto without_rate = of("matmul_formats = \"bf16, nvfp4\"\n");
  ASSERT_FALSE(without_rate);
  EXPECT_THAT(without_rate.error().message(), HasSubstr("compute.nvfp4_tflops"));
}

TEST(ParseGpu, RecipesNeedTheirNumbers) {
  Gpu gpu = parse_gpu(with("sms = 100\n", "sms = 100\nmatmul_formats = \"bf16, fp8\"\n"), "g.toml")
                .value();
  gpu.name = "g";
  EXPECT_TRUE(check_format(Fp8Recipe::off, gpu));
  EXPECT_TRUE(check_format(Fp8Recipe::delayed, gpu));
  EXPECT_EQ(check_format(Fp8Recipe::mxfp8, gpu).error().message(),
            "--fp8: expected a recipe whose numbers the GPU multiplies, got mxfp8, which needs "
            "mxfp8: g multiplies bf16, fp8");
  gpu.formats.clear();
  EXPECT_EQ(check_format(Fp8Recipe::current, gpu).error().message(),
            "--fp8: expected a recipe whose numbers the GPU multiplies, got current, which needs "
            "fp8: the file of g does not state what its matrix units multiply "
            "(compute.matmul_formats)");
}

TEST(ParseGpu, ErrorsNameLineKeyAndExpectation) {
  EXPECT_EQ(error_of(with("sms = 100", "sms = \"many\"")),
            "x.toml:6: compute.sms must be an integer from 1 to 65536");
  EXPECT_EQ(error_of(with("sms = 100\n", "")),
            "x.toml: compute.sms is missing; expected an integer from 1 to 65536, such as 128");
  EXPECT_EQ(error_of(with("sms = 100", "smss = 100")),
            "x.toml:6: unknown key \"compute.smss\"; the closest is \"compute.sms\"");
  EXPECT_EQ(error_of(with("bf16_tflops = 100", "bf16_tflops = 0")),
            "x.toml:4: compute.bf16_tflops is 0; expected a number from 0.01 to 1000000");
  EXPECT_EQ(error_of(with("launch_ns = 2000", "launch_ns = -1")),
            "x.toml:9: compute.launch_ns is -1; expected a number from 0 to 1000000000");
  EXPECT_EQ(error_of(with("\"xgmi\"", "\"carrier\"")),
            "x.toml:20: link.kind must be nvlink, pcie or xgmi");
  EXPECT_EQ(error_of(with("title = \"Test\"", "title = 3")),
            "x.toml:1: title must be text in quotes, not empty");
  EXPECT_EQ(error_of(with("runtime_bytes = 1000000000", "runtime_bytes = 40000000000")),
            "x.toml:14: memory.runtime_bytes must be less than memory.capacity_bytes");
  EXPECT_EQ(error_of(with("collective_sms = 10", "collective_sms = 101")),
            "x.toml:25: link.collective_sms must not exceed compute.sms");
  EXPECT_THAT(error_of(with("title = \"Test\"\n",
                            "title = \"Test\"\npower.limit_w = 1\npower.tables_w = 700\n")),
              HasSubstr("x.toml:2: power.limit_w must be at least 0.35 of power.tables_w"));
}

TEST(ParseGpu, RejectsAbsurdNumbers) {
  for (const std::string value : {"nan", "inf", "-inf", "1e300", "-5", "0", "true", "[1]", "\"9\"",
                                  "1979-05-27", "{a = 1}"}) {
    EXPECT_THAT(error_of(with("gb_per_s = 1000.0", "gb_per_s = " + value)),
                HasSubstr("memory.gb_per_s"))
        << value;
    EXPECT_THAT(error_of(with("gb_per_s = 1000.0", "gb_per_s = " + value)), Not(HasSubstr("\n")));
  }
}

TEST(ParseGpu, RejectsWhatIsNotToml) {
  EXPECT_THAT(error_of("title = \"a\"\nsms ="), HasSubstr("x.toml:2: not TOML: "));
  EXPECT_THAT(error_of("title = 1\ntitle = 2"), HasSubstr("x.toml:2: not TOML: "));
  EXPECT_EQ(error_of("# \u00b5s\nlength = 1 \u00b5m"),
            "x.toml:2: holds a character beyond ASCII outside a comment");
  EXPECT_EQ(error_of("\xEF\xBB\xBF# \u00b5s\n" + kGood), "no error");     // byte order mark
  EXPECT_THAT(error_of("[# no key"), HasSubstr("x.toml:1: not TOML: "));  // found by fuzzing
}

TEST(ParseGpu, ASourceNamesAKey) {
  EXPECT_EQ(error_of(with("\"compute.sms\" =", "\"compute.sns\" =")),
            "x.toml:32: source.compute.sns is the source of no key; the closest is "
            "\"compute.sms\"");
}

TEST(ParseGpu, TablesAreAllOrNone) {
  EXPECT_EQ(
      error_of(kGood + "[tables]\ngemm = \"a.csv\"\n"),
      "x.toml: 2 keys are missing: tables.attention (text in quotes), tables.collective (text "
      "in quotes)");
}

TEST(ParseGpu, DataSheetFiguresAreEnoughAndTheRestIsNamed) {
  const auto gpu = parse_gpu(kDataSheet, "x.toml");
  ASSERT_TRUE(gpu) << gpu.error().message();
  EXPECT_EQ(gpu->capacity, Bytes(24'000'000'000));
  EXPECT_EQ(gpu->calibration, "datasheet");
  EXPECT_EQ(gpu->gemm_scale, 0.5);  // 494.5 of the H200's 989 TFLOP/s
  EXPECT_EQ(gpu->attention_scale, 0.5);
  EXPECT_FALSE(gpu->power);
  for (const char* assumed : {"compute.gemm_scale 0.5", "compute.launch_ns 3000",
                              "memory.host_gb_per_s 25.42", "node.nics 2"})
    EXPECT_THAT(gpu->assumed, Contains(assumed));
  EXPECT_TRUE(parse_gpu(kGood, "x.toml")->assumed.empty());
}

TEST(ParseGpu, AllMissingFiguresAreNamedAtOnceWithAnExample) {
  EXPECT_EQ(
      error_of(""),
      "x.toml: 6 keys are missing: compute.bf16_tflops (a number from 0.01 to 1000000, such as "
      "165.2: dense, with FP32 accumulation), compute.sms (an integer from 1 to 65536, such as "
      "128), memory.capacity_bytes (an integer from 1000000 to 1000000000000000, such as \"24 "
      "GB\"), memory.gb_per_s (a number from 0.01 to 1000000, such as 1008), link.kind (text "
      "in quotes, such as \"pcie\"), link.gb_per_s (a number from 0.01 to 1000000, such as "
      "31: to all peers together, per direction)");
  EXPECT_EQ(error_of("gpu = \"h100\"\ngpus = 8\n"),
            "x.toml: describes a cluster, as it names a gpu: give it to --cluster; --gpu takes the "
            "file of one GPU, with [compute], [memory] and [link]");
  EXPECT_THAT(error_of(with("capacity_bytes = 40000000000", "capacity_bytes = \"40 G\"")),
              HasSubstr("must be a whole number of bytes, or text such as \"24 GB\""));
}

TEST(ParseGpu, PowerIsStatedOrLeftToTheOwner) {
  const auto stated = parse_gpu(kDataSheet + "[power]\nlimit_w = 300\n", "x");
  ASSERT_TRUE(stated) << stated.error().message();
  EXPECT_EQ(stated->power, (PowerLimits{.own = 300, .tables = 300}));
  const auto owner =
      parse_gpu(kDataSheet + "[power]\nleast_w = 450\nmost_w = 1000\ntables_w = 700\n", "x");
  ASSERT_TRUE(owner) << owner.error().message();
  EXPECT_EQ(owner->owner_sets_power, (PowerRange{.least = 450, .most = 1000}));
  EXPECT_EQ(owner->power, (PowerLimits{.own = 700, .tables = 700}));
  for (const std::string bad :
       {"tables_w = 700", "least_w = 450\ntables_w = 700", "least_w = 450\nmost_w = 1000",
        "least_w = 9\nmost_w = 8\ntables_w = 7",
        "limit_w = 1\nleast_w = 1\nmost_w = 2\ntables_w = 1"})
    EXPECT_THAT(error_of(kDataSheet + "[power]\n" + bad + "\n"), HasSubstr("power.")) << bad;
}

TEST(ParseGpu, SaysWhichPartsWereMeasured) {
  EXPECT_EQ(parse_gpu(kGood, "x")->measured, MeasuredParts{});
  EXPECT_EQ(parse_gpu(with("\"datasheet\"", "\"measured\""), "x")->measured,
            (MeasuredParts{.gemm = true, .attention = true, .collective = true}));
  const std::string some = "calibration = \"datasheet\"\nmeasured = ";
  EXPECT_EQ(
      parse_gpu(with("calibration = \"datasheet\"", some + "\"collective, gemm\""), "x")->measured,
      (MeasuredParts{.gemm = true, .collective = true}));
  for (const std::string bad : {"\"gem\"", "\"gemm,attention\"", "\"gemm, \"", "\", gemm\""})
    EXPECT_EQ(error_of(with("calibration = \"datasheet\"", some + bad)),
              "x.toml:3: measured must list measured parts, separated by \", \": gemm, attention, "
              "collective")
        << bad;
}

TEST(ParseGpu, TablesMayBeOfAnotherGpuAndOfANetwork) {
  EXPECT_EQ(parse_gpu(kGood, "x")->table_sms, 132);
  const auto gpu = parse_gpu(kGood + "[tables]\nsms = 148\nnetwork = \"n.csv\"\n", "x");
  ASSERT_TRUE(gpu) << gpu.error().message();
  EXPECT_EQ(gpu->table_sms, 148);
  EXPECT_EQ(gpu->tables.network, "n.csv");
  EXPECT_TRUE(gpu->tables.gemm.empty());
  EXPECT_THAT(error_of(kGood + "[tables]\nsms = 1.5\n"),
              HasSubstr("tables.sms must be an integer from 1 to 65536"));
}

TEST(LoadGpu, EveryCatalogueEntryIsReadableAndNamesItsSources) {
  const auto names = list_gpus(kGpus);
  ASSERT_TRUE(names) << names.error().message();
  for (const std::string& name : *names) {
    const auto gpu = load_gpu(name, kGpus);
    ASSERT_TRUE(gpu) << gpu.error().message();
    EXPECT_EQ(gpu->name, name);
    EXPECT_EQ(gpu->calibration, name == "h200" ? "measured" : "datasheet");
    EXPECT_EQ(assumed_statement(*gpu), "");  // a file of the catalogue states every value
    EXPECT_FALSE(gpu->runtime_source.empty());
    for (const std::string key : {"compute.bf16_tflops", "compute.fp32_tflops", "compute.sms",
                                  "compute.gemm_scale", "memory.capacity_bytes", "memory.gb_per_s",
                                  "link.gb_per_s", "link.efficiency", "node.nics"})
      EXPECT_THAT(gpu->sources, Contains(testing::Pair(key, Not("")))) << name;
    EXPECT_TRUE(std::filesystem::exists(gpu->tables.collective)) << gpu->tables.collective;
  }
}

/// Ratios that no GPU since 2020 leaves: a figure of another unit, with sparsity, or of both
/// directions would.
TEST(LoadGpu, FiguresOfTheCatalogueAreOfTheirUnits) {
  const auto names = list_gpus(kGpus);
  for (const std::string& name : *names) {
    const Gpu gpu = load_gpu(name, kGpus).value();
    const auto between = [&](double value, double least, double most, const char* what) {
      EXPECT_TRUE(value >= least && value <= most) << name << ": " << what << " " << value;
    };
    const auto sms = static_cast<double>(gpu.sms);
    between(gpu.bf16 / sms, 1.2, 17, "TFLOP/s of a multiprocessor");
    between(gpu.fp32 / gpu.bf16, 0.02, 0.51, "FP32 of bf16");
    between(gpu.memory_bandwidth / gpu.bf16, 1.7, 33, "GB/s a TFLOP/s");
    between(static_cast<double>(gpu.capacity.value) / 1e9, 23, 310, "GB");
    // The H200's table has 699 TFLOP/s at most.
    between(699 * gpu.gemm_scale / gpu.bf16, 0.45, 1, "best GEMM of the peak");
    if (gpu.link == LinkKind::pcie)
      between(gpu.link_bandwidth, 25, 63, "GB/s of PCIe");
    else
      between(gpu.link_bandwidth, 200, 900, "GB/s per direction");
    if (gpu.per_peer_bandwidth)
      between(*gpu.per_peer_bandwidth * static_cast<double>(gpu.domain - 1) / gpu.link_bandwidth,
              0.99, 1.01, "links to peers together");
    if (gpu.power) between(gpu.power->tables / sms, 1.3, 10, "watts of a multiprocessor");
  }
}

TEST(LoadGpu, NamesAsPeopleWriteThem) {
  for (const auto& [asked, name] :
       {std::pair{"H100", "h100"}, std::pair{"A100-80GB", "a100_80"},
        std::pair{"a100_40gb", "a100_40"}, std::pair{"MI300X", "mi300x"},
        std::pair{"RTX 4090", "rtx_4090"}, std::pair{"H100-PCIe", "h100_pcie"}})
    EXPECT_EQ(load_gpu(asked, kGpus)->name, name);
  const auto several = load_gpu("A100", kGpus);
  ASSERT_FALSE(several);
  EXPECT_EQ(several.error().message(),
            "--gpu: \"A100\" is a100_40 or a100_80 or a100_80_pcie: name one of them");
}

TEST(LoadGpu, OnlyCudaDevicesHaveCudaLibraries) {
  for (const char* name : {"mi300x", "mi325x"})
    EXPECT_THAT(
        load_gpu(name, kGpus)->runtime_source,
        testing::AllOf(HasSubstr("RCCL"), Not(HasSubstr("cuBLAS")), Not(HasSubstr("cuDNN"))));
}

/// mfsdp-exec's own kernels of attention are for compute capability 9.0.
TEST(LoadGpu, OwnKernelsOfAttentionAreHoppers) {
  const auto names = list_gpus(kGpus);
  for (const std::string& name : *names) {
    const std::filesystem::path table = load_gpu(name, kGpus)->tables.attention_warpgroups;
    const bool hopper = name.starts_with("h") || name.starts_with("gh");
    EXPECT_EQ(table.filename(), hopper ? "h200_attention_warpgroups.csv" : "") << name;
    EXPECT_EQ(std::filesystem::exists(table), hopper) << name;
  }
}

TEST(LoadGpu, KnowsTheH200) {
  const auto gpu = load_gpu("h200", kGpus);
  ASSERT_TRUE(gpu) << gpu.error().message();
  EXPECT_EQ(gpu->capacity, Bytes(150'109'880'320));  // device property
  EXPECT_EQ(gpu->bf16, 989);
  EXPECT_NEAR(gpu->copy_bandwidth(), 4238, 1);  // GB/s, the largest copy measured
}

TEST(LoadGpu, TakesAFile) {
  const auto gpu = load_gpu((kGpus / "h100.toml").string(), "/nowhere");
  ASSERT_TRUE(gpu) << gpu.error().message();
  EXPECT_EQ(gpu->name, "h100");
}

TEST(LoadGpu, AFileMayBeLikeAnotherGpu) {
  const test::ScratchFolder folder;
  const auto load = [&](const std::string& name, const std::string& text) {
    test::write_file(folder / name, text);
    return load_gpu((folder / name).string(), kGpus);
  };
  const auto like =
      load("a.toml", "like = \"h200\"\nmemory.gb_per_s = 4000\npower.limit_w = 600\n");
  ASSERT_TRUE(like) << like.error().message();
  EXPECT_EQ(like->title, "a");
  EXPECT_EQ(like->calibration, "datasheet");  // the H200's own is "measured"
  EXPECT_EQ(like->memory_bandwidth, 4000);
  EXPECT_EQ(like->sms, 132);
  EXPECT_EQ(like->power, (PowerLimits{.own = 600, .tables = 700}));
  EXPECT_EQ(like->tables.gemm, kGpus / "tables/h200_gemm_bf16.csv");
  EXPECT_THAT(like->sources, Not(Contains(testing::Key("memory.gb_per_s"))));
  EXPECT_EQ(load("b.toml", "like = \"a.toml\"\nlink.gb_per_s = 200\n")->memory_bandwidth, 4000);
  EXPECT_THAT(load("c.toml", "like = \"h2oo\"\n").error().message(),
              HasSubstr("c.toml: like: unknown GPU \"h2oo\"; the closest is \"h200\""));
  EXPECT_THAT(load("d.toml", "like = \"d.toml\"\n").error().message(),
              HasSubstr("d.toml: like: more than 4 files name each other"));
}

TEST(LoadGpu, TablesBesideTheFileComeFirstThenTheCatalogue) {
  namespace fs = std::filesystem;
  const test::ScratchFolder folder;
  fs::copy_file(kGpus / "h100.toml", folder / "my.toml");
  const std::string mine = (folder / "my.toml").string();
  const auto copied = load_gpu(mine, kGpus);
  ASSERT_TRUE(copied) << copied.error().message();
  EXPECT_EQ(copied->tables.gemm, kGpus / "tables/h200_gemm_bf16.csv");
  fs::create_directory(folder / "tables");
  fs::copy_file(kGpus / "tables/h200_gemm_bf16.csv", folder / "tables/h200_gemm_bf16.csv");
  EXPECT_EQ(load_gpu(mine, kGpus)->tables.gemm, folder / "tables/h200_gemm_bf16.csv");
  EXPECT_EQ(load_gpu(mine, kGpus)->tables.collective, kGpus / "tables/h200_nccl.csv");
  EXPECT_EQ(load_gpu(mine, "/nowhere")->tables.collective, folder / "tables/h200_nccl.csv");
}

TEST(LoadGpu, NamesTheClosestAndTheMissing) {
  const auto misspelt = load_gpu("h10", kGpus);
  ASSERT_FALSE(misspelt);
  EXPECT_THAT(misspelt.error().message(),
              HasSubstr("--gpu: unknown GPU \"h10\"; the closest is \"h100\""));
  EXPECT_EQ(misspelt.error().fault, Fault::input);
  // Vendors, forms and sizes beside a name; another number is another GPU.
  for (const auto& [asked, meant] : {std::pair{"NVIDIA-H100-SXM", "h100"},
                                     {"nvidia_a100_80gb", "a100_80"},
                                     {"h1oo", "h100"},
                                     {"4090", "rtx_4090"},
                                     {"b20", "b200"}})
    EXPECT_THAT(load_gpu(asked, kGpus).error().message(),
                HasSubstr(fmt::format("unknown GPU \"{}\"; the closest is \"{}\"", asked, meant)));
  for (const char* asked : {"rtx3090", "h900", "v100", "tpu"})
    EXPECT_THAT(load_gpu(asked, kGpus).error().message(),
                HasSubstr("the catalogue has nothing like it (--list-gpus shows all"))
        << asked;
  const auto missing = load_gpu("/nowhere/x.toml", kGpus);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message(),
            "/nowhere/x.toml: cannot be opened: No such file or directory");
  const auto folder = load_gpu(kGpus.string() + "/", kGpus);
  ASSERT_FALSE(folder);
  EXPECT_THAT(folder.error().message(), HasSubstr("got a directory"));
  const auto catalogue = list_gpus("/nowhere");
  ASSERT_FALSE(catalogue);
  EXPECT_EQ(catalogue.error().fault, Fault::environment);
}

}  // namespace
}  // namespace mfsdp
