#include "core/schedule/bindings.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

Op record(std::size_t id, std::size_t event) {
  Op op;
  op.id = OpId(id);
  op.body = Record{.event = EventId(event)};
  return op;
}

Op wait(std::size_t id, std::size_t event) {
  Op op;
  op.id = OpId(id);
  op.body = Wait{.event = EventId(event), .bindings = {}};
  return op;
}

Segment segment(const char* name, std::int64_t repeat, std::vector<Op> ops) {
  Segment made;
  made.name = name;
  made.repeat = repeat;
  made.ops = std::move(ops);
  return made;
}

std::vector<Binding> bindings(const Plan& plan, std::size_t segment, std::size_t op) {
  return std::get<Wait>(plan.segments[segment].ops[op].body).bindings;
}

TEST(Bindings, TheLatestRecordOfTheSameSegmentWins) {
  Plan plan{.name = "train",
            .segments = {segment("only", 1, {record(0, 0), record(1, 0), wait(2, 0)})}};
  resolve_bindings(plan);
  EXPECT_EQ(bindings(plan, 0, 2), (std::vector<Binding>{{OpId(1), 0}}));
}

TEST(Bindings, AnEarlierSegmentOfTheStepHasDistanceZero) {
  Plan plan{
      .name = "train",
      .segments = {segment("only", 1, {record(0, 0)}), segment("optimizer", 1, {wait(1, 0)})}};
  resolve_bindings(plan);
  EXPECT_EQ(bindings(plan, 1, 0), (std::vector<Binding>{{OpId(0), 0}}));
}

TEST(Bindings, ARecordThatComesLaterIsThePreviousSteps) {
  Plan plan{
      .name = "train",
      .segments = {segment("only", 1, {wait(0, 0)}), segment("optimizer", 1, {record(1, 0)})}};
  resolve_bindings(plan);
  EXPECT_EQ(bindings(plan, 0, 0), (std::vector<Binding>{{OpId(1), 1}}));
}

TEST(Bindings, ARepeatedSegmentFollowsItselfAndTheOneBefore) {
  Plan plan{.name = "train",
            .segments = {segment("first", 1, {record(0, 0)}),
                         segment("middle", 3, {wait(1, 0), record(2, 0)}),
                         segment("last", 1, {wait(3, 0)})}};
  resolve_bindings(plan);
  EXPECT_EQ(bindings(plan, 1, 0), (std::vector<Binding>{{OpId(2), 1}, {OpId(0), 0}}));
  EXPECT_EQ(bindings(plan, 2, 0), (std::vector<Binding>{{OpId(2), 0}}));
}

TEST(Bindings, AnEventThatNothingRecordsBindsToNothing) {
  Plan plan{.name = "train", .segments = {segment("only", 1, {wait(0, 0)})}};
  resolve_bindings(plan);
  EXPECT_TRUE(bindings(plan, 0, 0).empty());
}

}  // namespace
}  // namespace mfsdp
