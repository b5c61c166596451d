#include "reports/render/text_report.hpp"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "core/cli/format.hpp"
#include "tests/reports/render/sample_run.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

TEST(TextReport, TheWholeScreen) {
  EXPECT_EQ(
      render_text(sample_run(), TextStyle{}, "stored in mfsdp.sqlite"),
      R"(mfsdp-exec trains llama3_8b, 8.03 B parameters, on 64 h100 in 8 nodes, optim_grads_params (ZeRO-3)
sequence 8192, micro-batch 1, 1 microbatch: 524,288 tokens a step; recompute selective, adamw

Fits: 56.00 of 80.00 GiB allocated, 24.00 GiB free
Memory set aside: 55.00 GiB, all in use at layers.31.attention_backward
  model_weight         1.00 GiB   1.8 %  #
  main_weight          2.00 GiB   3.6 %  ##
  main_grad            3.00 GiB   5.5 %  ###
  optimizer_state      4.00 GiB   7.3 %  ####
  unsharded_weight     5.00 GiB   9.1 %  #####
  unsharded_grad       6.00 GiB  10.9 %  #####
  activation           7.00 GiB  12.7 %  ######
  logits               8.00 GiB  14.5 %  #######
  workspace            9.00 GiB  16.4 %  ########
  runtime             10.00 GiB  18.2 %  #########

Time   1.000 s a step = 900.00 ms compute + 60.00 ms exposed communication + 40.00 ms idle
       8,192 tokens/s per GPU, 524,288 in all; 421.5 TFLOP/s per GPU, MFU 42.6 %
Comm   400.00 ms a step, 85.0 % hidden, 60.00 ms exposed, mostly the wait for collectives of embedding (50.00 ms)
       60.00 GiB sent per GPU; compute includes 9.00 ms lost to collectives that share the GPU

simulated 0.1.0: engine mfsdp; calibration datasheet (never measured); cost model 1
NVLink 450 GB/s inside a node, 50 GB/s per GPU between nodes
plan 0123456789abcdef0123456789abcdef; stored in mfsdp.sqlite
)");
}

TEST(TextReport, DoesNotFitByHowMuch) {
  PredictedRun run = sample_run();
  run.memory.fits = false;
  run.memory.allocated = mebibytes(92 * 1024 + 512);
  run.memory.headroom = mebibytes(-12 * 1024 - 512);
  EXPECT_THAT(render_text(run, TextStyle{}, ""),
              HasSubstr("Does not fit: 92.50 of 80.00 GiB allocated, 12.50 GiB too much\n"));
}

// The excess is relative to the limit: 78 - 60 = 18 GiB.
TEST(TextReport, NamesTheLimitOfWhatIsReserved) {
  PredictedRun run = sample_run();
  run.memory.fits = false;
  run.memory.capacity = mebibytes(79 * 1024);
  run.memory.cached =
      CachedMemory{.reserved = mebibytes(78 * 1024), .device = mebibytes(80 * 1024)};
  run.memory.headroom = mebibytes(-18 * 1024);
  run.facts.push_back({.topic = "simulation",
                       .name = std::string(kMemoryLimit),
                       .value = mebibytes(60 * 1024).value});
  EXPECT_THAT(render_text(run, TextStyle{}, ""),
              HasSubstr("Does not fit: 80.00 of 79.00 GiB of the device, 78.00 of 60.00 GiB of the "
                        "limit, 18.00 GiB too much\n"));
}

TEST(TextReport, EmptyCategoriesAndMissingCommunicationAreLeftOut) {
  PredictedRun run = sample_run();
  run.memory.categories[static_cast<std::size_t>(Category::logits)] = Bytes(0);
  run.time.communication = Nanos(0);
  const std::string text = render_text(run, TextStyle{}, "");
  EXPECT_THAT(text, Not(HasSubstr("logits")));
  EXPECT_THAT(text, HasSubstr("Comm   none\n"));
}

TEST(TextReport, MeshNameAndMicrobatches) {
  PredictedRun run = sample_run();
  run.name = "try";
  run.config.mesh = data_parallel_mesh(4, 16);
  run.config.microbatches = 4;
  run.config.recompute = {.kind = Recompute::full, .full_blocks = 3};
  const std::string text = render_text(run, TextStyle{}, "");
  EXPECT_THAT(text, HasSubstr("llama3_8b (try), "));
  EXPECT_THAT(text, HasSubstr("optim_grads_params (ZeRO-3), HSDP 4 x 16\n"));
  // 8192 * 1 * 4 * 64 = 2097152
  EXPECT_THAT(text, HasSubstr("4 microbatches: 2,097,152 tokens a step; recompute full:3"));
}

