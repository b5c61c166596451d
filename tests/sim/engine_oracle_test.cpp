// The engine compared with a slow and simple one: every op of three steps is listed with its
// predecessors, and time advances by single nanoseconds.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "sim/simulator/simulation.hpp"
#include "tests/sim/timed_plan.hpp"

namespace mfsdp {
namespace {

using test::Tiny;

__extension__ using Int128 = __int128;

struct Node {
  const Op* op = nullptr;
  std::size_t rank = 0;
  std::int64_t step = 0;
  std::uint32_t segment = 0;
  std::uint32_t index = 0;
  std::int64_t instance = 0;
  std::vector<std::size_t> after;    // nodes that must be done before it starts
  std::vector<std::size_t> peers;    // of a collective: that of each rank of its group, its own too
  std::optional<std::size_t> issue;  // the host's work for it, where that takes time
  std::optional<std::size_t> before;         // of its stream
  std::optional<std::size_t> launch_before;  // of a collective: that which begins before it
  std::vector<std::size_t> held;  // records that the host waits for before it issues this
  Int128 left = 0;                // 2^-20 ns
  std::int64_t start = -1;
  std::int64_t came = -1;  // of a collective or a kernel of another stream: when no kernel held
                           // the SMs any more
  std::int64_t end = -1;

