#include "sim/calibrate/measurements.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "core/base/file_descriptor.hpp"
#include "tests/sim/calibrate/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;
using testing_calibrate::kData;
using testing_calibrate::kGpus;
using testing_calibrate::sample;

class ReadMeasurements : public testing::Test {
 protected:
  std::string error(const std::string& content) {
    test::write_file(folder_ / "f", content);
    const std::vector<std::filesystem::path> files{folder_ / "f"};
    const auto data = read_measurements(files);
    if (data) return "no error";
    const std::string message = data.error().message();
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_TRUE(message.starts_with(files.front().string())) << message;
    return message.substr(files.front().string().size());
  }

  test::ScratchFolder folder_;
};

TEST_F(ReadMeasurements, RecognisesEveryKindByItsContent) {
  const std::vector<std::filesystem::path> files{
      kGpus / "tables/h200_gemm_bf16.csv", kGpus / "tables/h200_attention_bf16.csv",
      kGpus / "tables/h200_nccl.csv", kGpus / "tables/h200_copy.csv",
      kData / "all_reduce_16_h200.txt"};
  const auto data = read_measurements(files);
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_EQ(data->gemm.size(), 114u);
  EXPECT_EQ(data->attention.size(), 24u);
  EXPECT_EQ(data->collectives.size(), 27u * 3 + 25);
  EXPECT_EQ(data->copies.size(), 7u);
  EXPECT_EQ(data->collective_files.size(), 2u);
  EXPECT_EQ(data->devices, std::vector<std::string>{"NVIDIA H200"});
}

TEST_F(ReadMeasurements, ReadsPlainCsvOfCollectives) {
  EXPECT_EQ(error("collective,gpus,bytes,us\nall_gather,8,1048576,30\n"), "no error");
  EXPECT_EQ(error("collective,gpus,nodes,bytes,busbw_gb_per_s\nall_gather,16,2,1048576,30\n"),
            "no error");
}

TEST_F(ReadMeasurements, ReadsPipes) {  // which can be read once
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  constexpr std::string_view kTable = "collective,gpus,bytes,us\nall_gather,8,1048576,30\n";
  ASSERT_EQ(::write(writer.number(), kTable.data(), kTable.size()), std::ssize(kTable));
  writer.close();
  const std::vector<std::filesystem::path> files{fmt::format("/dev/fd/{}", reader.number())};
  const auto data = read_measurements(files);
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_EQ(data->collectives.size(), 1u);
}

TEST_F(ReadMeasurements, RefusesWhatIsNoMeasurement) {
  EXPECT_THAT(error(""), HasSubstr(": is empty; expected measurements"));
  EXPECT_THAT(error(" \n\t\n"), HasSubstr(": is empty; expected measurements"));
  EXPECT_THAT(error(std::string("n,mbytes\0,ag_ms", 15)),
              HasSubstr(": unknown format: holds binary data; expected text"));
  EXPECT_THAT(error("\xff\xfe\x00"),
              HasSubstr(": unknown format: holds binary data; expected text"));
  EXPECT_THAT(error("# mine\n m,n,k,us\r\n1,2,3,4\n"),
              HasSubstr(": unknown format: first line is \"m,n,k,us\"; expected one of: output of "
                        "nccl-tests"));
  EXPECT_THAT(error("hello\n"), HasSubstr(": unknown format: first line is \"hello\"; "));
  EXPECT_THAT(error("# Title\n\nProse, of some kind, and more\n\nrest\n"),
              HasSubstr(": unknown format: first line is \"Prose, of some kind, and more\"; "));
  EXPECT_THAT(error("# notes\n# alone\n"), HasSubstr(": unknown format: every line is a note; "));
  EXPECT_THAT(error(std::string(100, 'x') + "\n"),
              HasSubstr("first line is \"" + std::string(60, 'x') + "...\"; "));
  // A line that begins with a bracket is no table of TOML yet, nor one with " = " a key.
  EXPECT_THAT(error("[1,0]<stdout>: started\n"), HasSubstr(": unknown format: first line is \"[1"));
  EXPECT_THAT(error("loss of step 1 = 3.5\n"), HasSubstr(": unknown format: first line is \"loss"));
  EXPECT_THAT(
      error("title = \"H100, SXM, 80 GB\"\n[compute]\nsms = 132\n"),
      HasSubstr(": is TOML, as for --gpu or --cluster; expected one of: output of nccl-tests"));
  EXPECT_THAT(error("[compute]\nsms = 132\n"), HasSubstr(": is TOML, as for --gpu"));
  EXPECT_THAT(error("bytes_moved,ms\n"), HasSubstr(": holds no table; expected a header and rows"));
  EXPECT_THAT(error("{\"a\":"), HasSubstr(":1:"));
  EXPECT_THAT(error(std::string((std::size_t{64} << 20) + 1, 'x')), HasSubstr("more than 64 MiB"));
  const std::vector<std::filesystem::path> none{folder_ / "none"};
  EXPECT_THAT(read_measurements(none).error().message(), HasSubstr("No such file"));
  EXPECT_FALSE(read_measurements({}));
}

