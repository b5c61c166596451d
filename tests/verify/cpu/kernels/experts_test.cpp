#include "verify/cpu/kernels/experts.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "tests/verify/cpu/kernels/expert_numbers.hpp"
#include "tests/verify/cpu/kernels/gradients.hpp"

namespace mfsdp::kernels {
namespace {

using experts_test::at;
using experts_test::between;
using experts_test::Numbers;
using test::RandomValues;
using test::Values;

RoutingSizes any_sizes() {
  const std::int64_t experts = between(1, 7);
  const std::int64_t seq = between(1, 4);
  return {.tokens = seq * between(1, 3),
          .experts = experts,
          .top_k = between(1, experts),
          .seq = seq,
          .normalised = *rc::gen::arbitrary<bool>()};
}

struct Routed {
  Numbers indices;
  Values weights;
  Numbers counts;
};

Routed route(const RoutingSizes& s, const Values& logits) {
  Routed made{.indices = Numbers(at(s.tokens * s.top_k)),
              .weights = Values(at(s.tokens * s.top_k)),
              .counts = Numbers(at(s.tokens / s.seq * s.experts))};
  router_forward(RouterForward<double>{.sizes = s,
                                       .logits = logits.data(),
                                       .indices = made.indices.data(),
                                       .weights = made.weights.data(),
                                       .counts = made.counts.data()});
  return made;
}

Values probabilities(const RoutingSizes& s, const Values& logits) {
  Values all;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    double sum = 0;
    for (std::int64_t e = 0; e < s.experts; ++e) sum += std::exp(logits[at(t * s.experts + e)]);
    for (std::int64_t e = 0; e < s.experts; ++e)
      all.push_back(std::exp(logits[at(t * s.experts + e)]) / sum);
  }
  return all;
}

/// The weights of experts that stay chosen while the logits move a little.
Values weights_of(const RoutingSizes& s, const Values& logits, const Numbers& indices) {
  const Values p = probabilities(s, logits);
  Values weights;
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    double sum = 0;
    for (std::int64_t k = 0; k < s.top_k; ++k)
      sum += p[at(t * s.experts + indices[at(t * s.top_k + k)])];
    for (std::int64_t k = 0; k < s.top_k; ++k)
      weights.push_back(p[at(t * s.experts + indices[at(t * s.top_k + k)])] /
                        (s.normalised ? sum : 1));
  }
  return weights;
}

RC_GTEST_PROP(Router, ChoosesTheLargestAndWeighsThem, (std::uint32_t seed)) {
  const RoutingSizes s = any_sizes();
  RandomValues random(seed);
  Values logits = random(s.tokens * s.experts);
  // Few distinct values, so that ties are frequent.
  for (double& logit : logits) logit = std::round(logit);
  const Routed routed = route(s, logits);
  Numbers counts(routed.counts.size());
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    Numbers order(at(s.experts));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater{},
                             [&](std::int32_t e) { return logits[at(t * s.experts + e)]; });
    for (std::int64_t k = 0; k < s.top_k; ++k) {
      RC_ASSERT(routed.indices[at(t * s.top_k + k)] == order[at(k)]);
      ++counts[at(t / s.seq * s.experts + order[at(k)])];
    }
  }
  RC_ASSERT(routed.counts == counts);
  RC_ASSERT(test::relative_error(routed.weights, weights_of(s, logits, routed.indices)) < 1e-14);
}

/// NaN logits are chosen last or in index order, but never twice.
TEST(Router, TakesWhatIsNotANumberForNoReasonToRepeat) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const RoutingSizes s{.tokens = 1, .experts = 4, .top_k = 4, .seq = 1};
  Numbers chosen = route(s, {nan, 3, nan, 1}).indices;
  std::ranges::sort(chosen);
  EXPECT_EQ(chosen, (Numbers{0, 1, 2, 3}));
}