  [[nodiscard]] bool started() const { return start >= 0; }
  [[nodiscard]] bool done() const { return end >= 0; }
  [[nodiscard]] bool running() const { return started() && !done(); }
};

std::int64_t duration_of(const Op& op) {
  if (const auto* kernel = std::get_if<Kernel>(&op.body)) return kernel->flops;
  if (const auto* copy = std::get_if<Copy>(&op.body)) return copy->input.offset;
  if (const auto* collective = std::get_if<Collective>(&op.body)) return collective->count;
  return 0;
}

/// The host's work is no op of the plan; nodes of this one are nothing to streams.
const Op& host_op() {
  static const Op op{.id = OpId(0),
                     .stream = StreamId(0),
                     .unit = std::nullopt,
                     .name = "host",
                     .body = HostWait{}};
  return op;
}

/// Nanoseconds, of ops that differ.
std::int64_t host_cost(const Op& op, std::int64_t unit) {
  constexpr std::size_t kCosts = 4;
  return static_cast<std::int64_t>(op.id.value % kCosts) * unit;
}

struct HostWork {
  std::int64_t unit = 0;  ///< of what the host takes for an op; 0: no time
  bool launches_in_order = false;
};

std::vector<Node> unroll(const Program& program, std::int64_t steps, const HostWork& work_of_host) {
  const Plan& plan = program.plans.front();
  std::vector<Node> nodes;
  std::optional<std::size_t> issuing;
  std::vector<std::size_t> held;
  std::map<std::uint32_t, std::size_t> stream;
  std::map<std::uint32_t, std::size_t> communicator;
  std::map<std::uint32_t, std::size_t> record;
  std::optional<std::size_t> host;
  std::optional<std::size_t> launch;
  for (std::int64_t step = 0; step < steps; ++step)
    for (std::uint32_t s = 0; s < plan.segments.size(); ++s)
      for (std::int64_t instance = 0; instance < plan.segments[s].repeat; ++instance)
        for (std::uint32_t i = 0; i < plan.segments[s].ops.size(); ++i) {
          const Op& op = plan.segments[s].ops[i];
          Node node;
          node.op = &op;
          node.step = step;
          node.segment = s;
          node.index = i;
          node.instance = instance;
          node.left = static_cast<Int128>(duration_of(op)) << 20;
          if (work_of_host.unit > 0) {
            Node work = node;
            work.op = &host_op();
            work.left = static_cast<Int128>(host_cost(op, work_of_host.unit)) << 20;
            if (issuing) work.after.push_back(*issuing);
            if (host) work.after.push_back(*host);
            issuing = nodes.size();
            nodes.push_back(std::move(work));
            node.after.push_back(*issuing);
            node.issue = issuing;
            node.held = held;
          }
          const std::size_t self = nodes.size();
          const auto follow = [&](std::map<std::uint32_t, std::size_t>& latest, std::uint32_t key,
                                  bool becomes_latest) {
            if (latest.contains(key)) node.after.push_back(latest[key]);
            if (becomes_latest) latest[key] = self;
          };
          if (host) node.after.push_back(*host);
          if (const auto* wait = std::get_if<HostWait>(&op.body)) {
            if (record.contains(wait->event.value)) held.push_back(record[wait->event.value]);
            follow(record, wait->event.value, false);
            host = self;
          } else {
            if (stream.contains(op.stream.value)) node.before = stream[op.stream.value];
            follow(stream, op.stream.value, true);
          }
          if (const auto* wait = std::get_if<Wait>(&op.body))
            follow(record, wait->event.value, false);
          if (const auto* entry = std::get_if<Record>(&op.body)) record[entry->event.value] = self;
          if (const auto* entry = std::get_if<Collective>(&op.body)) {
            follow(communicator, entry->communicator.value, true);
            if (work_of_host.launches_in_order &&
                program.communicators[entry->communicator.value].transport !=
                    Transport::copy_engine) {
              node.launch_before = launch;
              launch = self;
            }
          }
          nodes.push_back(std::move(node));
        }
  return nodes;
}

bool meet(std::size_t a, std::size_t b, const Communicator& communicator, const Mesh& mesh) {
  const auto shards = static_cast<std::size_t>(mesh.size(Axis::dp_shard));
  const bool across_outer = std::ranges::count(communicator.axes, Axis::dp_outer) > 0;
  const bool across_shard = std::ranges::count(communicator.axes, Axis::dp_shard) > 0;
  return (across_outer || a / shards == b / shards) && (across_shard || a % shards == b % shards);
}

/// The nodes of all ranks, rank after rank; kernels take `factors[rank]` quarters of their time.
std::vector<Node> unroll(const Program& program, const std::vector<std::int64_t>& factors,
                         const HostWork& work_of_host) {
  const std::vector<Node> one = unroll(program, 3, work_of_host);
  std::vector<Node> all;
  for (std::size_t rank = 0; rank < factors.size(); ++rank)
    for (std::size_t i = 0; i < one.size(); ++i) {
      Node node = one[i];
      node.rank = rank;
      for (std::size_t& before : node.after) before += rank * one.size();
      for (std::size_t& record : node.held) record += rank * one.size();
      if (node.issue) *node.issue += rank * one.size();
      if (node.before) *node.before += rank * one.size();
      if (node.launch_before) *node.launch_before += rank * one.size();
      if (std::holds_alternative<Kernel>(node.op->body)) node.left = node.left * factors[rank] / 4;
      if (const auto* c = std::get_if<Collective>(&node.op->body))
        for (std::size_t other = 0; other < factors.size(); ++other)
          if (meet(rank, other, program.communicators[c->communicator.value], program.config.mesh))
            node.peers.push_back(other * one.size() + i);
      all.push_back(std::move(node));
    }
  return all;
}

/// One rank's second step.
struct Expected {
  std::int64_t begin = -1;
  std::int64_t end = -1;
  std::int64_t compute = 0;
  std::int64_t communication = 0;
  std::int64_t exposed = 0;
  std::int64_t waiting = 0;
  std::int64_t waited_for = 0;
  std::int64_t host_bound = 0;
  Int128 lost = 0;

  [[nodiscard]] std::int64_t compute_alone() const {
    return compute - static_cast<std::int64_t>(lost / kOne);
  }
};

class Oracle {
 public:
  Oracle(const Program& program, const std::vector<std::int64_t>& factors,
         const HostWork& work_of_host = {})
      : program_(program), ranks(factors.size()), nodes(unroll(program, factors, work_of_host)) {}

