#include "core/shard/element_order.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

/// Two heads of two elements, one of keys; hidden 3; four features.
ModelShape shape_of_order() {
  ModelShape model = test::small_shape();
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 2;
  model.hidden = 3;
  model.intermediate = 4;
  return model;
}

PlacedParameter parameter_of(ParameterRole role, std::vector<std::int64_t> shape) {
  return {.name = "p", .role = role, .shape = std::move(shape)};
}

/// The place in the parameter of each element, by the order.
std::vector<std::int64_t> places(const ElementOrder& order, std::int64_t elements) {
  std::vector<std::int64_t> all;
  for (std::int64_t e = 0; e < elements; ++e) all.push_back(order.place_of(e));
  return all;
}

/// Whatever the interval, runs agree with elements one by one, in both directions.
void expect_inverse(const ElementOrder& order, std::int64_t elements) {
  const std::vector<std::int64_t> all = places(order, elements);
  for (std::int64_t begin = 0; begin < elements; ++begin)
    for (std::int64_t end = begin; end <= elements; end += 5) {
      std::int64_t next = begin;
      order.in_parameter({.begin = begin, .end = end},
                         [&](std::int64_t at, std::int64_t place, std::int64_t count) {
                           EXPECT_EQ(at, next);
                           for (std::int64_t i = 0; i < count; ++i)
                             EXPECT_EQ(all[static_cast<std::size_t>(at + i)], place + i);
                           next = at + count;
                         });
      EXPECT_EQ(next, end);
      next = begin;
      order.from_parameter({.begin = begin, .end = end},
                           [&](std::int64_t at, std::int64_t place, std::int64_t count) {
                             EXPECT_EQ(at, next);
                             for (std::int64_t i = 0; i < count; ++i)
                               EXPECT_EQ(all[static_cast<std::size_t>(place + i)], at + i);
                             next = at + count;
                           });
      EXPECT_EQ(next, end);
    }
}

TEST(ElementOrder, GivesEachRankItsHeadsOfQueriesKeysAndValues) {
  // Rows: q of 4 heads 0..7, k of 2 heads 8..11, v 12..15.
  const PlacedParameter qkv = parameter_of(ParameterRole::qkv, {16, 1});
  const ElementOrder order(qkv, shape_of_order(), 2);
  EXPECT_EQ(places(order, 16),
            (std::vector<std::int64_t>{0, 1, 2, 3, 8, 9, 12, 13, 4, 5, 6, 7, 10, 11, 14, 15}));
}

TEST(ElementOrder, GivesEachRankItsGatesAndItsInputs) {
  const PlacedParameter gate_up = parameter_of(ParameterRole::gate_up, {8, 1});
  EXPECT_EQ(places(ElementOrder(gate_up, shape_of_order(), 2), 8),
            (std::vector<std::int64_t>{0, 1, 4, 5, 2, 3, 6, 7}));
  const PlacedParameter down = parameter_of(ParameterRole::down, {3, 4});
  EXPECT_EQ(places(ElementOrder(down, shape_of_order(), 2), 12),
            (std::vector<std::int64_t>{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
}

TEST(ElementOrder, RunsAreItsElementsInBothDirections) {
  const ModelShape model = shape_of_order();
  for (const std::int64_t ranks : {1, 2})
    for (const PlacedParameter& parameter :
         {parameter_of(ParameterRole::qkv, {16, 3}), parameter_of(ParameterRole::gate_up, {8, 3}),
          parameter_of(ParameterRole::attention_out, {3, 8}),
          parameter_of(ParameterRole::head, {24, 3}), parameter_of(ParameterRole::input_norm, {3})})
      expect_inverse(ElementOrder(parameter, model, ranks), parameter.elements());
}

TEST(ElementOrder, IsThatOfTheParameterWhereEachRankHasAllOfIt) {
  const ModelShape model = shape_of_order();
  const PlacedParameter norm = parameter_of(ParameterRole::input_norm, {3});
  EXPECT_EQ(ElementOrder(norm, model, 1), ElementOrder(norm, model, 2));
  const PlacedParameter down = parameter_of(ParameterRole::down, {3, 4});
  EXPECT_NE(ElementOrder(down, model, 1), ElementOrder(down, model, 2));
}

}  // namespace
}  // namespace mfsdp
