// Detects the format of a file from its lines and keys: logs and exports made by hand in the forms
// that public threads show.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reports/import/foreign_run.hpp"

namespace mfsdp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// The format's name, or the error.
std::string detected(const std::string& text) {
  const auto format = detect_format(text, "FILE");
  return format ? std::string(to_string(*format)) : format.error().message();
}

constexpr const char* kTitanLine =
    "[rank0]:[titan] 2026-02-24 19:46:15,508 - root - INFO - step: 10  loss:  7.0762  grad_norm: "
    "46.5000  memory: 66.91GiB(37.51%)  tps: 10,007  tflops: 313.36  mfu: 13.93%\n";
constexpr const char* kMegatronLine =
    " iteration       44/     100 | consumed samples:         5632 | elapsed time per iteration "
    "(ms): 4000.0 | learning rate: 8.8E-06 | lm loss: 1.8E+00 |\n";
constexpr const char* kVerlLine =
    "step:34 - global_seqlen/min:419336 - actor/entropy:0.2226 - actor/pg_loss:0.0423 - "
    "actor/loss:0.0423 - actor/grad_norm:0.129 - timing_s/step:104.2 - perf/throughput:902.1\n";
constexpr const char* kDeepSpeedLines =
    "[2026-01-12 10:11:12,101] [INFO] [logging.py:107:log_dist] [Rank 0] step=10, skipped=0, "
    "lr=[9.6e-06], mom=[(0.9, 0.95)]\n"
    "[2026-01-12 10:11:12,311] [INFO] [timer.py:264:stop] epoch=0/micro_step=10/global_step=10, "
    "RunningAvgSamplesPerSec=5.63, CurrSamplesPerSec=5.71, MemAllocated=31.2GB\n";
constexpr const char* kNemoLine =
    "Training epoch 0, iteration 5/249 | lr: 1.961e-06 | global_batch_size: 8 | global_step: 5 | "
    "reduced_train_loss: 1.315 | train_step_timing in s: 7.126\n";

TEST(DetectFormat, LogsByTheirLines) {
  EXPECT_EQ(detected(kTitanLine), "torchtitan");
  EXPECT_EQ(detected(kMegatronLine), "megatron");
  // With lines before the first step, of any length.
  std::string before = "W0112 torchrun: ****\n";
  while (before.size() < (std::size_t{3} << 19))
    before += "Some library says something at length\n";
  EXPECT_EQ(detected(before + kTitanLine), "torchtitan");
  EXPECT_EQ(detected(before + kMegatronLine), "megatron");
  EXPECT_EQ(detected("{\n  \"model\": \"llama\",\n  use_cache: no\n}\n" + std::string(kTitanLine)),
            "torchtitan");
}

TEST(DetectFormat, LogsThatNoReaderIsForAreNamed) {
  EXPECT_THAT(detected(kVerlLine), StartsWith("FILE: is a log of verl, which is not read yet; "));
  EXPECT_THAT(detected("(TaskRunner pid=222265) " + std::string(kVerlLine)), HasSubstr("of verl"));
  EXPECT_THAT(detected(kDeepSpeedLines),
              AllOf(StartsWith("FILE: is a log of DeepSpeed"), HasSubstr("no loss")));
  EXPECT_THAT(detected(kNemoLine),
              AllOf(StartsWith("FILE: is a log of NeMo"), HasSubstr("events.out.tfevents")));
  EXPECT_THAT(detected("  1%|          | 10/1500 [00:31<1:15:03] {'loss': 1.84, 'grad_norm': 2.03, "
                       "'learning_rate': 1.6e-06, 'epoch': 0.01}\n"),
              HasSubstr("trainer_state.json"));
  EXPECT_THAT(detected("{'loss': 1.84, 'learning_rate': 1.6e-06, 'epoch': 0.01}\n"),
              HasSubstr("Hugging Face's Trainer"));
  // Megatron-DeepSpeed prints both.
  EXPECT_EQ(detected(std::string(kDeepSpeedLines) + kMegatronLine), "megatron");
}

TEST(DetectFormat, AStepAndALossAreNotYetTorchtitan) {
  EXPECT_THAT(detected("step: 1 loss: 2.5\n"),
              AllOf(HasSubstr("unknown format: its first line is \"step: 1 loss: 2.5\""),
                    HasSubstr("expected one of result, store, tensorboard, torchtitan"),
                    Not(HasSubstr("auto"))));
}

