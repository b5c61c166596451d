// Small plans by hand, for the proofs: a few streams, buffers of 256 bytes each, ops that touch
// whole buffers.
//
//   PlanBuilder b;
//   const auto w = b.buffer("w");
//   b.acquire(b.gather, w);  b.kernel(b.gather, "fill", {}, {w});  b.record(b.gather, "filled");
//   b.wait(b.compute, "filled");  b.kernel(b.compute, "use", {w}, {});  ...
//   EXPECT_THAT(rules_of(b.finish()), ElementsAre("MF101"));
#pragma once

#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/plan/instances.hpp"
#include "core/schedule/bindings.hpp"
#include "tests/support/configurations.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp::test {

struct PlanBuilder {
  static constexpr std::int64_t kBytes = 256;

  StreamId compute{0};
  StreamId gather{1};
  StreamId reduce{2};
  StreamId h2d{3};
  CommunicatorId gathers{0};
  CommunicatorId reductions{1};
  PoolId device{0};
  PoolId host{1};
  Program program;

  explicit PlanBuilder(std::int64_t ranks = 2) {
    program.config = small_config(ranks);
    program.classes = {{.role = "rank", .ranks = ranks}};
    program.streams = {{.id = compute, .role = StreamRole::compute},
                       {.id = gather, .role = StreamRole::all_gather},
                       {.id = reduce, .role = StreamRole::reduce_scatter},
                       {.id = h2d, .role = StreamRole::h2d}};
    for (const CommunicatorId id : {gathers, reductions})
      program.communicators.push_back(
          {.id = id, .axes = {Axis::dp_shard}, .purpose = "tests", .size = ranks});
    Pool pool;
    pool.name = "device";
    pool.height = Bytes(1 << 20);
    program.pools.push_back(pool);
    pool.id = host;
    pool.name = "host";
    pool.space = MemorySpace::host;
    program.pools.push_back(pool);
    program.plans = {{.name = "train", .segments = {}}};
    segment("only");
  }

  void segment(const std::string& name, std::int64_t repeat = 1) {
    Segment made;
    made.name = name;
    made.repeat = repeat;
    made.microbatches = name == "optimizer" ? 0 : 1;
    program.plans[0].segments.push_back(std::move(made));
  }

  /// In the next free place, or at an offset.
  BufferId buffer(const std::string& name, bool persistent = false, std::int64_t offset = -1,
                  PoolId pool = PoolId(0)) {
    Buffer made;
    made.id = BufferId(program.buffers.size());
    made.name = name;
    made.dtype = DType::uint8;
    made.pool = pool;
    made.size = Bytes(kBytes);
    made.offset = Bytes(offset < 0 ? next_offset_ : offset);
    made.persistent = persistent;
    if (offset < 0) next_offset_ += kBytes;
    program.buffers.push_back(std::move(made));
    return program.buffers.back().id;
  }

  /// In the host's pool, filled by the host.
  BufferId port(const std::string& name) {
    const BufferId id = buffer(name, true, 0, host);
    program.buffers[id.value].holds = Contents{.kind = ContentKind::port, .port = Port::tokens};
    return id;
  }

  static Operand bytes(BufferId id, Access access, std::int64_t begin = 0,
                       std::int64_t end = kBytes) {
    Operand operand;
    operand.role = access == Access::read ? "input" : "output";
    operand.access = access;
    operand.buffer = id;
    operand.dtype = DType::uint8;
    operand.offset = begin;
    operand.shape = {end - begin};
    return operand;
  }

  OpId add(StreamId stream, const std::string& name, OpBody body) {
    auto& ops = program.plans[0].segments.back().ops;
    ops.push_back({.id = OpId(next_op_++),
                   .stream = stream,
                   .phase = Phase::forward,
                   .unit = std::nullopt,
                   .name = name,
                   .body = std::move(body)});
    return ops.back().id;
  }
  OpId kernel(StreamId stream, const std::string& name, const std::vector<Operand>& operands) {
    return add(
        stream, name,
        Kernel{.kind = KernelKind::cast, .operands = operands, .attributes = {}, .flops = 0});
  }
  OpId kernel(StreamId stream, const std::string& name, const std::vector<BufferId>& reads,
              const std::vector<BufferId>& writes) {
    std::vector<Operand> operands;
    for (const BufferId id : reads) operands.push_back(bytes(id, Access::read));
    for (const BufferId id : writes) operands.push_back(bytes(id, Access::write));
    return kernel(stream, name, operands);
  }
  /// In place: an all_reduce of a whole buffer.
  OpId collective(StreamId stream, const std::string& name, CommunicatorId communicator,
                  BufferId id) {
    return add(stream, name,
               Collective{.kind = CollectiveKind::all_reduce,
                          .communicator = communicator,
                          .reduction = Reduction::sum,
                          .count = kBytes,
                          .dtype = DType::uint8,
                          .input = bytes(id, Access::read),
                          .output = bytes(id, Access::write)});
  }
  OpId copy(StreamId stream, const std::string& name, CopyKind kind, BufferId from, BufferId to) {
    return add(
        stream, name,
        Copy{.kind = kind, .input = bytes(from, Access::read), .output = bytes(to, Access::write)});
  }
  OpId acquire(StreamId stream, BufferId id) {
    return add(stream, program.buffers[id.value].name, Acquire{.buffer = id});
  }
  OpId release(StreamId stream, BufferId id) {
    return add(stream, program.buffers[id.value].name, Release{.buffer = id});
  }
  OpId record(StreamId stream, const std::string& name) {
    return add(stream, name, Record{.event = event(name)});
  }
  OpId wait(StreamId stream, const std::string& name) {
    return add(stream, name, Wait{.event = event(name), .bindings = {}});
  }
  OpId host_wait(const std::string& name) {
    return add(compute, name, HostWait{.event = event(name), .bindings = {}});
  }

  EventId event(const std::string& name) {
    const auto [found, fresh] = events_.try_emplace(name, EventId(program.events.size()));
    if (fresh) program.events.push_back({.id = found->second, .name = name});
    return found->second;
  }

  /// The program, with waits bound to the records that they get.
  Program finish() const {
    Program made = program;
    resolve_bindings(made.plans[0]);
    return made;
  }

 private:
  std::int64_t next_offset_ = 0;
  std::size_t next_op_ = 0;
  std::map<std::string, EventId> events_;
};

/// The op with that id.
inline Op& op_at(Program& program, OpId id) {
  for (Plan& plan : program.plans)
    for (Op& op : ops_of(plan))
      if (op.id == id) return op;
  throw std::logic_error("no such op");
}

inline void drop_op(Program& program, OpId id) {
  for (Plan& plan : program.plans)
    for (Segment& segment : plan.segments)
      std::erase_if(segment.ops, [&](const Op& op) { return op.id == id; });
}

/// The rules of errors that a proof of the program finds; notes are left out.
inline std::set<std::string> rules_of(const Program& program) {
  const auto proof = prove(program);
  if (!proof) return {proof.error().message()};
  std::set<std::string> rules;
  for (const Finding& finding : proof->findings)
    if (is_error(finding.rule)) rules.insert(finding.rule);
  return rules;
}

/// The first finding of a rule, or an empty one.
inline Finding finding_of(const Program& program, const std::string& rule) {
  const auto proof = prove(program);
  if (proof)
    for (const Finding& finding : proof->findings)
      if (finding.rule == rule) return finding;
  return {};
}

}  // namespace mfsdp::test