  void run() {
    for (std::int64_t now = 0;; ++now) {
      settle(now);
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        if (ranks[rank].begin < 0 && step_done(rank, 0)) ranks[rank].begin = now;
        if (ranks[rank].end < 0 && step_done(rank, 1)) ranks[rank].end = now;
      }
      if (std::ranges::all_of(ranks, [](const Expected& r) { return r.end >= 0; })) break;
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) account(rank);
      std::vector<std::int64_t> rates;
      for (const Node& node : nodes) rates.push_back(node.running() ? rate_of(node) : 0);
      for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].left -= rates[i];
    }
    for (const Node& node : nodes) {
      if (node.step != 1 || node.peers.empty()) continue;
      std::int64_t first = node.came;
      std::int64_t last = node.came;
      for (const std::size_t peer : node.peers) {
        first = std::min(first, nodes[peer].came);
        last = std::max(last, nodes[peer].came);
      }
      if (node.came == last) ranks[node.rank].waited_for += last - first;
    }
  }

 private:
  const Program& program_;

 public:
  std::vector<Expected> ranks;
  std::vector<Node> nodes;

 private:
  [[nodiscard]] static bool is_beside_compute(const Node& node) {
    return std::holds_alternative<Kernel>(node.op->body) && node.op->stream.value != test::kCompute;
  }
  [[nodiscard]] bool waits(const Node& node) const {
    if (is_beside_compute(node)) return node.came < 0;
    return std::ranges::any_of(node.peers, [&](std::size_t i) { return nodes[i].came < 0; });
  }

  /// Whether attention of an earlier nanosecond still runs on the rank. With GEMMs the order within
  /// a nanosecond would matter, so they have tests of their own.
  [[nodiscard]] bool held(std::size_t rank, std::int64_t now) const {
    return std::ranges::any_of(nodes, [&](const Node& n) {
      const auto* kernel = std::get_if<Kernel>(&n.op->body);
      return n.rank == rank && kernel != nullptr && n.running() && !waits(n) &&
             (is_beside_compute(n) ? n.came : n.start) < now &&
             test::tiny_class(*kernel) != KernelClass::memory;
    });
  }
  /// Whether it runs on the compute stream, for which kernels of other streams wait.
  [[nodiscard]] bool kernels_are_held(std::size_t rank, std::int64_t now) const {
    return std::ranges::any_of(nodes, [&](const Node& n) {
      return n.rank == rank && computes(n) && n.start < now && class_of(n) != KernelClass::memory;
    });
  }

  /// Starts and ends all ops that can at this time.
  void settle(std::int64_t now) {
    for (bool changed = true; changed;) {
      changed = false;
      for (Node& node : nodes) {
        if (!node.started() &&
            std::ranges::all_of(node.after, [&](std::size_t i) { return nodes[i].done(); })) {
          node.start = now;
          changed = true;
        }
        const bool is_turn = !node.launch_before || nodes[*node.launch_before].came >= 0;
        if (node.started() && !node.peers.empty() && node.came < 0 && is_turn &&
            !held(node.rank, now)) {
          node.came = now;
          changed = true;
        }
        if (node.started() && is_beside_compute(node) && node.came < 0 &&
            !kernels_are_held(node.rank, now)) {
          node.came = now;
          changed = true;
        }
        if (node.running() && node.left <= 0 && !waits(node)) {
          node.end = now;
          changed = true;
        }
      }
    }
  }

  [[nodiscard]] bool step_done(std::size_t rank, std::int64_t step) const {
    return std::ranges::all_of(nodes, [&](const Node& n) {
      return n.rank != rank || n.step != step || n.done() ||
             std::holds_alternative<HostWait>(n.op->body);
    });
  }

  [[nodiscard]] CollectivePrice price(const Node& node) const {
    const auto& collective = std::get<Collective>(node.op->body);
    return test::tiny_prices().collective(collective,
                                          program_.communicators[collective.communicator.value]);
  }

  [[nodiscard]] std::int64_t link_rate(std::size_t rank, int link) const {
    std::int64_t demand = 0;
    for (const Node& n : nodes) {
      if (n.rank != rank || !n.running() || n.peers.empty() || waits(n)) continue;
      const CollectivePrice p = price(n);
      if (p.link == link) demand += (p.duration.value - p.latency.value) * kOne / p.duration.value;
    }
    return demand > kOne ? kOne * kOne / demand : kOne;
  }

  [[nodiscard]] std::int64_t rate_of(const Node& node) const {
    if (const auto* kernel = std::get_if<Kernel>(&node.op->body)) {
      if (waits(node)) return 0;
      const KernelClass which = test::tiny_class(*kernel);
      std::int64_t left = kOne;
      std::int64_t most_sms = 0;
      for (const Node& n : nodes)
        if (n.rank == node.rank && n.running() && !n.peers.empty() && n.came >= 0) {
          const CollectivePrice p = price(n);
          const std::int64_t lost =
              p.occupancy * p.weight[which] / kOne + p.traffic[which] * rate_of(n) / kOne;
          left = left * std::max<std::int64_t>(kOne - lost, 0) / kOne;
          most_sms = std::max(most_sms, p.occupancy);
        }
      if (most_sms > 0) left = std::min(left, kOne - test::tiny_ragged(*kernel));
      return std::max(left, kOne / 4) * share_of(node) / kOne;
    }
    if (node.peers.empty()) return kOne;
    if (waits(node)) return 0;
    std::int64_t rate = kOne;
    for (const std::size_t peer : node.peers) {
      rate = std::min(rate, link_rate(nodes[peer].rank, price(node).link));
      for (const Node& n : nodes)
        if (n.rank == nodes[peer].rank && computes(n))
          rate = std::min(rate, kOne * kOne / price(node).drag[class_of(n)]);
    }
    return rate;
  }

  /// The rate that kernels of other streams leave a kernel.
  [[nodiscard]] std::int64_t share_of(const Node& node) const {
    if (is_beside_compute(node)) return kOne;
    const bool beside = std::ranges::any_of(nodes, [&](const Node& n) {
      return n.rank == node.rank && n.running() && is_beside_compute(n) && n.came >= 0;
    });
    if (!beside) return kOne;
    return class_of(node) == KernelClass::memory ? kOne / 8 : kOne / 2;
  }

  [[nodiscard]] static bool computes(const Node& n) {
    return n.running() && n.peers.empty() && !std::holds_alternative<HostWait>(n.op->body) &&
           n.op->stream.value == test::kCompute;
  }
  [[nodiscard]] static KernelClass class_of(const Node& n) {
    const auto* kernel = std::get_if<Kernel>(&n.op->body);
    return kernel == nullptr ? KernelClass::memory : test::tiny_class(*kernel);
  }
  [[nodiscard]] bool computes(std::size_t rank) const {
    return std::ranges::any_of(nodes, [&](const Node& n) { return n.rank == rank && computes(n); });
  }

  /// Whether the next op of the compute stream is one that the host has yet to issue, and may.
  [[nodiscard]] bool waits_for_host(std::size_t rank) const {
    const auto done = [&](std::size_t i) { return nodes[i].done(); };
    return std::ranges::any_of(nodes, [&](const Node& n) {
      return n.rank == rank && n.issue && !done(*n.issue) && !n.started() &&
             !std::holds_alternative<HostWait>(n.op->body) &&
             n.op->stream.value == test::kCompute && (!n.before || done(*n.before)) &&
             std::ranges::all_of(n.held, done);
    });
  }

  /// Accounts for the nanosecond that begins.
  void account(std::size_t rank) {
    Expected& sum = ranks[rank];
    if (sum.begin < 0 || sum.end >= 0) return;
    bool computes = false;
    bool communicates = false;
    bool waiting = false;
    for (const Node& node : nodes) {
      if (node.rank != rank || !node.running()) continue;
      if (!node.peers.empty()) {
        communicates = true;
        waiting |= waits(node);
      } else if (!std::holds_alternative<HostWait>(node.op->body) &&
                 node.op->stream.value == test::kCompute) {
        computes = true;
        sum.lost += kOne - rate_of(node);
      }
    }
    sum.compute += computes ? 1 : 0;
    sum.host_bound += !computes && waits_for_host(rank) ? 1 : 0;
    sum.communication += communicates ? 1 : 0;
    sum.exposed += communicates && !computes ? 1 : 0;
    sum.waiting += waiting && !computes ? 1 : 0;
  }
};

