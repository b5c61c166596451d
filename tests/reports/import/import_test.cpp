#include "reports/import/import.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "core/base/read_file.hpp"
#include "reports/record/result_json.hpp"
#include "reports/store/store.hpp"
#include "reports/trace/memory_snapshot.hpp"
#include "reports/trace/tensorboard.hpp"
#include "tests/support/event_file.hpp"
#include "tests/support/foreign_files.hpp"
#include "tests/support/gzip.hpp"
#include "tests/support/predicted.hpp"
#include "tests/support/sample_run.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::from_hex;
using test::measured_run;
using test::sample_run;
using test::ScratchFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Lines as https://github.com/pytorch/torchtitan/pull/2389 and /pull/1287 show them.
constexpr const char* kTitan =
    "[rank0]:[titan] 2026-02-24 19:46:00,100 - root - INFO - CUDA capacity: NVIDIA B200 with "
    "178.35GiB memory\n"
    "[rank0]:[titan] 2026-02-24 19:46:00,200 - root - INFO - Model llama3 8B size: 8,030,261,248 "
    "total parameters\n"
    "[rank0]:[titan] 2026-02-24 19:46:00,300 - root - INFO - Building 1-D device mesh with "
    "['dp_shard'], [8]\n"
    "[rank0]:[titan] 2026-02-24 19:46:01,000 - root - INFO - Applied FSDP to the model\n"
    "[rank0]:[titan] 2026-02-24 19:46:15,508 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: "
    "12.25000  \x1b[33mgrad_norm: 26.6250  \x1b[36mmemory: 60.00GiB(33.64%)  \x1b[34mtps: 1,050  "
    "\x1b[36mtflops: 31.00  \x1b[35mmfu: 1.40%\x1b[39m\n"
    "[rank1]:[titan] 2026-02-24 19:46:15,508 - root - INFO - step:  1  loss: 99.0  memory: "
    "60.00GiB(33.64%)  tps: 1  tflops: 1  mfu: 1%\n"
    "[rank0]:[titan] 2026-02-24 19:46:35,508 - root - INFO - step: 11  loss:  7.50000  grad_norm: "
    " 2.5000  memory: 66.91GiB(37.51%)  tps: 10,050  tflops: 314.71  mfu: 14.00%\n"
    "[rank0]:[titan] 2026-02-24 19:46:36,508 - root - INFO - validate step: 11  loss:  8.0000  "
    "memory: 70.00GiB(39.00%)  tps: 20,000\n";

/// A line as https://github.com/NVIDIA/Megatron-LM/issues/756 shows it.
constexpr const char* kMegatron =
    "  use_megatron_fsdp ............................... True\n"
    "  seq_length ...................................... 4096\n"
    "  world_size ...................................... 16\n"
    "  lr .............................................. 0.0003\n"
    " [2024-04-06 02:59:36] iteration       43/     100 | consumed samples:         5504 | elapsed "
    "time per iteration (ms): 5000.0 | throughput per GPU (TFLOP/s/GPU): 239.8 | learning rate: "
    "8.600000E-06 | global batch size:   128 | lm loss: 1.825991E+00 | loss scale: 1.0 | grad "
    "norm: 1.426 | num zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations: "
    "  0 |\n"
    "[Rank 0] (after 43 iterations) memory (MB) | allocated: 1.5 | max allocated: 1024.5 | "
    "reserved: 3.0 | max reserved: 2048.0\n"
    " iteration       44/     100 | consumed samples:         5632 | elapsed time per iteration "
    "(ms): 4000.0 | learning rate: 8.800000E-06 | global batch size:   128 | loss scale: 1.0 | "
    "grad norm: nan | number of skipped iterations:   1 | number of nan iterations:   0 |\n"
    " validation loss at iteration 44 on validation set | lm loss value: 2.500000E+00 | lm loss "
    "PPL: 1.218249E+01 |\n"
    " validation loss at iteration 44 on test set | lm loss value: 3.000000E+00 | lm loss PPL: "
    "2.008554E+01 |\n";

