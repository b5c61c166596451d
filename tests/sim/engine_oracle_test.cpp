// The engine beside a slow and obvious one: every op of three steps is written out with the ops it
// has to follow, and time passes nanosecond by nanosecond.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "sim/engine/simulation.hpp"
#include "tests/sim/timed_plan.hpp"

namespace mfsdp {
namespace {

using test::Tiny;

__extension__ using Int128 = __int128;

struct Node {
  const Op* op = nullptr;
  std::int64_t step = 0;
  std::uint32_t segment = 0;
  std::uint32_t index = 0;
  std::int64_t instance = 0;
  std::vector<std::size_t> after;  // nodes that must be done before it starts
  Int128 left = 0;                 // 2^-20 ns
  std::int64_t start = -1;
  std::int64_t end = -1;

  [[nodiscard]] bool started() const { return start >= 0; }
  [[nodiscard]] bool done() const { return end >= 0; }
};

std::int64_t duration_of(const Op& op) {
  if (const auto* kernel = std::get_if<Kernel>(&op.body)) return kernel->flops;
  if (const auto* copy = std::get_if<Copy>(&op.body)) return copy->input.offset;
  if (const auto* collective = std::get_if<Collective>(&op.body)) return collective->count;
  return 0;
}

std::vector<Node> unroll(const Plan& plan, std::int64_t steps) {
  std::vector<Node> nodes;
  std::map<std::uint32_t, std::size_t> stream;
  std::map<std::uint32_t, std::size_t> communicator;
  std::map<std::uint32_t, std::size_t> record;
  std::optional<std::size_t> host;
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
          const std::size_t self = nodes.size();
          const auto follow = [&](std::map<std::uint32_t, std::size_t>& latest, std::uint32_t key,
                                  bool becomes_latest) {
            if (latest.contains(key)) node.after.push_back(latest[key]);
            if (becomes_latest) latest[key] = self;
          };
          if (host) node.after.push_back(*host);
          if (const auto* wait = std::get_if<HostWait>(&op.body)) {
            follow(record, wait->event.value, false);
            host = self;
          } else {
            follow(stream, op.stream.value, true);
          }
          if (const auto* wait = std::get_if<Wait>(&op.body))
            follow(record, wait->event.value, false);
          if (const auto* entry = std::get_if<Record>(&op.body)) record[entry->event.value] = self;
          if (const auto* entry = std::get_if<Collective>(&op.body))
            follow(communicator, entry->communicator.value, true);
          nodes.push_back(std::move(node));
        }
  return nodes;
}

struct Expected {
  std::int64_t compute = 0;
  std::int64_t communication = 0;
  std::int64_t exposed = 0;
  std::int64_t step = 0;
  Int128 lost = 0;
  std::vector<Node> nodes;
  std::int64_t begin = 0;
};

/// Starts and ends whatever can at this time.
void settle(std::vector<Node>& nodes, std::int64_t now) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Node& node : nodes) {
      if (!node.started() &&
          std::ranges::all_of(node.after, [&](std::size_t i) { return nodes[i].done(); })) {
        node.start = now;
        changed = true;
      }
      if (node.started() && !node.done() && node.left <= 0) {
        node.end = now;
        changed = true;
      }
    }
  }
}