RC_GTEST_PROP(Router, GradientsAreThoseOfWeightsBalanceAndZ, (std::uint32_t seed)) {
  const RoutingSizes s = any_sizes();
  RandomValues random(seed);
  Values logits = random(s.tokens * s.experts);
  const Routed routed = route(s, logits);
  const Values d_weights = random(s.tokens * s.top_k);
  const LossScaleState scale{.scale = 4};
  const double aux = 0.25;
  const double z = 0.125;
  Values gradient(logits.size());
  router_backward(RouterBackward<double>{.sizes = s,
                                         .logits = logits.data(),
                                         .indices = routed.indices.data(),
                                         .d_weights = d_weights.data(),
                                         .counts = routed.counts.data(),
                                         .loss_scale = &scale,
                                         .aux_loss = aux,
                                         .z_loss = z,
                                         .d_logits = gradient.data()});
  const auto loss = [&] {
    const Values p = probabilities(s, logits);
    double sum = test::dot(weights_of(s, logits, routed.indices), d_weights);
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      double exponentials = 0;
      for (std::int64_t e = 0; e < s.experts; ++e) {
        exponentials += std::exp(logits[at(t * s.experts + e)]);
        // E * f * p, where f is the share of a sequence's choices.
        sum += 4 * aux * static_cast<double>(s.experts) *
               routed.counts[at(t / s.seq * s.experts + e)] / static_cast<double>(s.seq * s.top_k) *
               p[at(t * s.experts + e)];
      }
      sum += 4 * z * std::pow(std::log(exponentials), 2);
    }
    return sum;
  };
  const Values expected = test::finite_differences(logits, loss);
  double difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    difference = std::max(difference, std::fabs(expected[i] - gradient[i]));
  RC_ASSERT(difference < 1e-8);
}

/// Sigmoids with a correction of each expert, groups by their best two, a factor of the weights:
/// the choice by hand, and gradients of weights of experts that stay chosen.
RC_GTEST_PROP(Router, OfSigmoidsChoosesInTheBestGroups, (std::uint32_t seed, bool normalised)) {
  const std::int64_t size = between(2, 3);
  const std::int64_t groups = between(2, 4);
  const std::int64_t chosen_groups = between(1, groups - 1);
  const RoutingSizes s{.tokens = 3,
                       .experts = groups * size,
                       .top_k = between(1, chosen_groups * size),
                       .normalised = normalised,
                       .sigmoid = true,
                       .groups = groups,
                       .chosen_groups = chosen_groups,
                       .scale = 2.5};
  RandomValues random(seed);
  Values logits = random(s.tokens * s.experts);
  const Values correction = random(s.experts);
  Numbers indices(at(s.tokens * s.top_k));
  Values weights(indices.size());
  router_forward(RouterForward<double>{.sizes = s,
                                       .logits = logits.data(),
                                       .correction = correction.data(),
                                       .indices = indices.data(),
                                       .weights = weights.data()});
  const auto probability = [&](std::int64_t t, std::int64_t e) {
    return 1 / (1 + std::exp(-logits[at(t * s.experts + e)]));
  };
  const auto naive = [&] {
    Values made;
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      double sum = 0;
      for (std::int64_t k = 0; k < s.top_k; ++k)
        sum += probability(t, indices[at(t * s.top_k + k)]);
      for (std::int64_t k = 0; k < s.top_k; ++k)
        made.push_back(2.5 * probability(t, indices[at(t * s.top_k + k)]) / (normalised ? sum : 1));
    }
    return made;
  };
  RC_ASSERT(test::relative_error(weights, naive()) < 1e-14);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    const auto score = [&](std::int64_t e) { return probability(t, e) + correction[at(e)]; };
    std::vector<std::pair<double, std::int64_t>> of_groups;
    for (std::int64_t g = 0; g < groups; ++g) {
      Values all;
      for (std::int64_t i = 0; i < size; ++i) all.push_back(score(g * size + i));
      std::ranges::sort(all, std::greater{});
      of_groups.emplace_back(-(all[0] + all[1]), g);
    }
    std::ranges::sort(of_groups);
    std::vector<std::pair<double, std::int64_t>> best;
    for (std::int64_t g = 0; g < chosen_groups; ++g)
      for (std::int64_t i = 0; i < size; ++i) {
        const std::int64_t e = of_groups[at(g)].second * size + i;
        best.emplace_back(-score(e), e);
      }
    std::ranges::sort(best);
    for (std::int64_t k = 0; k < s.top_k; ++k)
      RC_ASSERT(indices[at(t * s.top_k + k)] == best[at(k)].second);
  }
  const Values d_weights = random(std::ssize(weights));
  Values gradient(logits.size());
  router_backward(RouterBackward<double>{.sizes = s,
                                         .logits = logits.data(),
                                         .indices = indices.data(),
                                         .d_weights = d_weights.data(),
                                         .d_logits = gradient.data()});
  const Values expected =
      test::finite_differences(logits, [&] { return test::dot(naive(), d_weights); });
  for (std::size_t i = 0; i < expected.size(); ++i)
    RC_ASSERT(std::fabs(expected[i] - gradient[i]) < 1e-8);
}