class Import : public testing::Test {
 protected:
  RunResult only(const std::string& name, const std::string& content,
                 const ImportSettings& settings = {}) {
    test::write_file(folder_ / name, content);
    auto runs = import_file(folder_ / name, settings);
    EXPECT_TRUE(runs) << runs.error().message();
    EXPECT_EQ(runs->size(), 1U);
    return runs->at(0);
  }

  std::string error(const std::string& name, const std::string& content,
                    const ImportSettings& settings = {}) {
    test::write_file(folder_ / name, content);
    const auto runs = import_file(folder_ / name, settings);
    if (runs) return "";
    EXPECT_THAT(runs.error().message(),
                AllOf(StartsWith((folder_ / name).string()), Not(HasSubstr("\n"))));
    return runs.error().message();
  }

  ScratchFolder folder_;
};

TEST_F(Import, ALogOfTorchtitan) {
  const RunResult run = only("train.log", kTitan);
  EXPECT_EQ(run.source(), "measured");
  EXPECT_EQ(run.engine, "torchtitan (FSDP2)");
  EXPECT_EQ(run.model_name, "llama3 8B");
  EXPECT_EQ(run.parameters, 8'030'261'248);
  EXPECT_EQ(run.cluster.gpu, "NVIDIA B200");
  EXPECT_EQ(run.cluster.gpus, 8);
  const auto& steps = run.measured()->steps;
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].loss, 12.25);  // rank 0's
  EXPECT_FALSE(steps[0].timed);
  EXPECT_EQ(steps[1].step, 11);
  EXPECT_EQ(steps[1].duration, Nanos(2'000'000'000));  // 20 s, 10 steps
  EXPECT_EQ(steps[1].grad_norm, 2.5);
  EXPECT_EQ(run.time.median_step, Nanos(2'000'000'000));
  EXPECT_EQ(run.time.tokens_per_second_per_gpu, 10'050);
  EXPECT_DOUBLE_EQ(run.time.mfu, 0.14);
  EXPECT_EQ(run.memory.cached.value().reserved.value, 71'844'065'444);  // 66.91 * 2^30
  EXPECT_TRUE(run.memory.fits);
  ASSERT_EQ(run.measured()->evaluations.size(), 1U);
  EXPECT_EQ(run.measured()->evaluations[0].step, 11);
  EXPECT_EQ(run.measured()->evaluations[0].loss, 8.0);
  for (const ResultFigure absent :
       {ResultFigure::config, ResultFigure::plan, ResultFigure::peak_bytes, ResultFigure::step_ns,
        ResultFigure::compute_ns, ResultFigure::nodes, ResultFigure::overlap_fraction})
    EXPECT_TRUE(run.absent.has(absent)) << to_string(absent);
  EXPECT_FALSE(run.absent.has(ResultFigure::mfu));
}

std::string titan_line(int step, const std::string& clock) {
  return "[rank0]:[titan] 2026-02-24 " + clock + " - root - INFO - step: " + std::to_string(step) +
         "  loss:  7.5  memory: 1.00GiB(1%)  tps: 100  tflops: 1  mfu: 1%\n";
}

/// Steps of 10 s up to 4; three hours later the run goes on from a save after step 2.
TEST_F(Import, ALogThatARestartContinues) {
  const std::string before = titan_line(1, "10:00:10,000") + titan_line(2, "10:00:20,000") +
                             titan_line(3, "10:00:30,000") + titan_line(4, "10:00:40,000");
  const RunResult back =
      only("back.log", before + titan_line(3, "13:00:10,000") + titan_line(4, "13:00:20,000") +
                           titan_line(5, "13:00:30,000"));
  ASSERT_EQ(back.measured()->steps.size(), 5U);
  EXPECT_EQ(back.measured()->steps[3].duration, Nanos(10'000'000'000));
  EXPECT_EQ(back.measured()->steps[4].duration, Nanos(10'000'000'000));  // from 13:00:20

  // A resume from the save of step 4 repeats no step number. The run's start line identifies it.
  const std::string start =
      "[rank0]:[titan] 2026-02-24 13:00:00,000 - root - INFO - Training starts at step 5\n";
  const RunResult on = only(
      "on.log", before + start + titan_line(5, "13:00:10,000") + titan_line(6, "13:00:20,000"));
  ASSERT_EQ(on.measured()->steps.size(), 6U);
  EXPECT_FALSE(on.measured()->steps[4].timed);
  EXPECT_EQ(on.measured()->steps[5].duration, Nanos(10'000'000'000));
}

/// One rank's clock is not another's, whose lines may come late.
TEST_F(Import, EachRankOfALogHasItsOwnClock) {
  std::string late = titan_line(1, "10:00:15,000");
  late.replace(0, 7, "[rank1]");
  const RunResult run =
      only("ranks.log", titan_line(1, "10:00:10,000") + late + titan_line(2, "10:00:20,000"));
  EXPECT_EQ(run.measured()->steps.at(1).duration, Nanos(10'000'000'000));
}

TEST_F(Import, ALogOfMegatron) {
  const RunResult run = only("out.txt", kMegatron);
  EXPECT_EQ(run.engine, "megatron-fsdp");
  EXPECT_EQ(run.cluster.gpus, 16);
  const auto& steps = run.measured()->steps;
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].step, 43);
  EXPECT_EQ(steps[0].duration, Nanos(5'000'000'000));
  EXPECT_EQ(steps[0].loss, 1.825991);
  EXPECT_EQ(steps[0].grad_norm, 1.426);
  EXPECT_EQ(steps[0].learning_rate, 8.6e-6);
  EXPECT_EQ(steps[0].tokens, 128 * 4096);
  EXPECT_FALSE(steps[0].skipped);
  EXPECT_FALSE(steps[1].loss);
  EXPECT_TRUE(steps[1].skipped);
  ASSERT_EQ(run.measured()->evaluations.size(), 1U);  // none of the test set
  EXPECT_EQ(run.measured()->evaluations[0].step, 44);
  EXPECT_EQ(run.measured()->evaluations[0].loss, 2.5);
  EXPECT_EQ(run.time.median_step, Nanos(4'000'000'000));
  EXPECT_DOUBLE_EQ(run.time.tokens_per_second_per_gpu, 8192);  // 128 * 4096 / 4 s / 16
  EXPECT_EQ(run.memory.peak, Bytes(1'074'266'112));            // 1024.5 * 2^20
  EXPECT_EQ(run.memory.allocated, run.memory.peak);
  EXPECT_EQ(run.memory.cached.value().reserved, Bytes(2'147'483'648));
  EXPECT_FALSE(run.memory.cached.value().device);
  EXPECT_EQ(find_fact(run.facts, "import", "lr")->value, FactValue(0.0003));
  EXPECT_EQ(run.created_unix_ns, 1'712'372'376'000'000'000);
}

/// As gzip packs them: the same runs, and one line where the file was cut off.
TEST_F(Import, PackedLogs) {
  const std::string packed = test::gzipped(kTitan);
  const RunResult run = only("train.log.gz", packed);
  EXPECT_EQ(run.engine, "torchtitan (FSDP2)");
  EXPECT_EQ(run.measured()->steps.size(), 2U);
  EXPECT_EQ(only("out.gz", test::gzipped(kMegatron)).engine, "megatron-fsdp");
  EXPECT_THAT(error("cut.gz", packed.substr(0, packed.size() / 2)),
              HasSubstr("the gzip data ends too early"));
}

TEST_F(Import, EventsOfTensorBoard) {
  const std::string bytes = from_hex(test::kEvents);
  const RunResult run = only("events.out.tfevents.1790000000.host.1.0", bytes,
                             {.engine = "fsdp2", .model = "llama3_8b", .gpus = 8});
  EXPECT_EQ(run.engine, "fsdp2");
  EXPECT_EQ(run.model_name, "llama3_8b");
  ASSERT_EQ(run.measured()->steps.size(), 2U);
  EXPECT_EQ(run.measured()->steps[1].loss, 4.0);
  EXPECT_EQ(run.measured()->steps[1].learning_rate, 0.25);
  EXPECT_EQ(run.measured()->steps[0].duration, Nanos(500'000'000));
  EXPECT_DOUBLE_EQ(run.time.mfu, 0.25);
  EXPECT_EQ(run.memory.peak, Bytes(1'610'612'736));  // 1.5 * 2^30
  EXPECT_TRUE(import_file(folder_.path(), {}));      // the folder's only one
  EXPECT_THAT(error("events.out.tfevents.2", bytes.substr(0, 40) + "x" + bytes.substr(41)),
              HasSubstr("wrong CRC"));
  EXPECT_THAT(import_file(folder_.path(), {}).error().message(), HasSubstr("holds 2 event files"));
}

TEST_F(Import, AMemorySnapshotOfPyTorch) {
  for (const auto hex : {test::kSnapshot2, test::kSnapshot4}) {
    const RunResult run = only("snapshot.pickle", from_hex(hex));
    EXPECT_EQ(run.engine, "pytorch");
    EXPECT_EQ(run.memory.cached.value().reserved.value, (std::int64_t{20} << 30) + (2 << 20));
    EXPECT_EQ(run.memory.peak.value, (std::int64_t{20} << 30) + (1 << 20));  // before the free
    EXPECT_EQ(run.memory.allocated, run.memory.peak);
    EXPECT_TRUE(run.absent.has(ResultFigure::step_ns));
  }
  EXPECT_THAT(error("evil.pickle", from_hex(test::kCodePickle)), HasSubstr("runs code"));
  EXPECT_THAT(error("other.pickle", "\x80\x02}."), HasSubstr("no memory snapshot"));
}

TEST_F(Import, ATraceOfTheProfiler) {
  const RunResult run = only("trace.json", R"({"traceEvents": [
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":100},
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#2","pid":1,"tid":1,"ts":100,"dur":100},
    {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":10,"dur":40,
     "args":{"device":0,"stream":7,"correlation":1}},
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllGather_RING_LL","pid":0,"tid":20,"ts":30,
     "dur":50,"args":{"device":0,"stream":20,"correlation":2}}]})");
  EXPECT_EQ(run.time.step, Nanos(100'000));
  EXPECT_EQ(run.time.median_step, run.time.step);
  EXPECT_EQ(run.time.compute, Nanos(40'000));
  EXPECT_EQ(run.time.communication, Nanos(50'000));
  EXPECT_EQ(run.time.exposed_communication, Nanos(30'000));  // from 50 to 80 us
  EXPECT_EQ(run.time.idle, Nanos(30'000));                   // = 100 - 40 - 30
  ASSERT_EQ(run.timeline.size(), 2U);
  EXPECT_EQ(run.timeline[1].kind, "all_gather");
  EXPECT_EQ(run.timeline[1].stream, "stream 20");
}

/// Ops that run beyond a step's end count up to there: a step is the sum of its parts.
TEST_F(Import, AStepOfATraceEndsWhereTheNextBegins) {
  const RunResult run = only("trace.json", R"({"traceEvents": [
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":100},
    {"ph":"X","cat":"user_annotation","name":"ProfilerStep#2","pid":1,"tid":1,"ts":100,"dur":100},
    {"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":80,"dur":90,
     "args":{"device":0,"stream":7,"correlation":1}},
    {"ph":"X","cat":"kernel","name":"ncclDevKernel_AllGather_RING_LL","pid":0,"tid":20,"ts":70,
     "dur":80,"args":{"device":0,"stream":20,"correlation":2}}]})");
  EXPECT_EQ(run.time.compute, Nanos(20'000));
  EXPECT_EQ(run.time.communication, Nanos(30'000));
  EXPECT_EQ(run.time.exposed_communication, Nanos(10'000));
  EXPECT_EQ(run.time.idle, Nanos(70'000));
  EXPECT_EQ(run.timeline[1].end, Nanos(170'000));
}

TEST_F(Import, LinesOfJson) {
  const RunResult run = only("steps.jsonl",
                             "{\"config\": 1}\n{\"step\":1,\"loss\":2.5,\"step_ms\":250}\n\n"
                             "{\"step\":2,\"loss\":2.25,\"lr\":0.001,\"tokens\":4096}\n"
                             "{\"step\":2,\"eval_loss\":2.125}\n");
  ASSERT_EQ(run.measured()->steps.size(), 2U);
  ASSERT_EQ(run.measured()->evaluations.size(), 1U);
  EXPECT_EQ(run.measured()->evaluations[0].step, 2);
  EXPECT_EQ(run.measured()->evaluations[0].loss, 2.125);
  EXPECT_EQ(run.measured()->steps[0].duration, Nanos(250'000'000));
  EXPECT_EQ(run.measured()->steps[1].learning_rate, 0.001);
  EXPECT_THAT(error("a.jsonl", "{\"step\":1}\n{\"step\":1}\n"),
              HasSubstr("a.jsonl:2: step 1 is there twice"));
  EXPECT_THAT(error("b.jsonl", "{\"step\":1}\n{\"step\":"), HasSubstr("b.jsonl:2: expected"));
  EXPECT_THAT(error("c.jsonl", "{\"epoch\":1}\n"), HasSubstr("no object of a step"));
  EXPECT_THAT(error("d.jsonl", "{\"global_step\":20,\"log_history\":[]}\n"),
              HasSubstr("its log_history holds no step with a loss"));
  EXPECT_THAT(error("e.jsonl", "{\"step\":1.5,\"loss\":2}\n"),
              HasSubstr("e.jsonl:1: expected a whole number of a step"));
  EXPECT_THAT(error("e.jsonl", "{\"step\":1.5,\"eval_loss\":2}\n"),
              HasSubstr("e.jsonl:1: expected a whole number of a step"));
  EXPECT_THAT(error("f.jsonl", "{\"step\":1,\"mfu\":45}\n"),
              HasSubstr("f.jsonl:1: expected an mfu from 0 to 2"));
  for (const std::string rate :
       {"\"tps\":-100", "\"tps\":1e308", "\"tflops\":-5", "\"step_ms\":-1"})
    EXPECT_THAT(error("g.jsonl", "{\"step\":1," + rate + "}\n"),
                HasSubstr("g.jsonl:1: expected times and rates from 0 to 1e15"));
}

/// As Python's json.dumps writes numbers that are not finite.
TEST_F(Import, LinesOfJsonWithNumbersThatAreNotFinite) {
  const RunResult run =
      only("nan.jsonl",
           "{\"step\": 1, \"loss\": NaN, \"tps\": NaN, \"note\": \"a \\\" NaN\"}\n"
           "{\"step\": 2, \"loss\": -Infinity, \"grad_norm\": Infinity}\n"
           "{\"step\": 2, \"eval_loss\": NaN}\n"
           "{\"step\": 3, \"loss\": 2.5}\n");
  const Measured& measured = *run.measured();
  ASSERT_EQ(measured.steps.size(), 3U);
  EXPECT_TRUE(std::isnan(measured.steps[0].loss.value()));
  EXPECT_TRUE(std::isinf(measured.steps[1].loss.value()));
  EXPECT_TRUE(std::isinf(measured.steps[1].grad_norm.value()));
  EXPECT_EQ(measured.steps[2].loss, 2.5);
  ASSERT_EQ(measured.evaluations.size(), 1U);
  EXPECT_TRUE(std::isnan(measured.evaluations[0].loss));
  EXPECT_TRUE(run.absent.has(ResultFigure::tokens_per_second_per_gpu));
}

TEST_F(Import, LinesOfJsonSayWhichLineIsWrongAndWhy) {
  for (const std::string step : {"-1", "1e300", "9223372036854775808", "NaN"})
    EXPECT_THAT(error("a.jsonl", "{\"step\": 1}\n{\"step\": " + step + ", \"loss\": 2}\n"),
                HasSubstr("a.jsonl:2: expected a whole number of a step, from 0 to 1e15"));
  EXPECT_THAT(error("b.jsonl", "{\"step\": 1, \"loss\": \"2\"}\n"),
              HasSubstr("b.jsonl:1: loss: expected a number, got a text"));
}

TEST_F(Import, AByteOrderMarkIsSkipped) {
  const std::string mark = "\xEF\xBB\xBF";
  const RunResult lines = only("steps.jsonl", mark + "{\"step\":1,\"loss\":2.5}\n");
  EXPECT_EQ(lines.measured()->steps.at(0).loss, 2.5);
  EXPECT_EQ(only("train.log", mark + kTitan).measured()->steps.size(), 2U);
  const PredictedRun predicted = sample_run("a");
  EXPECT_EQ(to_json(only("result.json", mark + to_json(predicted))), to_json(predicted));
}

/// One rule for the step and its rates, so that both come back as they were.
TEST_F(Import, RatesAreThoseOfTheMedianStep) {
  // 100 tokens a step and GPU. After the warm-up of five steps: 1, 2, 1, 4 s, whose median is 1.5.
  std::string lines;
  const std::array<double, 9> seconds{9, 9, 9, 9, 9, 1, 2, 1, 4};
  for (std::size_t i = 0; i < seconds.size(); ++i)
    lines += fmt::format("{{\"step\":{},\"seconds\":{},\"tps\":{},\"tflops\":{}}}\n", i + 1,
                         seconds.at(i), 100 / seconds.at(i), 30 / seconds.at(i));
  const RunResult run = only("steps.jsonl", lines);
  EXPECT_EQ(run.time.median_step, Nanos(1'500'000'000));
  EXPECT_NEAR(run.time.tokens_per_second_per_gpu, 100 / 1.5, 1e-9);
  EXPECT_NEAR(run.time.tflops_per_gpu, 20, 1e-9);

  const auto path = folder_ / "events.out.tfevents.1";
  ASSERT_TRUE(write_tensorboard(run, path));
  const RunResult again = import_file(path, {}).value().at(0);
  EXPECT_EQ(again.time.median_step, run.time.median_step);
  EXPECT_NEAR(again.time.tokens_per_second_per_gpu, 100 / 1.5, 1e-4);  // events hold floats
  EXPECT_NEAR(again.time.tflops_per_gpu, 20, 1e-4);
}

/// Without times: the median of the rates after the warm-up.
TEST_F(Import, RatesOfALogWithoutTimes) {
  std::string lines;
  for (const int rate : {1, 1, 1, 1, 1, 70, 90, 80})
    lines += fmt::format("{{\"step\":{},\"tps\":{}}}\n", lines.size(), rate);
  EXPECT_EQ(only("steps.jsonl", lines).time.tokens_per_second_per_gpu, 80);
}

TEST_F(Import, ResultsOfOurOwnComeBackWhole) {
  const PredictedRun predicted = sample_run("a");
  MeasuredRun measured = measured_run("b");
  measured.commit = "0123456789ab";
  measured.facts = {{"recipe", "seed", std::int64_t{7}}};
  measured.steps = {test::sample_step(1, Nanos(7), 2.0), test::sample_step(2, Nanos(0), 1.0)};
  measured.steps.back().timed = false;
  measured.evaluations = {{.step = 2, .loss = 3.0, .tokens = 5}};
  measured.resumed = {.step = 1, .run_id = "z"};
  measured.status = RunStatus::interrupted;
  measured.absent.add(ResultFigure::all_reduce_bytes);
  test::write_file(folder_ / "two.jsonl", to_json_line(predicted) + "\n{\"event\":\"step\"}\n" +
                                              to_json_line(measured) + "\n");
  const auto runs = import_file(folder_ / "two.jsonl", {});
  ASSERT_TRUE(runs) << runs.error().message();
  ASSERT_EQ(runs->size(), 2U);
  EXPECT_EQ(to_json(runs->at(0)), to_json(predicted));
  EXPECT_EQ(to_json(runs->at(1)), to_json(measured));
  EXPECT_EQ(runs->at(1).absent, measured.absent);
  EXPECT_EQ(to_json(only("pretty.json", to_json(predicted))), to_json(predicted));
  std::string wrong = to_json_line(predicted);
  wrong.replace(wrong.find("\"step_ns\":1000"), 14, "\"step_ns\":\"x\"");
  EXPECT_THAT(error("wrong.jsonl", wrong), HasSubstr("time.step_ns: expected an integer"));
}

TEST_F(Import, OurExportsToOtherToolsStayOfTheirKind) {
  PredictedRun predicted = sample_run("aa");
  predicted.engine = "megatron-fsdp";
  const auto path = folder_ / "events.out.tfevents.1";
  ASSERT_TRUE(write_tensorboard(predicted, path));
  const RunResult run = import_file(path, {.model = "mine"}).value().at(0);
  EXPECT_EQ(run.source(), "simulated");
  EXPECT_EQ(run.engine, "megatron-fsdp");
  EXPECT_EQ(run.model_name, "mine");
  EXPECT_EQ(run.cluster.gpus, predicted.cluster.gpus);
  EXPECT_EQ(run.time.median_step, predicted.time.median_step);
  EXPECT_EQ(find_fact(run.facts, "import", "exported_run_id")->value, FactValue("aa"));
  auto store = Store::open(folder_ / "s.sqlite");
  EXPECT_EQ(to_json(*store->load(store->save(run).value())), to_json(run));
  MeasuredRun measured = measured_run("bb");
  measured.steps = {test::sample_step(1, Nanos(7), 2.0)};
  ASSERT_TRUE(write_tensorboard(measured, path));
  EXPECT_EQ(import_file(path, {}).value().at(0).source(), "measured");

  const auto snapshot = test::predicted([](PlanConfig&) {});
  ASSERT_TRUE(write_memory_snapshot(snapshot.run(), snapshot.program, folder_ / "m.pickle"));
  EXPECT_EQ(import_file(folder_ / "m.pickle", {}).value().at(0).source(), "simulated");
  std::string edited = *read_file(folder_ / "m.pickle", "a snapshot", 1 << 24);
  edited.replace(edited.find("\"simulated\""), 11, "\"simulatad\"");
  EXPECT_THAT(error("edited.pickle", edited),
              HasSubstr("mfsdp_origin: source: expected simulated or measured"));
}

/// Figures of a training that the file lacks, and its further data, are facts of the run.
TEST_F(Import, WhatIsMissingAndWhatIsLeftOutIsSaid) {
  const auto fact = [](const RunResult& run, std::string_view name) {
    const Fact* found = find_fact(run.facts, "import", name);
    return found == nullptr ? std::string("none") : fact_text(found->value);
  };
  const RunResult titan = only("train.log", kTitan);
  EXPECT_EQ(fact(titan, kMissingFigures), "none");
  EXPECT_EQ(fact(titan, kLeftOutFigures), "none");
  EXPECT_EQ(fact(only("out.txt", kMegatron), kLeftOutFigures),
            "consumed samples, loss scale, num zeros, number of nan iterations");
  const RunResult nemo = only("events.out.tfevents.7",
                              test::event_file({{"lr", 1, 0.5F}, {"train_loss_of_mine", 1, 2}}));
  EXPECT_EQ(fact(nemo, kMissingFigures), "loss, step time, tokens per second and GPU, memory");
  EXPECT_EQ(fact(nemo, kLeftOutFigures), "train_loss_of_mine");
  std::vector<test::Scalar> many{{"lr", 1, 0.5F}};
  for (int i = 0; i < 30; ++i) many.push_back({fmt::format("t{:02}", i), 1, 0});
  EXPECT_THAT(fact(only("events.out.tfevents.8", test::event_file(many)), kLeftOutFigures),
              AllOf(StartsWith("t00, t01, "), testing::EndsWith(", t19 and 10 more")));
}

TEST_F(Import, AStateOfHuggingFacesTrainer) {
  const RunResult run = only("trainer_state.json", R"({"global_step": 2, "log_history": [
    {"step": 1, "loss": 2.5}, {"step": 1, "eval_loss": 2.25}, {"step": 2, "loss": Infinity}]})");
  EXPECT_EQ(run.engine, "hf-trainer");
  EXPECT_EQ(run.measured()->steps.size(), 2U);
  EXPECT_EQ(run.measured()->evaluations.size(), 1U);
  EXPECT_FALSE(run.measured()->steps[0].timed);
}

/// A file that is named as events is looked at as any other.
TEST_F(Import, ANameDecidesNothing) {
  EXPECT_THAT(error("events.out.tfevents.9", "hello\n"), HasSubstr("its first line is \"hello\""));
  EXPECT_EQ(only("events.out.tfevents.10", kTitan).engine, "torchtitan (FSDP2)");
}

TEST_F(Import, AStoreComesWithItsTimelines) {
  const auto path = folder_ / "other.sqlite";
  ASSERT_TRUE(Store::open(path)->save(sample_run("a", 12, 7)));
  const auto runs = import_file(path, {});
  ASSERT_TRUE(runs) << runs.error().message();
  EXPECT_EQ(runs->at(0).timeline.size(), 12U);
  EXPECT_EQ(runs->at(0).predicted()->memory_timeline.size(), 7U);
}

TEST_F(Import, TheSameFileIsTheSameRun) {
  const RunResult one = only("train.log", kTitan);
  EXPECT_EQ(only("train.log", kTitan).run_id, one.run_id);
  EXPECT_EQ(one.run_id.size(), 32U);
  EXPECT_NE(only("train.log", kTitan, {.engine = "other"}).run_id, one.run_id);
  EXPECT_NE(only("train.log", std::string(kTitan) + "\n").run_id, one.run_id);
}

TEST_F(Import, WhatIsNoRunIsAnErrorOfOneLine) {
  EXPECT_THAT(error("empty", ""), HasSubstr("is empty"));
  EXPECT_THAT(error("text", "hello\nworld\n"),
              HasSubstr("unknown format: its first line is \"hello\""));
  EXPECT_THAT(error("forced", "hello\n", {.format = ImportFormat::torchtitan}),
              HasSubstr("holds no line of a step"));
  EXPECT_THAT(error("forced2", "hello\n", {.format = ImportFormat::megatron}),
              HasSubstr("holds no line of an iteration"));
  EXPECT_FALSE(import_file(folder_ / "none", {}));
  // Any part of a log, and any byte that is another, is read or refused, and nothing else.
  for (const std::string& whole : {std::string(kTitan), std::string(kMegatron)})
    for (std::size_t i = 0; i < whole.size(); i += 37) {
      static_cast<void>(error("part", whole.substr(0, i)));
      std::string changed = whole;
      changed[i] = '\xff';
      static_cast<void>(error("changed", changed));
    }
  static_cast<void>(error("huge",
                          "step: 1e300 loss: 1e999 memory: 1e300GiB tps: nan mfu: -inf%\n"
                          "step: 99999999999999 loss: 1 memory: -5GiB tps: 1,,2\n"));
}

}  // namespace
}  // namespace mfsdp