TEST(DetectFormat, TablesAreNamed) {
  EXPECT_THAT(detected("\"Step\",\"llama8b-run - train/loss\",\"llama8b-run - train/loss__MIN\"\n"
                       "\"1\",\"2.5031\",\"2.5031\"\n"),
              AllOf(HasSubstr("one chart of W&B"), HasSubstr("train/loss")));
  EXPECT_THAT(detected("_step,_runtime,_timestamp,train/loss\n1,12.1,1767225600.2,2.5\n"),
              HasSubstr("a history of W&B as CSV"));
  EXPECT_THAT(detected("Wall time,Step,Value\n1767225600.2,1,2.5\n"),
              HasSubstr("TensorBoard's page exports"));
  EXPECT_THAT(detected("m,n,k,us\n1,2,3,4.5\n"),
              HasSubstr("is a CSV with the columns \"m\", \"n\", \"k\", \"us\""));
  // Commas alone make no table.
  EXPECT_THAT(detected("Dear reader,\nthis is a letter, not a log\n"), HasSubstr("unknown format"));
}

TEST(DetectFormat, ObjectsByTheirKeys) {
  EXPECT_EQ(detected("{\"traceEvents\": [\n"), "kineto");
  EXPECT_EQ(detected("{\"step\": 1, \"loss\": NaN}\n{\"step\": 2}\n"), "steps");
  EXPECT_EQ(detected("{\n  \"global_step\": 3,\n  \"log_history\": []\n}\n"), "trainer-state");
  EXPECT_THAT(detected("{\n  \"a\": 1,\n  \"b\": [2]\n}\n"),
              HasSubstr("unknown format: one object of JSON with the keys \"a\", \"b\""));
  EXPECT_THAT(detected("{\"_runtime\": 12, \"_step\": 3, \"loss\": 2, \"_wandb\": {}}\n"),
              HasSubstr("the summary of a run of W&B"));
  EXPECT_THAT(detected("{\"train_runtime\": 30.5, \"train_loss\": 1.7}\n"),
              HasSubstr("trainer_state.json beside it"));
  EXPECT_THAT(detected("{\"zero_optimization\": {\"stage\": 3}}\n"),
              HasSubstr("a configuration of DeepSpeed"));
  EXPECT_THAT(detected("{\"architectures\": [], \"model_type\": \"llama\"}\n"),
              HasSubstr("the configuration of a model"));
  EXPECT_THAT(detected("{\"schema\": \"mfsdp.check/1\", \"verdict\": \"pass\"}\n"),
              HasSubstr("an output of mfsdp without a run"));
  EXPECT_THAT(detected("[{\"ph\": \"X\"}]"), HasSubstr("\"traceEvents\" of an object"));
}

TEST(DetectFormat, MagicBytes) {
  EXPECT_THAT(detected("PK\x03\x04 archive"), HasSubstr("is a zip archive"));
  EXPECT_THAT(detected(std::string(":W&B") + '\xe1' + '\xbe' + '\0'), HasSubstr("W&B's client"));
  EXPECT_THAT(detected("PAR1data"), HasSubstr("Parquet"));
  EXPECT_THAT(detected(std::string("\x01\x02\0\x03", 4)), HasSubstr("it is no text"));
  EXPECT_EQ(detected(""), "FILE: is empty");
}

/// The first letter decides nothing: what is known is known after a blank line and a byte order
/// mark.
TEST(DetectFormat, BlanksBeforeDoNotMatter) {
  const std::vector<std::string> texts{kTitanLine, kMegatronLine, kVerlLine,
                                       "{\"step\": 1, \"loss\": 2}\n", "_step,_runtime\n1,2\n"};
  for (const std::string& text : texts) {
    EXPECT_EQ(detected("\n \n" + text), detected(text));
    EXPECT_EQ(detected("\xEF\xBB\xBF" + text), detected(text));
  }
}

/// An error is one line and shows at most one of the input.
TEST(DetectFormat, AnUnknownFileIsShownInShort) {
  const std::string error = detected(std::string(100'000, 'x') + "\nsecond line\n");
  EXPECT_LT(error.size(), 400U);
  EXPECT_THAT(error, AllOf(HasSubstr("xxx...\""), Not(HasSubstr("second line"))));
}

}  // namespace
}  // namespace mfsdp