/// Softmax: groups by their best expert.
TEST(Router, OfSoftmaxChoosesInTheBestGroups) {
  const Values logits{1, 9, 8, 7, 2, 10};  // groups of two: 9, 8, 10
  const RoutingSizes s{
      .tokens = 1, .experts = 6, .top_k = 3, .groups = 3, .chosen_groups = 2, .scale = 2};
  Numbers indices(3);
  Values weights(3);
  router_forward(RouterForward<double>{
      .sizes = s, .logits = logits.data(), .indices = indices.data(), .weights = weights.data()});
  EXPECT_EQ(indices, (Numbers{5, 1, 4}));  // not 2 and 3, though larger than 4
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  EXPECT_NEAR(weights[2], 2 * std::exp(2) / sum, 1e-15);
}

struct Ordered {
  Numbers ends;
  Numbers order;
  Numbers places;
};

Ordered order_of(const RoutingSizes& s, const Numbers& indices) {
  Ordered made{.ends = Numbers(at(s.experts)),
               .order = Numbers(indices.size()),
               .places = Numbers(indices.size())};
  expert_order(ExpertOrder{.sizes = s,
                           .indices = indices.data(),
                           .ends = made.ends.data(),
                           .order = made.order.data(),
                           .places = made.places.data()});
  return made;
}

RC_GTEST_PROP(ExpertOrder, IsAStableSort, (std::uint32_t seed)) {
  const RoutingSizes s = any_sizes();
  const Numbers indices = route(s, RandomValues(seed)(s.tokens * s.experts)).indices;
  const Ordered ordered = order_of(s, indices);
  Numbers expected(indices.size());
  std::iota(expected.begin(), expected.end(), 0);
  std::ranges::stable_sort(expected, {}, [&](std::int32_t i) { return indices[at(i)]; });
  RC_ASSERT(ordered.order == expected);
  for (std::size_t j = 0; j < expected.size(); ++j)
    RC_ASSERT(ordered.places[at(expected[j])] == static_cast<std::int32_t>(j));
  for (std::int64_t e = 0; e < s.experts; ++e)
    RC_ASSERT(ordered.ends[at(e)] ==
              std::ranges::count_if(indices, [&](std::int32_t i) { return i <= e; }));
}

/// Sums of what was permuted are top_k times the rows; weights come back as they were.
RC_GTEST_PROP(PermuteRows, GoThereAndBack, (std::uint32_t seed)) {
  const RoutingSizes s = any_sizes();
  RandomValues random(seed);
  const Routed routed = route(s, random(s.tokens * s.experts));
  const Ordered ordered = order_of(s, routed.indices);
  const std::int64_t cols = between(1, 5);
  const Values rows = random(s.tokens * cols);
  Values permuted(at(s.tokens * s.top_k * cols));
  Values row_weights(routed.weights.size());
  permute_rows(PermuteRows<double>{.tokens = s.tokens,
                                   .rows = s.tokens * s.top_k,
                                   .cols = cols,
                                   .top_k = s.top_k,
                                   .input = rows.data(),
                                   .order = ordered.order.data(),
                                   .weights = routed.weights.data(),
                                   .row_weights = row_weights.data(),
                                   .output = permuted.data()});
  for (std::size_t j = 0; j < ordered.order.size(); ++j)
    RC_ASSERT(permuted[j * at(cols)] == rows[at(ordered.order[j] / s.top_k * cols)]);
  const bool adds = *rc::gen::arbitrary<bool>();
  Values sums(rows.size(), 8.0);
  Values weights(routed.weights.size());
  combine_rows(CombineRows<double>{.tokens = s.tokens,
                                   .rows = s.tokens * s.top_k,
                                   .cols = cols,
                                   .top_k = s.top_k,
                                   .adds = adds,
                                   .input = permuted.data(),
                                   .places = ordered.places.data(),
                                   .row_weights = row_weights.data(),
                                   .weights = weights.data(),
                                   .output = sums.data()});
  RC_ASSERT(weights == routed.weights);
  for (std::size_t i = 0; i < rows.size(); ++i)
    RC_ASSERT(std::fabs(sums[i] - (adds ? 8 : 0) - static_cast<double>(s.top_k) * rows[i]) < 1e-12);
}

