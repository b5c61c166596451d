#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "reports/import/foreign_run.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// As TrainerState.save_to_json() writes it: three steps that were logged, an evaluation between,
/// and what sums the training up.
constexpr const char* kTrainerState = R"({
  "best_metric": null, "epoch": 0.02, "eval_steps": 20, "global_step": 30,
  "log_history": [
    {"epoch": 0.007, "grad_norm": 2.03, "learning_rate": 1.6e-06, "loss": 1.84, "step": 10},
    {"epoch": 0.013, "grad_norm": NaN, "learning_rate": 3.2e-06, "loss": 1.79, "step": 20},
    {"epoch": 0.013, "eval_loss": 1.75, "eval_runtime": 3.1, "step": 20},
    {"epoch": 0.02, "grad_norm": 1.75, "learning_rate": 4.8e-06, "loss": 1.70, "step": 30},
    {"epoch": 0.02, "step": 30, "total_flos": 1.2e+17, "train_loss": 1.7767, "train_runtime": 61.5,
     "train_samples_per_second": 0.5}
  ],
  "logging_steps": 10, "max_steps": 30, "train_batch_size": 1
})";

TEST(JsonSteps, TheStateOfHuggingFacesTrainer) {
  const auto run = read_trainer_state(kTrainerState, "trainer_state.json");
  ASSERT_TRUE(run) << run.error().message();
  ASSERT_EQ(run->steps.size(), 3U);
  EXPECT_EQ(run->steps.at(10).loss, 1.84);
  EXPECT_EQ(run->steps.at(10).learning_rate, 1.6e-6);
  EXPECT_TRUE(std::isnan(run->steps.at(20).grad_norm.value()));
  EXPECT_EQ(run->steps.at(30).loss, 1.70);  // not the mean of all steps
  EXPECT_EQ(run->validation_losses.size(), 1U);
  EXPECT_EQ(run->validation_losses.at(20), 1.75);
  EXPECT_EQ(find_fact(run->facts, "import", "max_steps")->value, FactValue(std::int64_t{30}));
  EXPECT_EQ(find_fact(run->facts, "import", "train_runtime_seconds")->value, FactValue(61.5));
  EXPECT_THAT(run->left_out, ElementsAre("epoch", "eval_runtime"));
}

TEST(JsonSteps, AStateWithoutStepsOrWithWrongOnes) {
  const auto error = [](const std::string& log) {
    const auto run = read_trainer_state("{\"global_step\":20,\"log_history\":" + log + "}", "F");
    return run ? std::string() : run.error().message();
  };
  EXPECT_THAT(error("[]"), HasSubstr("F: its log_history holds no step with a loss"));
  EXPECT_THAT(error("{}"), HasSubstr("F: expected an object with the list \"log_history\""));
  EXPECT_THAT(error("[{\"loss\":1}]"), HasSubstr("F: log_history[0]: expected a whole number"));
  EXPECT_THAT(error("[{\"loss\":1,\"step\":1},{\"loss\":1,\"step\":2.5}]"),
              HasSubstr("F: log_history[1]: expected a whole number of a step"));
  EXPECT_THAT(error("[{\"loss\":1,\"step\":-1}]"),
              HasSubstr("F: log_history[0]: expected a whole"));
  EXPECT_THAT(error("[7]"), HasSubstr("F: log_history[0]: expected a JSON object"));
  EXPECT_THAT(error("[{\"loss\":\"low\",\"step\":1}]"),
              HasSubstr("F: log_history[0]: loss: expected a number, got a text"));
}

/// Entries of one step add up, as callbacks write their own.
TEST(JsonSteps, SeveralEntriesOfAStep) {
  const auto run = read_trainer_state(
      R"({"global_step":1,"log_history":[{"step":1,"grad_norm":2},{"step":1,"loss":3}]})", "F");
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->steps.at(1).loss, 3);
  EXPECT_EQ(run->steps.at(1).grad_norm, 2);
}

TEST(JsonSteps, LinesNameWhatIsLeftOut) {
  const auto run = read_step_lines(
      "{\"step\":1,\"loss\":2.5,\"epoch\":0.1,\"note\":\"text\",\"aux\":{\"z\":1}}\n"
      "{\"step\":2,\"loss\":2.5,\"epoch\":0.2}\n",
      "F");
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_THAT(run->left_out, ElementsAre("aux", "epoch"));
}

}  // namespace
}  // namespace mfsdp