/// Uniform in [low, high], for small cases too.
template <class T>
T pick(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high + 1));
}

void add_random_op(Tiny& tiny) {
  const std::uint32_t stream = pick(0U, 3U);
  const std::uint32_t event = pick(0U, 2U);
  const int choice = pick(0, 15);
  if (choice < 4) {
    tiny.kernel(pick<std::int64_t>(0, 12), "kernel", stream,
                static_cast<KernelClass>(pick(1, static_cast<int>(kKernelClasses) - 1)),
                pick(0, 1) == 1);
  } else if (choice < 7) {
    tiny.record(stream, event);
  } else if (choice < 10) {
    tiny.wait(stream, event, 1);
  } else if (choice < 14) {
    const auto duration = pick<std::int64_t>(1, 12);
    tiny.collective(stream, pick(0U, 2U),
                    {.duration = duration,
                     .latency = pick<std::int64_t>(0, duration),
                     .sms = pick<std::int64_t>(0, 2),
                     .memory = pick<std::int64_t>(0, 2),
                     .drag = pick<std::int64_t>(0, 3)});
  } else if (choice == 14) {
    tiny.copy(pick<std::int64_t>(0, 9), stream);
  } else {
    tiny.host_wait(event, 1);
  }
}

Tiny random_program() {
  Tiny tiny;
  for (const std::string name : {"first", "middle", "last"}) {
    tiny.segment(name, name == "middle" ? pick<std::int64_t>(0, 3) : 1);
    const int ops = pick(0, 10);
    for (int i = 0; i < ops; ++i) add_random_op(tiny);
  }
  tiny.segment("optimizer").kernel(3);  // every event is recorded somewhere
  for (std::uint32_t event = 0; event < 3; ++event) tiny.record(test::kCompute, event);
  return tiny;
}

