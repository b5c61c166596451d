#include "reports/record/parse_result.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/record/result_json.hpp"
#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

TEST(ParseResults, OneObjectASweepOrLines) {
  const RunResult run(test::sample_run());
  const std::string line = to_json_line(run);
  const auto count = [](const std::string& text) {
    const auto runs = parse_results(text, "out");
    return runs ? runs->size() : 0;
  };
  EXPECT_EQ(count(to_json(run)), 1U);
  EXPECT_EQ(count(R"({"schema": "mfsdp.sweep/1", "results": [)" + line + "," + line + "]}"), 2U);
  EXPECT_EQ(count(line + "\n" + line + "\n"), 2U);
  EXPECT_EQ(count("starting\n{\"event\": \"step\"}\n" + line), 1U);
  EXPECT_EQ(parse_results("step 1\n", "out").error().message(),
            "out: holds no result: expected what --output json or jsonl prints");
  EXPECT_FALSE(parse_results("", "out"));
}

/// Fields that only some models have are present for those, and are read back.
TEST(ParseResults, ModelsKeepTheirAttention) {
  PredictedRun run = test::sample_run();
  EXPECT_EQ(to_json(run).find("sliding_window"), std::string::npos);
  ModelShape& model = run.config.model;
  model.sliding_window = 4096;
  model.sliding_layers = {0, 2, 31};
  model.local_rope_theta = {10000, 1};
  model.query_scalar = {1, 3};  // no decimal stands for it
  model.score_cap = {50, 1};
  model.logit_cap = {61, 2};
  model.rotary_dim = 64;
  model.fused_weights = true;
  model.rope_scaling = {.kind = RopeKind::longrope,
                        .factor = {2, 1},
                        .original_max_seq_len = 4096,
                        .attention_factor = {5, 4},
                        .short_factors = std::vector<Rational>(32, {3, 2}),
                        .long_factors = std::vector<Rational>(32, {1, 3})};
  const auto read = parse_results(to_json_line(run), "out");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->front().config.model, model);
}

/// Only where a routing was asked for.
TEST(ParseResults, RoutingsComeBack) {
  PredictedRun run = test::sample_run();
  EXPECT_EQ(to_json(run).find("slowest_rank"), std::string::npos);
  RoutingReport routing{.routing = "zipf:1", .slowest_rank = 3, .slowest_block = 2};
  routing.rows = 2000;
  routing.mean_rows = 1024;
  routing.tiled_rows = 2176;
  routing.imbalance = 1.953125;
  routing.busiest_expert = 6;
  routing.expert_imbalance = 2.5;
  run.routing = routing;
  const auto alone = parse_results(to_json_line(run), "out");
  ASSERT_TRUE(alone) << alone.error().message();
  EXPECT_EQ(alone->front().predicted()->routing, routing);
  run.routing->room = {.rows = 320,
                       .needed = 500,
                       .holds = false,
                       .least_factor = {1'949'219, 1'000'000},
                       .least_allocated = Bytes(170),
                       .least_fits = true};
  const auto read = parse_results(to_json_line(run), "out");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->front().predicted()->routing, run.routing);
}

/// Only engines with a caching allocator have these.
TEST(ParseResults, CachedMemoryComesBack) {
  PredictedRun run = test::sample_run();
  EXPECT_EQ(to_json(run).find("reserved_bytes"), std::string::npos);
  CachedMemory cached{.reserved = Bytes(150), .device = Bytes(170), .retries = 3, .certain = false};
  cached.errors = {.allocated = 0.001, .reserved = 0.01, .device = 0.02, .source = "runs"};
  cached.fits_certain = false;
  run.memory.cached = cached;
  run.time.host = {.issue = Nanos(40), .bound = Nanos(5)};
  const auto read = parse_results(to_json_line(run), "out");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->front().memory.cached, cached);
  EXPECT_EQ(read->front().time.host, run.time.host);
  EXPECT_EQ(read->front().memory.deciding(), Bytes(170));
}

/// `fits_certain` had the present meaning of `verdict_certain`.
TEST(ParseResults, EarlierVerdictsComeBack) {
  PredictedRun run = test::sample_run();
  run.memory.cached = CachedMemory{.reserved = Bytes(150)};
  auto json = nlohmann::json::parse(to_json(RunResult(run)));
  EXPECT_TRUE(json["memory"]["fits_certain"].is_null());  // no error is known
  json["memory"].erase("verdict_certain");
  json["memory"]["fits_certain"] = false;
  const auto read = parse_results(json.dump(), "out");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_FALSE(read->front().memory.cached->certain);
  EXPECT_EQ(read->front().memory.cached->fits_certain, std::nullopt);
}

/// A figure that cannot be: of a result that was edited, or in other units.
TEST(ParseResults, WhatCannotBeIsAnError) {
  const auto error_with = [](std::string_view object, std::string_view key, nlohmann::json value) {
    auto json = nlohmann::json::parse(to_json(RunResult(test::sample_run())));
    json[object][key] = std::move(value);
    const auto read = parse_results(json.dump(), "out");
    return read ? "" : read.error().message();
  };
  EXPECT_EQ(error_with("time", "mfu", 0.55), "");
  EXPECT_EQ(error_with("time", "mfu", 55), "out.time.mfu: expected a fraction from 0 to 2");
  EXPECT_EQ(error_with("time", "overlap_fraction", 7),
            "out.time.overlap_fraction: expected a fraction from 0 to 1");
  EXPECT_EQ(error_with("time", "overlap_fraction", -0.5),
            "out.time.overlap_fraction: expected a fraction from 0 to 1");
  EXPECT_EQ(error_with("time", "tokens_per_second_per_gpu", -1),
            "out.time.tokens_per_second_per_gpu: expected a number of at least 0");
  const std::string count = "expected an integer of at least 0 and below 2^63";
  EXPECT_EQ(error_with("time", "step_ns", -5), "out.time.step_ns: " + count);
  EXPECT_EQ(error_with("memory", "peak_bytes", -1), "out.memory.peak_bytes: " + count);
  EXPECT_EQ(error_with("memory", "peak_bytes", 1.5), "out.memory.peak_bytes: " + count);
  EXPECT_EQ(error_with("memory", "headroom_bytes", -1), "");  // of what does not fit
  EXPECT_EQ(error_with("plan", "ops", -1), "out.plan.ops: " + count);
}

}  // namespace
}  // namespace mfsdp