Expected run(const Plan& plan, const Program& program) {
  Expected expected;
  std::vector<Node> nodes = unroll(plan, 3);
  const Prices prices = test::tiny_prices();
  const auto step_done = [&](std::int64_t step) {
    return std::ranges::all_of(nodes, [&](const Node& n) {
      return n.step != step || n.done() || std::holds_alternative<HostWait>(n.op->body);
    });
  };
  std::int64_t now = 0;
  for (bool in_window = false;; ++now) {
    settle(nodes, now);
    if (!in_window && step_done(0)) {
      in_window = true;
      expected.begin = now;
    }
    if (step_done(1)) break;
    std::int64_t lost = 0;
    std::map<int, std::int64_t> demand;
    const auto running = [](const Node& n) { return n.started() && !n.done(); };
    const auto price = [&](const Collective& c) {
      return prices.collective(c, program.communicators[c.communicator.value]);
    };
    const auto demand_of = [](const CollectivePrice& p) {
      return (p.duration.value - p.latency.value) * kOne / p.duration.value;
    };
    for (const Node& node : nodes)
      if (const auto* c = std::get_if<Collective>(&node.op->body); c != nullptr && running(node)) {
        lost += price(*c).slowdown;
        demand[price(*c).link] += demand_of(price(*c));
      }
    bool computes = false;
    bool communicates = false;
    for (Node& node : nodes) {
      if (!running(node)) continue;
      std::int64_t rate = kOne;
      if (const auto* c = std::get_if<Collective>(&node.op->body)) {
        communicates = true;
        const std::int64_t wanted = demand[price(*c).link];
        if (wanted > kOne) rate = kOne * kOne / wanted;
      } else if (!std::holds_alternative<HostWait>(node.op->body)) {
        if (std::holds_alternative<Kernel>(node.op->body)) rate = std::max(kOne - lost, kOne / 4);
        if (node.op->stream.value == test::kCompute) {
          computes = true;
          if (in_window) expected.lost += kOne - rate;
        }
      }
      node.left -= rate;
    }
    if (!in_window) continue;
    ++expected.step;
    expected.compute += computes ? 1 : 0;
    expected.communication += communicates ? 1 : 0;
    expected.exposed += communicates && !computes ? 1 : 0;
  }
  expected.nodes = std::move(nodes);
  return expected;
}

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
    tiny.kernel(pick<std::int64_t>(0, 12), "kernel", stream);
  } else if (choice < 7) {
    tiny.record(stream, event);
  } else if (choice < 10) {
    tiny.wait(stream, event, 1);
  } else if (choice < 14) {
    const auto duration = pick<std::int64_t>(1, 12);
    tiny.collective(stream, pick(0U, 2U),
                    {.duration = duration,
                     .latency = pick<std::int64_t>(0, duration),
                     .quarters = pick<std::int64_t>(0, 2)});
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

RC_GTEST_PROP(EngineOracle, AgreesToTheNanosecond, ()) {
  Tiny tiny = random_program();
  const auto result = test::simulate(tiny);
  RC_ASSERT(result.has_value());
  const Expected expected = run(tiny.plan(), tiny.program);
  const TimeSummary& time = result->time;
  RC_ASSERT(time.step == time.compute + time.exposed_communication + time.idle);
  RC_ASSERT(time.step.value == expected.step);
  RC_ASSERT(time.compute.value == expected.compute);
  RC_ASSERT(time.communication.value == expected.communication);
  RC_ASSERT(time.exposed_communication.value == expected.exposed);
  RC_ASSERT(time.contention.value == static_cast<std::int64_t>(expected.lost / kOne));
  std::size_t timed = 0;
  for (const Node& node : expected.nodes) {
    const OpKind kind = node.op->kind();
    if (node.step != 1 ||
        (kind != OpKind::kernel && kind != OpKind::collective && kind != OpKind::copy))
      continue;
    ++timed;
    const auto span = std::ranges::find_if(result->spans, [&](const OpSpan& s) {
      return s.segment == node.segment && s.op == node.index && s.instance == node.instance;
    });
    RC_ASSERT(span != result->spans.end());
    RC_ASSERT(span->start.value == node.start - expected.begin);
    RC_ASSERT(span->end.value == node.end - expected.begin);
  }
  RC_ASSERT(result->spans.size() == timed);
  std::int64_t exposed = 0;
  for (const ExposedUnit& unit : result->exposed_units) exposed += unit.exposed.value;
  RC_ASSERT(exposed == time.exposed_communication.value);
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
