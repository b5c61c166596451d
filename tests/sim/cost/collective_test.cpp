#include "sim/cost/collective.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using testing_cost::cluster_of;
using testing_cost::kKinds;

CollectiveModel collectives(const std::string& gpu, std::int64_t gpus,
                            std::int64_t gpus_per_node = 8) {
  return CollectiveModel(testing_cost::h200_tables().collective,
                         cluster_of(gpu, gpus, gpus_per_node));
}

Bytes mebibytes(double count) { return Bytes(static_cast<std::int64_t>(count * kMebibyte)); }

/// NCCL's bus bandwidth in GB/s.
double bus(const CollectiveModel& model, CollectiveKind kind, Bytes bytes, std::int64_t ranks) {
  const CollectiveCost cost = model.cost(kind, bytes, {.ranks = ranks});
  return wire_bytes(kind, static_cast<double>(bytes.value), static_cast<double>(ranks)) /
         static_cast<double>(cost.duration.value);
}

TEST(Collective, ManyRanksOfOneDomainPayForTheWireOnce) {
  // 64 GB200 against 8 of one NVLink domain: 63/64 of the bytes travel where 7/8 did, 1.125 times
  // as many; 8 % is left for the latency of more hops. Counted twice it would be 1.27 times.
  const CollectiveModel model = collectives("gb200", 64, 64);
  for (const CollectiveKind kind : kKinds) {
    const auto ns = [&](std::int64_t ranks) {
      return static_cast<double>(
          model.cost(kind, mebibytes(2048), {.ranks = ranks}).duration.value);
    };
    EXPECT_LT(ns(64), ns(8) * 1.125 * 1.08) << to_string(kind);
  }
}