TEST(TextReport, SetAsideAndInUseAreToldApart) {
  PredictedRun run = sample_run();
  run.live_peak = run.memory.peak - (Bytes(1) * (std::int64_t{1} << 30));
  run.peak_op = "layers.31.down.wgrad";
  run.peak_place = PeakPlace{.phase = Phase::backward, .unit = "layers.31"};
  EXPECT_THAT(render_text(run, TextStyle{}, ""),
              HasSubstr("Memory set aside: 55.00 GiB. In use at most: 54.00 GiB, in the backward "
                        "pass of layer 31 (down.wgrad)\n"));
  run.peak_place = PeakPlace{.phase = Phase::forward, .unit = "head"};
  run.peak_op = "head.swiglu";
  EXPECT_THAT(render_text(run, TextStyle{}, ""),
              HasSubstr("54.00 GiB, in the forward pass of head (swiglu)\n"));
  // For a run that was read from a store the place is not known.
  run.peak_place.reset();
  EXPECT_THAT(render_text(run, TextStyle{}, ""), HasSubstr("54.00 GiB, at head.swiglu\n"));
}

/// A prediction of PyTorch FSDP2: 60 GiB reserved, of which 55 are allocated at most.
PredictedRun under_fsdp2() {
  PredictedRun run = sample_run();
  run.engine = "fsdp2";
  run.memory.allocated = run.memory.peak;
  run.memory.cached =
      CachedMemory{.reserved = mebibytes(60 * 1024), .device = mebibytes(62 * 1024), .retries = 0};
  return run;
}

// Reserved and allocated are each fullest at a time of its own.
TEST(TextReport, OfAnAllocatorEachFigureSaysThatItIsTheMost) {
  const std::string text = render_text(under_fsdp2(), TextStyle{}, "");
  EXPECT_THAT(text, HasSubstr("Device 62.00 GiB at most = 60.00 GiB reserved by the allocator + "
                              "2.00 GiB of context and NCCL\n"));
  EXPECT_THAT(text, HasSubstr("Fragmentation: 5.00 GiB reserved, never in use at once\n"));
  EXPECT_THAT(text, HasSubstr("Memory allocated: 55.00 GiB at most, at layers.31."));
}

TEST(TextReport, TheFirstLineSaysWhoTrains) {
  EXPECT_EQ(lines_of(render_text(under_fsdp2(), TextStyle{}, ""))[0].find(
                "PyTorch FSDP2 trains llama3_8b, 8.03 B parameters, on 64 h100"),
            0U);
}

std::string waits_for(const std::string& unit, std::optional<Awaited> mostly,
                      std::int64_t milliseconds) {
  PredictedRun run = sample_run();  // 60 ms exposed
  run.exposed_units = {
      {.unit = unit, .exposed = Nanos(milliseconds * 1'000'000), .mostly = mostly}};
  return render_text(run, TextStyle{}, "");
}

TEST(TextReport, NamesWhatComputeWaitsForLongest) {
  using enum Awaited;
  EXPECT_THAT(waits_for("layers.0", weights, 40),
              HasSubstr("60.00 ms exposed, mostly the wait for layers.0's weights (40.00 ms)\n"));
  EXPECT_THAT(waits_for("no unit", gradient_norm, 40),
              HasSubstr("mostly the wait for the gradient norm (40.00 ms)\n"));
  // Half of it is not most of it.
  EXPECT_THAT(waits_for("layers.0", gradients, 30),
              HasSubstr("the longest part the wait for layers.0's gradients (30.00 ms)\n"));
  EXPECT_THAT(waits_for("layers.0", std::nullopt, 40), HasSubstr("collectives of layers.0 ("));
}

TEST(TextReport, NamesTheAxesWhoseCommunicationIsExposed) {
  PredictedRun run = sample_run();
  EXPECT_THAT(render_text(run, TextStyle{}, ""), Not(HasSubstr("exposed by axes")));
  for (const auto& [name, time] : {std::pair("dp_shard_ns", 20), {"ep_ns", 0}, {"tp_ns", 40}})
    run.facts.push_back(
        {.topic = "exposed", .name = name, .value = std::int64_t{time} * 1'000'000});
  EXPECT_THAT(render_text(run, TextStyle{}, ""),
              HasSubstr("       exposed by axes: tp 40.00 ms, dp_shard 20.00 ms\n"));
}

TEST(TextReport, OneLineHasTheSameJobUnderAnotherEngine) {
  PredictedRun run = sample_run();
  EXPECT_THAT(render_text(run, TextStyle{}, ""), Not(HasSubstr("Instead")));
  OtherEngine other{.engine = "fsdp2-compile",
                    .reason = {},
                    .fits = true,
                    .certain = true,
                    .memory = mebibytes(61 * 1024),
                    .capacity = mebibytes(80 * 1024),
                    .step = Nanos(896'020'000)};
  run.other_engines = {other};
  EXPECT_THAT(
      render_text(run, TextStyle{}, ""),
      HasSubstr("Instead PyTorch FSDP2 with compiled blocks (--engine fsdp2-compile): fits, "
                "61.00 of 80.00 GiB of the device, 896.02 ms a step; recompute none\n"));
  run.other_engines.front().reason = "cannot be predicted with LoRA's adapters yet";
  EXPECT_THAT(
      render_text(run, TextStyle{}, ""),
      HasSubstr("(--engine fsdp2-compile): not predicted: cannot be predicted with LoRA's"));
}

