#include "reports/render/output.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/reports/render/sample_run.hpp"

namespace mfsdp {
namespace {

std::string rendered(const std::vector<RunResult>& runs, OutputFormat format) {
  return render_runs(runs, format, TextStyle{}, "not stored");
}

TEST(Output, JsonOfOneRunIsTheResult) {
  const PredictedRun run = sample_run();
  EXPECT_EQ(rendered({run}, OutputFormat::json), to_json(run));
}

TEST(Output, JsonOfASweepIsOneShapeWhateverTheNumberOfRuns) {
  const nlohmann::json run = nlohmann::json::parse(to_json(sample_run()));
  for (const std::size_t count : {0u, 1u, 2u}) {
    const std::vector<RunResult> runs(count, sample_run());
    const auto sweep =
        nlohmann::json::parse(render_sweep(runs, 5, OutputFormat::json, TextStyle{}, "not stored"));
    EXPECT_EQ(sweep["schema"], "mfsdp.sweep/1");
    EXPECT_EQ(sweep["not_predicted"], 5);
    EXPECT_EQ(sweep["results"], nlohmann::json(std::vector<nlohmann::json>(count, run)));
    EXPECT_EQ(sweep.size(), 3u);
  }
}

TEST(Output, MarkdownSaysHowTheModelIsShardedAndRecomputed) {
  PredictedRun run = sample_run();
  run.config.mesh = data_parallel_mesh(4, 2);
  run.config.recompute = {.kind = Recompute::full, .full_blocks = 20};
  const std::string text = rendered({run}, OutputFormat::md);
  EXPECT_THAT(text, testing::HasSubstr("| outer-dp |"));
  EXPECT_THAT(text, testing::HasSubstr("| 4 |"));
  EXPECT_THAT(text, testing::HasSubstr("| full:20 |"));
}

TEST(Output, RankedCsvEndsWithTheRank) {
  const std::string text = render_ranked_csv(std::vector<RunResult>(2, sample_run()));
  EXPECT_THAT(text, testing::HasSubstr(",rank\n"));
  EXPECT_THAT(text, testing::HasSubstr(",1\n"));
  EXPECT_TRUE(text.ends_with(",2\n"));
}

TEST(Output, JsonlIsOneLineARun) {
  PredictedRun run = sample_run();
  run.name = "a\n  b";
  const std::string text = rendered({run, run}, OutputFormat::jsonl);
  ASSERT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  const auto first = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first, nlohmann::json::parse(to_json(run)));
}

/// Splits CSV by RFC 4180.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, std::vector<std::string>(1));
  bool in_quotes = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_quotes && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back() += '"';
      ++i;
    } else if (c == '"') {
      in_quotes = !in_quotes;
    } else if (!in_quotes && c == ',') {
      rows.back().emplace_back();
    } else if (!in_quotes && c == '\n') {
      rows.emplace_back(1);
    } else {
      rows.back().back() += c;
    }
  }
  rows.pop_back();
  return rows;
}

TEST(Output, CsvHasAHeaderAndQuotesSafely) {
  PredictedRun run = sample_run();
  run.run_id = "";
  run.name = "a,\"b\"\nc";
  const auto rows = parse_csv(rendered({run, sample_run()}, OutputFormat::csv));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].size(), rows[1].size());
  EXPECT_EQ(rows[0].size(), rows[2].size());
  const auto cell = [&](const std::string& column) {
    for (std::size_t i = 0; i < rows[0].size(); ++i)
      if (rows[0][i] == column) return rows[1][i];
    return std::string("no such column");
  };
  EXPECT_EQ(cell("run_id"), "");
  EXPECT_EQ(cell("name"), "a,\"b\"\nc");
  EXPECT_EQ(cell("peak_bytes"), "59055800320");  // 55 * 2^30
  EXPECT_EQ(cell("runtime_bytes"), "10737418240");
  EXPECT_EQ(cell("step_ns"), "1000000000");
  EXPECT_EQ(cell("mfu"), "0.426");
  EXPECT_EQ(cell("fits"), "true");
}