/// Compares the simulation's rank, and its figures for all ranks, with the oracle's.
void compare(const Simulation& simulation, const Oracle& oracle) {
  const auto reported = static_cast<std::size_t>(simulation.ranks.reported);
  RC_ASSERT(reported < oracle.ranks.size());
  const Expected& expected = oracle.ranks[reported];
  const TimeSummary& time = simulation.time;
  RC_ASSERT(time.step == time.compute + time.exposed_communication + time.idle);
  RC_ASSERT(time.step.value == expected.end - expected.begin);
  RC_ASSERT(time.compute.value == expected.compute);
  RC_ASSERT(time.communication.value == expected.communication);
  RC_ASSERT(time.exposed_communication.value == expected.exposed);
  RC_ASSERT(time.contention.value == static_cast<std::int64_t>(expected.lost / kOne));
  std::size_t timed = 0;
  for (const Node& node : oracle.nodes) {
    const OpKind kind = node.op->kind();
    if (node.rank != reported || node.step != 1 ||
        (kind != OpKind::kernel && kind != OpKind::collective && kind != OpKind::copy))
      continue;
    ++timed;
    const auto span = std::ranges::find_if(simulation.spans, [&](const OpSpan& s) {
      return s.segment == node.segment && s.op == node.index && s.instance == node.instance;
    });
    RC_ASSERT(span != simulation.spans.end());
    RC_ASSERT(span->start.value == node.start - expected.begin);
    RC_ASSERT(span->end.value == node.end - expected.begin);
  }
  RC_ASSERT(simulation.spans.size() == timed);
  std::int64_t exposed = 0;
  for (const ExposedUnit& unit : simulation.exposed_units) exposed += unit.exposed.value;
  RC_ASSERT(exposed == time.exposed_communication.value);
}

void compare(const RankSummary& summary, const std::vector<Expected>& ranks) {
  std::int64_t compute = 0;
  std::int64_t waiting = 0;
  for (const Expected& rank : ranks) {
    compute += rank.compute_alone();
    waiting += rank.waiting;
  }
  const auto [least, most] = std::ranges::minmax(ranks, {}, &Expected::compute_alone);
  const auto count = std::ssize(ranks);
  RC_ASSERT(summary.ranks == count);
  RC_ASSERT(summary.compute_least.value == least.compute_alone());
  RC_ASSERT(summary.compute_most.value == most.compute_alone());
  RC_ASSERT(summary.compute_mean.value == compute / count);
  RC_ASSERT(ranks[static_cast<std::size_t>(summary.slowest)].compute_alone() ==
            most.compute_alone());
  RC_ASSERT(summary.waiting_mean.value == waiting / count);
  RC_ASSERT(summary.waiting_most.value == std::ranges::max(ranks, {}, &Expected::waiting).waiting);
  RC_ASSERT(summary.waited_for.value ==
            ranks[static_cast<std::size_t>(summary.reported)].waited_for);
  RC_ASSERT(summary.waited_for.value ==
            std::ranges::max(ranks, {}, &Expected::waited_for).waited_for);
}