/// Rows for ranks lie in a block for each, by expert; what a rank has received of all of them is by
/// expert again, and each row's way back leads to where it came from.
RC_GTEST_PROP(RowsOfRanks, AreSentAndArriveByExpert, (std::uint32_t seed)) {
  const std::int64_t peers = between(1, 3);
  const std::int64_t here = between(1, 3);
  RoutingSizes s{.tokens = between(1, 9), .experts = peers * here};
  s.top_k = between(1, s.experts);
  s.seq = s.tokens;
  const std::int64_t block = s.tokens * s.top_k;
  const std::int64_t m = peers * block;
  // For each rank: the experts of its rows in blocks, or -1, and how many rows each expert has.
  std::vector<Numbers> sent;
  std::vector<Numbers> counts;
  RandomValues random(seed);
  for (std::int64_t rank = 0; rank < peers; ++rank) {
    const Numbers indices = route(s, random(s.tokens * s.experts)).indices;
    const Ordered ordered = order_of(s, indices);
    Numbers of_rank(at(s.experts));
    Numbers order(at(m));
    Numbers places(indices.size());
    peer_order(PeerOrder{.sizes = s,
                         .m = m,
                         .peers = peers,
                         .ends = ordered.ends.data(),
                         .row_order = ordered.order.data(),
                         .counts = of_rank.data(),
                         .order = order.data(),
                         .places = places.data()});
    Numbers experts;
    for (const std::int32_t pair : order) experts.push_back(pair < 0 ? -1 : indices[at(pair)]);
    for (std::size_t i = 0; i < places.size(); ++i) {
      RC_ASSERT(order[at(places[i])] == static_cast<std::int32_t>(i));
      RC_ASSERT(places[i] / block == indices[i] / here);
    }
    for (std::int64_t e = 0; e < s.experts; ++e)
      RC_ASSERT(of_rank[at(e)] == std::ranges::count(indices, static_cast<std::int32_t>(e)));
    sent.push_back(std::move(experts));
    counts.push_back(std::move(of_rank));
  }
  for (std::int64_t rank = 0; rank < peers; ++rank) {
    Numbers received;
    Numbers experts;
    for (std::int64_t from = 0; from < peers; ++from) {
      const auto part = [&](Numbers& into, const Numbers& all, std::int64_t size) {
        into.insert(into.end(), all.begin() + rank * size, all.begin() + (rank + 1) * size);
      };
      part(received, counts[at(from)], here);
      part(experts, sent[at(from)], block);
    }
    Numbers ends(at(here));
    Numbers order(at(m));
    Numbers places(at(m));
    arrival_order(ArrivalOrder{.experts = here,
                               .m = m,
                               .peers = peers,
                               .counts = received.data(),
                               .ends = ends.data(),
                               .order = order.data(),
                               .places = places.data()});
    std::int64_t expert = 0;
    for (std::int64_t j = 0; j < m; ++j) {
      while (expert < here && j >= ends[at(expert)]) ++expert;
      if (expert == here) {
        RC_ASSERT(order[at(j)] == -1);
        continue;
      }
      RC_ASSERT(experts[at(order[at(j)])] == rank * here + expert);
      RC_ASSERT(places[at(order[at(j)])] == j);
    }
    RC_ASSERT(std::ranges::count(places, -1) == std::ranges::count(experts, -1));
  }
}

}  // namespace
}  // namespace mfsdp::kernels