TEST(Output, NumericsTrustAndLayoutAreTheLastColumns) {
  PredictedRun run = sample_run();
  run.config.clip = {1, 3};
  run.config.deterministic = true;
  run.config.frozen = {"embed", "norm"};
  run.config.logits_chunk = 512;
  run.config.layout = LayoutRule::megatron_fsdp;
  run.config.state_dtype = StateDtype::bf16;
  run.config.lr_scale = {"embed=0.5"};
  run.config.no_decay = {"embed"};
  run.config.document_mask = true;
  run.config.loss_scale = {1, 2};
  run.config.loss_scale_window = 100;
  run.config.placement = CollectivePlacement::attention;
  run.config.gather = Transport::copy_engine;
  run.config.reduce = Transport::symmetric;
  run.config.keep_gathered = 3;
  run.config.lora_rank = 16;
  run.config.lora_alpha = {5, 2};
  run.config.lora_targets = {"q_proj", "v_proj"};
  run.config.expert_parallel = 8;
  run.config.capacity_factor = {5, 4};
  run.config.expert_strategy = Strategy::optim;
  run.config.base_dtype = BaseDType::nf4;
  run.trust = {.trust_level = "datasheet only", .step_error = 0.25, .text = ""};
  run.commit = "0123456789ab";
  run.memory.cached = {.reserved = Bytes(150), .device = Bytes(170), .retries = 3};
  run.memory.cached->errors = {
      .allocated = 0.001, .reserved = 0.01, .device = 0.02, .source = "runs"};
  run.time.host = {.issue = Nanos(40), .bound = Nanos(5)};
  const auto rows = parse_csv(rendered({run}, OutputFormat::csv));
  const auto last = [](const std::vector<std::string>& row) {
    std::vector<std::string> cells(row.end() - 58, row.end() - 53);
    cells.insert(cells.end(), row.end() - 46, row.end());
    return cells;
  };
  EXPECT_THAT(
      last(rows[0]),
      testing::ElementsAre(
          "clip", "deterministic", "exact_sums", "frozen", "logits_chunk", "trust", "step_error",
          "layout", "commit", "median_step_ns", "state_dtype", "lr_scale", "no_decay",
          "document_mask", "loss_scale", "loss_scale_window", "placement", "gather", "reduce",
          "keep_gathered", "lora_rank", "lora_alpha", "lora_targets", "expert_parallel",
          "capacity_factor", "expert_strategy", "reserved_bytes", "device_bytes", "alloc_retries",
          "host_issue_ns", "host_bound_ns", "allocated_error", "reserved_error", "device_error",
          "status", "fits_certain", "base_dtype", "fp8", "fp8_keep_bf16", "fp8_accumulate",
          "fp8_history", "fp8_amax", "fp8_gather", "cp_comm", "schedule", "virtual_stages",
          "microbatch_group", "layers_of_stages", "cp", "tp", "pp"));
  EXPECT_THAT(last(rows[1]),
              testing::ElementsAre(
                  "1/3", "true", "false", "embed,norm", "512", "datasheet only", "0.25",
                  "megatron_fsdp", "0123456789ab", "1000000000", "bf16", "embed=0.5", "embed",
                  "true", "0.5", "100", "attention", "copy_engine", "symmetric", "3", "16", "2.5",
                  "q_proj,v_proj", "8", "1.25", "optim", "150", "170", "3", "40", "5", "0.001",
                  "0.01", "0.02", "complete", "", "nf4", "off", "0", "fast_forward", "0", "max",
                  "false", "a2a", "1f1b", "0", "0", "", "1", "1", "1"));
  EXPECT_THAT(rendered({run}, OutputFormat::md),
              testing::EndsWith(
                  "| 1/3 | true | false | embed,norm | 512 | megatron_fsdp | "
                  "bf16 | embed=0.5 | embed | true | 0.5 | 100 | attention | "
                  "copy_engine | symmetric | 3 | 16 | 2.5 | q_proj,v_proj | 8 | 1.25 | optim | "
                  "nf4 | off | 0 | fast_forward | 0 | max | false | a2a | 1f1b | 0 | 0 |  |\n"));
  run.config.clip = {1, 10};
  EXPECT_EQ(last(parse_csv(rendered({run}, OutputFormat::csv))[1]).front(), "0.1");
  run.config.clip = {2, 1};
  EXPECT_EQ(last(parse_csv(rendered({run}, OutputFormat::csv))[1]).front(), "2");
}

TEST(Output, MarkdownHasOneRowARun) {
  const std::string text = rendered({sample_run(), sample_run()}, OutputFormat::md);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(text, testing::StartsWith("| model |"));
  EXPECT_THAT(text,
              testing::HasSubstr("| llama3_8b | h100 | 64 | optim_grads_params | 1 | 8,192 |"));
}

TEST(Output, TextOfSeveralRunsIsSeparated) {
  const std::string one = rendered({sample_run()}, OutputFormat::text);
  EXPECT_EQ(rendered({sample_run(), sample_run()}, OutputFormat::text), one + "\n" + one);
}

TEST(Output, CsvFieldsAreQuotedOnlyWhenNeeded) {
  EXPECT_EQ(csv_field("plain text"), "plain text");
  EXPECT_EQ(csv_field(" outer"), "\" outer\"");
  EXPECT_EQ(csv_field("a\rb"), "\"a\rb\"");
  EXPECT_EQ(csv_field("say \"hi\""), "\"say \"\"hi\"\"\"");
}

}  // namespace
}  // namespace mfsdp