TEST(Collective, IsLinearBetweenPointsAndBeyond) {
  const CollectiveModel model = collectives("h200", 8);
  const auto ns = [&](double mib, std::int64_t ranks) {
    return model.cost(CollectiveKind::all_gather, mebibytes(mib), {.ranks = ranks}).duration.value;
  };
  EXPECT_EQ(ns(96, 8), (208'700 + 382'300) / 2);  // halfway from 64 to 128 MiB
  // The floor: eight ranks take 23.2 us for 1 MiB, two take 29.4; between them sqrt(29.4 * 23.2).
  EXPECT_EQ(ns(0.001, 8), 26'117);
  EXPECT_EQ(ns(0, 8), 26'117);
  // Slope from 436 to 1024 MiB: (2.7330 - 1.1994) / 588 ms; 588 MiB further on it adds as much.
  EXPECT_EQ(ns(1612, 8), 2'733'000 + 1'533'600);
  EXPECT_EQ(ns(64, 6), (190'500 + 208'700) / 2);  // six ranks lie between four and eight
}

TEST(Collective, OtherLinksScaleTheBandwidthPart) {
  // B200: 900 * 0.929 / 450 = 1.858 times as wide; latency 26.1 us stays.
  const CollectiveModel model = collectives("b200", 8);
  const CollectiveCost cost = model.cost(CollectiveKind::all_gather, mebibytes(1024), {.ranks = 8});
  EXPECT_NEAR(static_cast<double>(cost.duration.value), 26'117 + (2'733'000 - 26'117) / 1.858, 2);
  EXPECT_EQ(cost.latency, Nanos(26'117));
  // 16 GiB on eight: about 682 GB/s measured.
  EXPECT_NEAR(bus(model, CollectiveKind::all_gather, mebibytes(16384), 8), 682, 35);
}

TEST(Collective, SlowLinksAreNotHiddenByTheTablesLatency) {
  // 1 MiB over PCIe at 31 * 0.9 GB/s cannot take NVLink's 23 us: 7/8 MiB / 21.8 GB/s = 42 us.
  const CollectiveModel model = collectives("l40s", 8);
  EXPECT_NEAR(
      static_cast<double>(
          model.cost(CollectiveKind::all_gather, mebibytes(1), {.ranks = 8}).duration.value),
      42'000, 500);
}

TEST(Collective, OneRankCopies) {
  const CollectiveModel model = collectives("h200", 1);
  EXPECT_EQ(model.cost(CollectiveKind::all_reduce, mebibytes(64), {}), CollectiveCost{});
  EXPECT_EQ(model.cost(CollectiveKind::all_gather, Bytes(0), {}), CollectiveCost{});
  // 3 us + 2 * 64 MiB / 4238.4 GB/s = 3,000 + 31,667 ns
  EXPECT_EQ(model.cost(CollectiveKind::all_gather, mebibytes(64), {}).duration, Nanos(34'667));
}

TEST(Collective, SpacedRanksShareTheNics) {
  // 8 ranks, one in each of 8 nodes, beside 7 such groups: each has one NIC, 50 GB/s * 0.95.
  const CollectiveModel model = collectives("h100", 64);
  const CollectiveCost cost =
      model.cost(CollectiveKind::all_reduce, Bytes(1'000'000'000), {.ranks = 8, .spacing = 8});
  EXPECT_EQ(cost.link, LinkClass::network);
  // LL128 ring: 14 + 14 * (4 + 2) us, bandwidth 0.92 of it; Simple ring: (8.4 + 14 * (14 + 2 * 2))
  // * 1.4 = 365 us + 2 * 7/8 GB / 47.5 GB/s = 36,842 us, the least.
  EXPECT_NEAR(static_cast<double>(cost.duration.value), 364'560 + 36'842'105, 2);
  EXPECT_EQ(cost.latency, Nanos(364'560));
}

TEST(Collective, WhatIsDealtOutLeavesByEachRanksOwnLink) {
  // Inside a node as an all-gather. Among 64 ranks of 8 nodes 56/64 of 512 MiB leave the node, by
  // one of 8 equal links of 50 GB/s, of which 0.86 are reached: 10.9 ms; rings, which enter and
  // leave a node once for all 8, take an eighth of that for the same bytes.
  const auto ns = [](const CollectiveModel& model, CollectiveKind kind, std::int64_t ranks) {
    return static_cast<double>(model.cost(kind, mebibytes(512), {.ranks = ranks}).duration.value);
  };
  const CollectiveModel one = collectives("h200", 8);
  EXPECT_EQ(ns(one, CollectiveKind::all_to_all, 8), ns(one, CollectiveKind::all_gather, 8));
  const CollectiveModel nodes = collectives("h200", 64);
  const double wire = 512 * kMebibyte * (64 - 8) / 64 / (50 * 0.86);
  EXPECT_GT(ns(nodes, CollectiveKind::all_to_all, 64), wire);
  EXPECT_LT(ns(nodes, CollectiveKind::all_to_all, 64), 1.1 * wire);
}

TEST(Collective, RanksOfOneDomainStayInside) {
  const CollectiveModel model = collectives("h100", 64);
  const auto link = [&](std::int64_t ranks, std::int64_t spacing) {
    return model
        .cost(CollectiveKind::all_gather, mebibytes(1), {.ranks = ranks, .spacing = spacing})
        .link;
  };
  EXPECT_EQ(link(8, 1), LinkClass::node);
  EXPECT_EQ(link(2, 4), LinkClass::node);     // ranks 0 and 4
  EXPECT_EQ(link(2, 8), LinkClass::network);  // ranks 0 and 8
  EXPECT_EQ(link(6, 1), LinkClass::network);  // ranks 6..11 straddle two nodes
  EXPECT_EQ(link(16, 1), LinkClass::network);
  EXPECT_EQ(
      collectives("h100", 6).cost(CollectiveKind::all_gather, mebibytes(1), {.ranks = 6}).link,
      LinkClass::node);
  EXPECT_EQ(collectives("gb200", 72, 4)
                .cost(CollectiveKind::all_gather, mebibytes(1), {.ranks = 72})
                .link,
            LinkClass::node);
}

TEST(Collective, OneDomainIsNotSlowerThanNodes) {
  Cluster cluster = cluster_of("h100", 64);
  const CollectiveModel nodes(testing_cost::h200_tables().collective, cluster);
  cluster.domain = 64;  // as if NVLink joined all of them
  const CollectiveModel domain(testing_cost::h200_tables().collective, cluster);
  for (const CollectiveKind kind : kKinds)
    for (const double size : {1, 16, 64, 256, 2048, 16384}) {
      // NCCL's model has no tree inside a domain, whose few hops win for smaller all-reduces.
      if (kind == CollectiveKind::all_reduce && size < 2048) continue;
      const CollectiveCost one = domain.cost(kind, mebibytes(size), {.ranks = 64});
      EXPECT_EQ(one.link, LinkClass::node);
      EXPECT_LE(one.duration, nodes.cost(kind, mebibytes(size), {.ranks = 64}).duration)
          << to_string(kind) << ", " << size << " MiB";
    }
}

struct Query {
  CollectiveKind kind;
  std::int64_t ranks;
  std::int64_t bytes;
};

std::int64_t duration(const CollectiveModel& model, const Query& query) {
  return model.cost(query.kind, Bytes(query.bytes), {.ranks = query.ranks}).duration.value;
}

Query any_query() {
  return {.kind = *rc::gen::elementOf(kKinds),
          .ranks = *rc::gen::element<std::int64_t>(2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 1024, 16384),
          .bytes = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << *rc::gen::inRange(1, 36))};
}

// Not so on mi300x, where a pair has one link of seven, nor for groups that straddle NVL72 domains.
RC_GTEST_PROP(CollectiveProperty, GrowsWithBytesAndRanks, ()) {
  static const CollectiveModel models[]{collectives("h100", 16384), collectives("a100_80", 16384),
                                        collectives("gb200", 72, 4), collectives("l40s", 16384)};
  const CollectiveModel& model = models[*rc::gen::inRange(0, 4)];
  Query query = any_query();
  const std::int64_t before = duration(model, query);
  RC_ASSERT(before > 0);
  Query larger = query;
  larger.bytes += *rc::gen::inRange<std::int64_t>(0, 1 << 24);
  RC_ASSERT(duration(model, larger) >= before);
  if (query.ranks < 8) return;
  query.ranks *= 2;
  RC_ASSERT(duration(model, query) >= before);
}

RC_GTEST_PROP(CollectiveProperty, IsContinuousInBytes, ()) {
  static const CollectiveModel model = collectives("h100", 16384);
  Query query = any_query();
  const std::int64_t before = duration(model, query);
  query.bytes += 1000;
  // 1000 bytes sent twice over the slowest bandwidth, LL's 20.4 GB/s, where a tree's correction is
  // steepest: 128 KiB / 0.5, 256 KiB / 0.4, three bytes' time for each: 2 * 3 * 1000 / 20.4 = 294.
  RC_ASSERT(duration(model, query) - before <= 295);
}

RC_GTEST_PROP(CollectiveProperty, PartsAreWithinTheWhole, ()) {
  static const CollectiveModel model = collectives("h200", 16384);
  const Query query = any_query();
  const CollectiveCost cost = model.cost(query.kind, Bytes(query.bytes), {.ranks = query.ranks});
  RC_ASSERT(cost.latency <= cost.duration);
  RC_ASSERT(cost.contention.occupancy >= 0);
  RC_ASSERT(cost.contention.draw >= 0);
  for (const std::int64_t lost : cost.contention.traffic.values) RC_ASSERT(lost >= 0);
  RC_ASSERT(cost.contention.occupancy + cost.contention.draw < kContentionUnit);
  for (const std::int64_t drag : cost.contention.drag.values) RC_ASSERT(drag >= kContentionUnit);
}

}  // namespace
}  // namespace mfsdp