/// A model of which the report counts tensors: an embedding, a block, a norm and a head.
ModelShape counted_model() {
  return {.vocab = 100,
          .hidden = 8,
          .layers = 1,
          .heads = 2,
          .kv_heads = 2,
          .head_dim = 4,
          .intermediate = 16,
          .max_seq_len = 64,
          .tied_embeddings = false,
          .rope_scaling = {}};
}

TEST(TextReport, SaysHowMuchIsFrozen) {
  PredictedRun run = sample_run();
  EXPECT_THAT(render_text(run, TextStyle{}, ""), Not(HasSubstr("frozen")));
  run.config.model = counted_model();
  run.config.frozen = {"embed_tokens"};
  // Tensors: embedding, input_norm, qkv, output, post_norm, gate_up, down, final norm, head: 9.
  // Weights: 2 * 100 * 8 + 3 * 8 + 8 * 24 + 8 * 8 + 8 * 32 + 16 * 8 = 2264, of them 800 frozen.
  EXPECT_THAT(render_text(run, TextStyle{}, ""),
              HasSubstr("frozen: 1 of 9 parameter tensors (35.3 % of the weights)\n"));
}

TEST(TextReport, NamesPaddingThatWeighs) {
  PredictedRun run = sample_run();
  run.plan.padding = Bytes(run.parameters * 2 / 50);  // 2 % of bf16 weights, rounded down
  EXPECT_THAT(render_text(run, TextStyle{}, ""), Not(HasSubstr("padding")));
  run.plan.padding = Bytes(run.parameters * 2 / 4);
  EXPECT_THAT(render_text(run, TextStyle{}, ""),
              HasSubstr("padding adds 25.0 % to the weights at 64 shards: see --explain layout, "
                        "--outer-dp\n"));
}

TEST(TextReport, NotesTakeThePlaceOfBlankLines) {
  PredictedRun run = sample_run();
  run.config.model = counted_model();
  run.config.frozen = {"embed_tokens"};
  run.plan.padding = Bytes(run.parameters);
  // 22 lines of text, three blank ones and the two notes: two blank ones go, the last first.
  const auto lines = lines_of(render_text(run, TextStyle{}, ""));
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_EQ(lines[4], "");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), ""), 1);
}

TEST(TextReport, ASlowRunIsNotZero) {
  PredictedRun run = sample_run();
  run.time.tokens_per_second_per_gpu = 0.04;
  run.time.tflops_per_gpu = 0.002;
  // 0.04 * 64 = 2.56
  EXPECT_THAT(render_text(run, TextStyle{}, ""),
              HasSubstr("0.04 tokens/s per GPU, 2.56 in all; 0.002 TFLOP/s per GPU"));
}

TEST(TextReport, ColourAndUnicodeOnlyWhereWanted) {
  const std::string plain = render_text(sample_run(), TextStyle{}, "");
  EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
  for (const char c : plain) ASSERT_LT(static_cast<unsigned char>(c), 0x80);
  const std::string rich = render_text(sample_run(), {.colour = true, .unicode = true}, "");
  EXPECT_THAT(rich, HasSubstr("\x1b[32mFits\x1b[0m"));
  EXPECT_THAT(rich, HasSubstr("█"));
}

TEST(TextReport, NothingIsCut) {
  PredictedRun run = sample_run();
  run.cluster.network = std::string(150, 'n');
  run.model_name = std::string(60, 'm');
  const std::string stored = "stored in " + std::string(120, 's');
  const std::string text = render_text(run, TextStyle{}, stored);
  EXPECT_THAT(text, HasSubstr(run.cluster.network + "\n"));
  EXPECT_THAT(text, HasSubstr(run.model_name + ", 8.03 B parameters"));
  EXPECT_THAT(text, HasSubstr(stored + "\n"));
}

TEST(TextReport, ANarrowTerminalWraps) {
  const std::string text = render_text(sample_run(), {.width = 60}, "stored in mfsdp.sqlite");
  EXPECT_THAT(text, HasSubstr("Time   1.000 s a step = 900.00 ms compute + 60.00 ms exposed\n"
                              "       communication + 40.00 ms idle\n"));
  for (const std::string& line : lines_of(text)) EXPECT_LE(display_width(line), 60U) << line;
}

RC_GTEST_PROP(TextReport, AlwaysOneScreen, (std::string name, std::string model, std::string op)) {
  PredictedRun run = sample_run();
  run.name = name;
  run.model_name = model;
  run.peak_op = op;
  run.cluster.network = name + op;
  run.exposed_units.front().unit = model + op;
  run.config.model = counted_model();
  run.config.frozen = {"embed_tokens"};
  run.plan.padding = Bytes(run.parameters);
  const auto lines = lines_of(render_text(run, {.unicode = true}, "stored in " + name));
  RC_ASSERT(lines.size() <= 24u);
}

}  // namespace
}  // namespace mfsdp