TEST_F(ReadMeasurements, SkipsAByteOrderMark) {
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(error(mark + "collective,gpus,bytes,us\nall_gather,8,1048576,30\n"), "no error");
  EXPECT_EQ(error(mark + "# note\nbytes_moved,ms\n1e9,0.25\n"), "no error");
  EXPECT_EQ(error(mark + sample("all_reduce_16_h100.txt")), "no error");
  EXPECT_EQ(error(mark + sample("all_gather_8_gb300.json")), "no error");
}

TEST_F(ReadMeasurements, RefusesWhatHoldsSeveralKinds) {
  const std::string text = sample("all_reduce_16_h100.txt");
  const std::string csv = "collective,gpus,bytes,us\nall_gather,8,1048576,30\n";
  EXPECT_THAT(error(text + csv),
              HasSubstr(": starts a CSV in the output of nccl-tests; give each as a file"));
  EXPECT_THAT(error(csv + text), HasSubstr(":1: starts a CSV in the output of nccl-tests"));
  EXPECT_THAT(error(text + sample("all_gather_8_gb300.json")),
              HasSubstr(": holds nccl-tests' text and its JSON; give each as a file"));
  EXPECT_EQ(error(text + "done, after a while, with n of them\n"), "no error");
}

TEST_F(ReadMeasurements, RefusesTablesWhoseUnitsDoNotFit) {
  // 2 * 1024^3 FLOP in 0.004 ms are 536.87 TFLOP/s.
  const std::string gemm = "kind,M,N,K,ms,tflops\nfwd,1024,1024,1024,0.004,";
  const std::string rest = "\ndgrad,1024,1024,1024,0.004,536.9\nwgrad,1024,1024,1024,0.004,536.9\n";
  EXPECT_EQ(error(gemm + "536.9" + rest), "no error");
  EXPECT_EQ(error(gemm + "0.5369" + rest),
            ":2: tflops is 0.5369, but the row's time makes 536.9; the units do not fit");
  // 2 * 1 * 1024^2 * 8 * 128 FLOP in 0.01 ms: 214.7 TFLOP/s forward, half of the square.
  EXPECT_THAT(error("direction,B,S,heads,head_dim,ms,tflops_causal\nfwd,1,1024,8,128,0.01,429.4\n"
                    "bwd,1,1024,8,128,0.05,107.4\n"),
              HasSubstr(":2: tflops_causal is 429.4, but the row's time makes 214.7"));
  // 7/8 MiB in 0.03 ms: 30.6 GB/s.
  const std::string nccl = "n,mbytes,ag_ms,rs_ms,ar_ms,ag_busbw\n8,1,0.03,0.03,0.05,";
  EXPECT_EQ(error(nccl + "30.6\n"), "no error");
  EXPECT_THAT(error(nccl + "245\n"), HasSubstr(":2: ag_busbw is 245"));
  EXPECT_THAT(error("bytes_moved,ms,TB_per_s\n1e9,0.25,40\n"), HasSubstr("TB_per_s is 40"));
}

TEST_F(ReadMeasurements, RefusesNumbersThatAreNone) {
  for (const char* bad : {"nan", "-1", "0", "inf", "", "1e13", "x"})
    EXPECT_THAT(error(std::string("bytes_moved,ms\n1000,") + bad + "\n"),
                HasSubstr(std::string(":2: ms is \"") + bad + "\"; expected a number above 0"))
        << bad;
  EXPECT_THAT(error("collective,gpus,bytes,us\nall_gather,8.5,1,1\n"),
              HasSubstr("gpus is \"8.5\"; expected an integer"));
  EXPECT_THAT(error("collective,gpus,nodes,bytes,us\nall_gather,8,3,1,1\n"),
              HasSubstr("has 8 GPUs on 3 nodes"));
  EXPECT_THAT(error("collective,gpus,bytes,us\nbroadcast,8,1,1\n"),
              HasSubstr("collective is \"broadcast\"; expected all_gather, all_reduce or"));
  EXPECT_THAT(error("collective,gpus,bytes\nall_gather,8,1\n"),
              HasSubstr("must have one of the columns us and busbw_gb_per_s"));
}

TEST_F(ReadMeasurements, RefusesFilesOfSeveralGpus) {
  const std::vector<std::filesystem::path> files{kData / "all_reduce_16_h200.txt",
                                                 kData / "all_reduce_16_h100.txt"};
  const auto data = read_measurements(files);
  ASSERT_FALSE(data);
  EXPECT_EQ(data.error().message(),
            "--calibrate: the files are of several GPUs: NVIDIA H200, NVIDIA H100 80GB HBM3; give "
            "those of one");
}

}  // namespace
}  // namespace mfsdp
