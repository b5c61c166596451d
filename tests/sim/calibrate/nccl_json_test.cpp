#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/calibrate/nccl_run.hpp"
#include "tests/sim/calibrate/samples.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;
using testing_calibrate::replaced;
using testing_calibrate::sample;

const std::string kName = "all_gather_8_gb300.json";

std::string json_error(const std::string& text) {
  const auto run = read_nccl_json(text, "f.json");
  if (!run) return run.error().message();
  const auto samples = samples_of(*run);
  return samples ? "no error" : samples.error().message();
}

TEST(NcclJson, HoldsWhatTheTextHolds) {
  const auto json = read_nccl_json(sample(kName), "f.json");
  ASSERT_TRUE(json) << json.error().message();
  const auto text = read_nccl_text(sample("all_gather_8_gb300.txt"), "f.txt");
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(json->benchmark, "all_gather");
  EXPECT_EQ(json->ranks, 8);
  EXPECT_EQ(json->nodes, 2);
  EXPECT_EQ(json->device, "NVIDIA GB300");
  const auto from_json = samples_of(*json);
  const auto from_text = samples_of(text->front());
  ASSERT_TRUE(from_json) << from_json.error().message();
  ASSERT_EQ(from_json->size(), from_text->size());
  for (std::size_t i = 0; i < from_json->size(); ++i) {
    EXPECT_EQ((*from_json)[i].bytes, (*from_text)[i].bytes);
    EXPECT_EQ((*from_json)[i].ns, (*from_text)[i].ns);
  }
}

TEST(NcclJson, CountsRanksOfProcessesWithSeveralGpus) {
  // The file lists one device of each process: eight of them with two GPUs each are 16 ranks, for
  // which 4096 bytes are not 8 x 128 floats.
  EXPECT_THAT(json_error(replaced(sample(kName), "\"ngpus\":1", "\"ngpus\":2")),
              HasSubstr("4096 bytes are not 128 elements of 4 bytes on 16 ranks"));
}

TEST(NcclJson, RefusesWhatIsCutOrWrong) {
  const std::string text = sample(kName);
  EXPECT_THAT(json_error(text.substr(0, text.size() / 2)), HasSubstr("f.json:1:"));
  EXPECT_EQ(json_error("{\"a\": 1}"),
            "f.json: unknown format: JSON without \"config\" and \"results\"; expected what "
            "nccl-tests -J writes, or a trace of PyTorch's profiler");
  EXPECT_THAT(json_error(replaced(text, "\"average_bus_bandwidth\"", "\"average\"")),
              HasSubstr("the run was cut short"));
  EXPECT_THAT(json_error(replaced(text, "\"time\":28.51", "\"cpu_time\":28.51")),
              HasSubstr("f.json: results[0].out_of_place: has CPU times"));
  EXPECT_THAT(json_error(replaced(text, "\"nwrong\":0.0", "\"nwrong\":3.0")),
              HasSubstr("f.json: results[0]: has 3 wrong values"));
  EXPECT_EQ(json_error(replaced(text, "\"nwrong\":0.0", "\"nwrong\":null")), "no error");
  EXPECT_THAT(json_error(replaced(text, "\"time\":28.51", "\"time\":\"nan\"")),
              HasSubstr("time: expected a number, got"));
  EXPECT_THAT(json_error(replaced(text, "\"size\":4096", "\"size\":-4096")),
              HasSubstr("f.json: results[0].size: expected an integer from 0 to 1000000000000000"));
  EXPECT_THAT(json_error(replaced(text, "\"count\":0", "\"count\":2")), HasSubstr("out of bounds"));
  EXPECT_THAT(json_error(replaced(text, "\"group\":0", "\"group\":1")),
              HasSubstr("split into groups"));
  EXPECT_THAT(json_error(replaced(text, "all_gather_perf", "sendrecv_perf")),
              HasSubstr("measures sendrecv"));
  EXPECT_THAT(json_error(replaced(text, "\"bandwidth\":146.046957", "\"bandwidth\":99.0")),
              HasSubstr("rows are missing or changed"));
}

}  // namespace
}  // namespace mfsdp
