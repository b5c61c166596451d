// Plans of a few ops that contain their prices. For complete programs see tests/support.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/simulator/simulation.hpp"

namespace mfsdp::test {

inline constexpr std::uint32_t kCompute = 0;
inline constexpr std::uint32_t kGather = 1;
inline constexpr std::uint32_t kScatter = 2;
inline constexpr std::uint32_t kCopyOut = 3;

/// A collective's price. Loss of kernels to its SMs and its memory traffic, and its own slowdown
/// beside them, in quarters.
struct Cost {
  std::int64_t duration = 0;
  std::int64_t latency = 0;
  std::int64_t sms = 0;
  std::int64_t memory = 0;
  std::int64_t drag = 0;
};

/// Attributes of kernels: their class, and whether they lose kTinyRagged.
inline constexpr const char* kClass = "class";
inline constexpr const char* kRagged = "ragged";

/// Builds one plan, "train", op by op. Communicators: 0 "all_gather" and 1 "reduce_scatter" inside
/// a node, 2 "outer" on the network; all of 4 ranks. Units: "a", "b", "c".
class Tiny {
 public:
  Tiny() {
    const std::pair<std::uint32_t, StreamRole> streams[] = {{kCompute, StreamRole::compute},
                                                            {kGather, StreamRole::all_gather},
                                                            {kScatter, StreamRole::reduce_scatter},
                                                            {kCopyOut, StreamRole::d2h}};
    for (const auto& [id, role] : streams)
      program.streams.push_back({.id = StreamId(id), .role = role});
    for (const std::string purpose : {"all_gather", "reduce_scatter", "outer"}) {
      Communicator communicator;
      communicator.id = CommunicatorId(program.communicators.size());
      communicator.purpose = purpose;
      communicator.size = 4;
      program.communicators.push_back(std::move(communicator));
    }
    for (const std::string name : {"a", "b", "c"}) {
      PlanUnit unit;
      unit.id = UnitId(program.units.size());
      unit.name = name;
      program.units.push_back(std::move(unit));
    }
    for (std::uint32_t i = 0; i < 8; ++i) {
      Event event;
      event.id = EventId(i);
      event.name = "e" + std::to_string(i);
      program.events.push_back(std::move(event));
    }
    Pool pool;
    pool.name = "device";
    program.pools.push_back(pool);
    pool.id = PoolId(1);
    pool.name = "host";
    pool.space = MemorySpace::host;
    program.pools.push_back(pool);
    Plan train;
    train.name = "train";
    program.plans.push_back(std::move(train));
  }