/// With a communicator whose collectives copy engines move, which have no order.
HostWork random_order(Tiny& tiny) {
  if (pick(0, 1) == 1) tiny.program.communicators[1].transport = Transport::copy_engine;
  return {.unit = 0, .launches_in_order = pick(0, 1) == 1};
}

Prices prices_with(const HostWork& work) {
  Prices prices = test::tiny_prices();
  prices.launches_in_order = work.launches_in_order;
  if (work.unit > 0)
    prices.host = [unit = work.unit](const Op& op) { return Nanos(host_cost(op, unit)); };
  return prices;
}

RC_GTEST_PROP(EngineOracle, AgreesToTheNanosecond, ()) {
  Tiny tiny = random_program();
  const HostWork work = random_order(tiny);
  const auto result = mfsdp::simulate(tiny.program, tiny.plan(), prices_with(work));
  RC_ASSERT(result.has_value());
  Oracle oracle(tiny.program, {4}, work);
  oracle.run();
  compare(*result, oracle);
  compare(result->ranks, oracle.ranks);
}

RC_GTEST_PROP(EngineOracle, AgreesWhereTheHostTakesTime, ()) {
  Tiny tiny = random_program();
  HostWork work = random_order(tiny);
  work.unit = pick<std::int64_t>(1, 5);
  const auto result = mfsdp::simulate(tiny.program, tiny.plan(), prices_with(work));
  RC_ASSERT(result.has_value());
  Oracle oracle(tiny.program, {4}, work);
  oracle.run();
  compare(*result, oracle);
  if (result->time.host) RC_ASSERT(result->time.host->bound.value == oracle.ranks[0].host_bound);
}

RC_GTEST_PROP(EngineOracle, AgreesWhereHostsOfSeveralRanksTakeTime, ()) {
  Tiny tiny = random_program();
  tiny.mesh(1, pick<std::int64_t>(2, 3));
  const HostWork work{.unit = pick<std::int64_t>(1, 5)};
  RankVariation variation;
  variation.by_rank = true;
  std::vector<std::int64_t> factors;
  for (std::int64_t rank = 0; rank < tiny.program.config.mesh.world_size(); ++rank) {
    factors.push_back(pick<std::int64_t>(2, 8));
    variation.slow.push_back({.rank = rank, .factor = {factors.back(), 4}});
  }
  const auto result = mfsdp::simulate(tiny.program, tiny.plan(), prices_with(work), variation);
  RC_ASSERT(result.has_value());
  Oracle oracle(tiny.program, factors, work);
  oracle.run();
  compare(*result, oracle);
  compare(result->ranks, oracle.ranks);
}

RC_GTEST_PROP(EngineOracle, AgreesOnSeveralRanks, ()) {
  Tiny tiny = random_program();
  tiny.mesh(pick<std::int64_t>(1, 2), pick<std::int64_t>(1, 3));
  RankVariation variation;
  variation.by_rank = pick(0, 1) == 1;
  std::vector<std::int64_t> factors;
  for (std::int64_t rank = 0; rank < tiny.program.config.mesh.world_size(); ++rank) {
    factors.push_back(pick(0, 2) == 0 ? pick<std::int64_t>(1, 12) : 4);
    variation.slow.push_back({.rank = rank, .factor = {factors.back(), 4}});
  }
  const HostWork work = random_order(tiny);
  const auto result = mfsdp::simulate(tiny.program, tiny.plan(), prices_with(work), variation);
  RC_ASSERT(result.has_value());
  Oracle oracle(tiny.program, factors, work);
  oracle.run();
  compare(*result, oracle);
  compare(result->ranks, oracle.ranks);
}

RC_GTEST_PROP(EngineOracle, IsDeterministic, ()) {
  Tiny tiny = random_program();
  const auto once = test::simulate(tiny);
  const auto again = test::simulate(tiny);
  RC_ASSERT(once.has_value() && again.has_value());
  RC_ASSERT(once->spans.size() == again->spans.size());
  for (std::size_t i = 0; i < once->spans.size(); ++i) {
    RC_ASSERT(once->spans[i].op == again->spans[i].op);
    RC_ASSERT(once->spans[i].start == again->spans[i].start);
    RC_ASSERT(once->spans[i].end == again->spans[i].end);
  }
}

}  // namespace
}  // namespace mfsdp
