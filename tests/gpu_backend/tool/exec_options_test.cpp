#include "gpu_backend/tool/exec_options.hpp"

#include <gmock/gmock.h>

namespace mfsdp {
namespace {

TEST(DataFlags, AWeightFollowsTheLastColon) {
  const auto expect = [](const char* text, const char* path, double weight) {
    const DataFlag read = parse_data(text).value();
    EXPECT_EQ(read.path, path) << text;
    EXPECT_EQ(read.weight, weight) << text;
  };
  expect("a.jsonl", "a.jsonl", 1);
  expect("a.jsonl:0.7", "a.jsonl", 0.7);
  expect("a:b:2", "a:b", 2);
  expect("a:b", "a:b", 1);  // no number
  expect("a:0", "a:0", 1);  // no weight
  expect(":3", ":3", 1);    // no path
  expect("synthetic:1e-2", "synthetic", 0.01);
  const auto none = parse_data(std::string(MFSDP_SOURCE_DIR) + ":0");  // which is there
  EXPECT_THAT(none.error().message(), testing::HasSubstr("--data: '0' is not a number"));
}

TEST(DataFlags, SchedulesAndEpochsAreNotContradicted) {
  const auto said = [](std::vector<std::string> args) {
    args.insert(args.end(), {"--model", "llama_nano", "--data", "a"});
    const auto options = parse_exec_options(args);
    return options ? "accepted" : options.error().message();
  };
  EXPECT_EQ(said({"--epochs", "2", "--warmup", "50"}), "accepted");
  EXPECT_EQ(said({"--epochs", "2", "--steps", "50"}),
            "--epochs: contradicts --steps: name one of them");
  EXPECT_EQ(said({"--lr-schedule", "constant", "--min-lr", "1e-5"}),
            "--min-lr: contradicts --lr-schedule constant");
  EXPECT_EQ(said({"--decay-steps", "2"}), "--decay-steps: needs --lr-schedule wsd");
  EXPECT_EQ(said({"--lr-schedule", "wsd", "--decay-steps", "9", "--warmup", "2"}),
            "--decay-steps: 9 steps and 2 of warm-up are more than --steps 10");
}

}  // namespace
}  // namespace mfsdp
