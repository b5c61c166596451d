#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "reports/import/foreign_run.hpp"
#include "tests/support/event_file.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// NeMo's names: what it logs of each step with its TensorBoard logger.
TEST(ImportTensorboard, TagsOfNemo) {
  const auto run = read_tensorboard(test::event_file({{"reduced_train_loss", 1, 2.5F},
                                                      {"train_step_timing in s", 1, 0.5F},
                                                      {"lr", 1, 0.25F},
                                                      {"consumed_samples", 1, 8},
                                                      {"epoch", 1, 0},
                                                      {"reduced_train_loss", 2, 2.25F},
                                                      {"epoch", 2, 0},
                                                      {"val_loss", 2, 3}}),
                                    "F");
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->engine, "nemo");
  EXPECT_EQ(run->steps.at(1).loss, 2.5);
  EXPECT_EQ(run->steps.at(1).seconds, 0.5);
  EXPECT_EQ(run->steps.at(1).learning_rate, 0.25);
  EXPECT_EQ(run->steps.at(2).loss, 2.25);
  EXPECT_EQ(run->validation_losses.at(2), 3);
  EXPECT_THAT(run->left_out, ElementsAre("consumed_samples", "epoch"));
}

TEST(ImportTensorboard, UnknownTagsAreNamed) {
  const auto run = read_tensorboard(test::event_file({{"a", 1, 1}, {"b", 1, 1}, {"a", 2, 1}}), "F");
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().message(), HasSubstr("but \"a\", \"b\""));
}

/// The same figure as a part of the device's memory is nothing that is left out.
TEST(ImportTensorboard, PercentagesOfMemoryAreNoFurtherFigures) {
  const auto run = read_tensorboard(test::event_file({{"lr", 1, 0.5F},
                                                      {"memory/max_active(GiB)", 1, 2},
                                                      {"memory/max_active(%)", 1, 20},
                                                      {"memory/num_ooms", 1, 0}}),
                                    "F");
  ASSERT_TRUE(run) << run.error().message();
  EXPECT_EQ(run->peak, Bytes(std::int64_t{2} << 30));
  EXPECT_THAT(run->left_out, ElementsAre("memory/num_ooms"));
}

}  // namespace
}  // namespace mfsdp