  /// Puts the plan on a mesh of that shape: communicators 0 and 1 span dp_shard, 2 dp_outer.
  Tiny& mesh(std::int64_t dp_outer, std::int64_t dp_shard) {
    program.config.mesh = data_parallel_mesh(dp_outer, dp_shard);
    for (Communicator& communicator : program.communicators) {
      const bool outer = communicator.purpose == "outer";
      communicator.axes = {outer ? Axis::dp_outer : Axis::dp_shard};
      communicator.size = outer ? dp_outer : dp_shard;
    }
    return *this;
  }
  Tiny& segment(const std::string& name, std::int64_t repeat = 1) {
    Segment segment;
    segment.name = name;
    segment.repeat = repeat;
    plan().segments.push_back(std::move(segment));
    return *this;
  }
  Tiny& op(std::uint32_t stream, const std::string& name, OpBody body) {
    Op op;
    op.id = OpId(next_++);
    op.stream = StreamId(stream);
    op.name = name;
    op.body = std::move(body);
    plan().segments.back().ops.push_back(std::move(op));
    return *this;
  }
  Tiny& kernel(std::int64_t ns, const std::string& name = "kernel", std::uint32_t stream = kCompute,
               KernelClass kind = KernelClass::memory, bool ragged = false) {
    Kernel kernel;
    kernel.flops = ns;
    kernel.attributes = {{kClass, static_cast<std::int64_t>(kind)}, {kRagged, ragged ? 1 : 0}};
    return op(stream, name, std::move(kernel));
  }
  Tiny& copy(std::int64_t ns, std::uint32_t stream = kCopyOut) {
    Copy copy;
    copy.kind = CopyKind::d2h;
    copy.input.offset = ns;
    return op(stream, "copy", std::move(copy));
  }
  Tiny& collective(std::uint32_t stream, std::uint32_t communicator, Cost cost,
                   std::optional<std::uint32_t> unit = {},
                   CollectiveKind kind = CollectiveKind::all_gather) {
    Collective body;
    body.kind = kind;
    body.communicator = CommunicatorId(communicator);
    body.count = cost.duration;
    body.input.offset = cost.latency;
    body.output.offset = cost.sms + 256 * cost.memory + 65536 * cost.drag;
    op(stream, std::string(to_string(kind)), std::move(body));
    if (unit) plan().segments.back().ops.back().unit = UnitId(*unit);
    return *this;
  }
  Tiny& record(std::uint32_t stream, std::uint32_t event) {
    return op(stream, "record", Record{EventId(event)});
  }
  /// `distance`: of its one binding, to op 0 for want of a better one.
  Tiny& wait(std::uint32_t stream, std::uint32_t event, std::int64_t distance = 0) {
    return op(stream, "wait", Wait{EventId(event), {Binding{OpId(0), distance}}});
  }
  Tiny& host_wait(std::uint32_t event, std::int64_t distance = 0) {
    return op(kCompute, "host_wait", HostWait{EventId(event), {Binding{OpId(0), distance}}});
  }
  Tiny& acquire(std::uint32_t stream, std::uint32_t buffer) {
    return op(stream, "acquire", Acquire{BufferId(buffer)});
  }
  Tiny& release(std::uint32_t stream, std::uint32_t buffer) {
    return op(stream, "release", Release{BufferId(buffer)});
  }
  Tiny& buffer(std::int64_t bytes, Category category, std::uint32_t pool = 0,
               bool persistent = false) {
    Buffer buffer;
    buffer.id = BufferId(program.buffers.size());
    buffer.name = "b" + std::to_string(program.buffers.size());
    buffer.category = category;
    buffer.pool = PoolId(pool);
    buffer.size = Bytes(bytes);
    buffer.persistent = persistent;
    program.buffers.push_back(std::move(buffer));
    return *this;
  }

  [[nodiscard]] Plan& plan() { return program.plans.front(); }

  Program program;

 private:
  std::size_t next_ = 0;
};

[[nodiscard]] inline KernelClass tiny_class(const Kernel& kernel) {
  return static_cast<KernelClass>(kernel.attribute(kClass));
}

/// Loss of each class of kernels to collectives; kOne is 1.
inline constexpr PerKernelClass<std::int64_t> kTinyWeight{{kOne, kOne / 2, kOne * 3 / 4, kOne}};

/// The ragged loss of kernels that have one.
inline constexpr std::int64_t kTinyRagged = kOne * 3 / 8;

[[nodiscard]] inline std::int64_t tiny_ragged(const Kernel& kernel) {
  return kernel.attribute(kRagged) * kTinyRagged;
}

inline Prices tiny_prices() {
  Prices prices;
  prices.kernel = [](const Op& op) {
    const auto& kernel = std::get<Kernel>(op.body);
    return KernelPrice(Nanos(kernel.flops), tiny_class(kernel), tiny_ragged(kernel));
  };
  prices.copy = [](const Copy& copy) { return CopyPrice{.duration = Nanos(copy.input.offset)}; };
  prices.collective = [](const Collective& collective, const Communicator& communicator) {
    CollectivePrice price;
    price.duration = Nanos(collective.count);
    price.latency = Nanos(collective.input.offset);
    price.occupancy = collective.output.offset % 256 * kOne / 4;
    price.weight = kTinyWeight;
    price.traffic = kTinyWeight;
    for (std::int64_t& lost : price.traffic.values)
      lost = lost * (collective.output.offset / 256 % 256) / 4;
    const std::int64_t slower = collective.output.offset / 65536 * kOne / 4;
    price.drag.values.fill(kOne + slower);
    price.drag[KernelClass::attention_backward] += slower;
    price.link = communicator.purpose == "outer" ? 1 : 0;
    price.by_kernels = communicator.transport != Transport::copy_engine;
    return price;
  };
  return prices;
}

inline Result<Simulation> simulate(Tiny& tiny, const RankVariation& variation = {}) {
  return mfsdp::simulate(tiny.program, tiny.plan(), tiny_prices(), variation);
}

}  // namespace mfsdp::test
