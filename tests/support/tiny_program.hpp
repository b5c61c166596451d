// A hand-made program: one weight gathered, used and given back, small enough to work out on paper.
//
//   all_gather   acquire w | AG w | record g | wait u | release w
//   compute      wait g | acquire a | gemm | release a | record u
#pragma once

#include "core/plan/plan.hpp"
#include "core/shard/groups.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp::test {

inline Operand tiny_operand(std::string role, Access access, BufferId buffer, std::int64_t count) {
  Operand operand;
  operand.role = std::move(role);
  operand.access = access;
  operand.buffer = buffer;
  operand.dtype = DType::bf16;
  operand.shape = {count};
  return operand;
}

inline Program tiny_program() {
  Program program;
  program.config = small_config(2);
  program.classes = {{.role = "data_parallel", .ranks = 2}};
  const StreamId compute(0);
  const StreamId all_gather(1);
  program.streams = {{.id = compute, .role = StreamRole::compute},
                     {.id = all_gather, .role = StreamRole::all_gather}};
  program.communicators = {
      {.id = CommunicatorId(0), .axes = {Axis::dp_shard}, .purpose = "all_gather", .size = 2}};
  const EventId gathered(0);
  const EventId used(1);
  program.events = {{.id = gathered, .name = "gathered"}, {.id = used, .name = "used"}};
  const Model model = make_model(program.config.model, DType::bf16);
  for (const Unit& unit : model.units)
    program.units.push_back({.id = unit.id,
                             .name = unit.name,
                             .kind = unit.kind,
                             .position = std::ssize(program.units)});
  program.groups = make_groups(model, program.config);
  Pool pool;
  pool.name = "memory";
  pool.height = Bytes(1024);
  pool.lower_bound = Bytes(1024);
  program.pools = {pool, pool};
  program.pools[1].id = PoolId(1);

  const auto buffer = [&](std::size_t id, const char* name, Category category, std::size_t in,
                          std::int64_t elements, std::int64_t offset, bool persistent) {
    Buffer made;
    made.id = BufferId(id);
    made.name = name;
    made.category = category;
    made.pool = PoolId(in);
    made.size = bytes_of(elements, DType::bf16);
    made.offset = Bytes(offset);
    made.persistent = persistent;
    return made;
  };
  program.buffers = {buffer(0, "shard", Category::model_weight, 0, 64, 0, true),
                     buffer(1, "weights", Category::unsharded_weight, 0, 128, 256, false),
                     buffer(2, "activation", Category::activation, 1, 128, 0, false)};

  Segment segment;
  segment.name = "only";
  segment.microbatches = 1;
  std::size_t next = 0;
  const auto add = [&](StreamId stream, std::string name, OpBody body) {
    segment.ops.push_back({.id = OpId(next++),
                           .stream = stream,
                           .phase = Phase::forward,
                           .unit = UnitId(0),
                           .name = std::move(name),
                           .body = std::move(body)});
  };
  add(all_gather, "weights", Acquire{.buffer = BufferId(1)});
  add(all_gather, "gather",
      Collective{.kind = CollectiveKind::all_gather,
                 .communicator = CommunicatorId(0),
                 .reduction = Reduction::none,
                 .count = 64,
                 .dtype = DType::bf16,
                 .input = tiny_operand("input", Access::read, BufferId(0), 64),
                 .output = tiny_operand("output", Access::write, BufferId(1), 128)});
  add(all_gather, "gathered", Record{.event = gathered});
  add(compute, "gathered", Wait{.event = gathered, .bindings = {{OpId(2), 0}}});
  add(compute, "activation", Acquire{.buffer = BufferId(2)});
  add(compute, "gemm",
      Kernel{.kind = KernelKind::cast,
             .operands = {tiny_operand("weight", Access::read, BufferId(1), 128),
                          tiny_operand("output", Access::write, BufferId(2), 128)},
             .attributes = {{"k", 8}, {"m", 4}, {"n", 16}},
             .flops = 0});
  add(compute, "activation", Release{.buffer = BufferId(2)});
  add(compute, "used", Record{.event = used});
  add(all_gather, "used", Wait{.event = used, .bindings = {{OpId(7), 0}}});
  add(all_gather, "weights", Release{.buffer = BufferId(1)});
  program.plans = {{.name = "train", .segments = {segment}}};
  return program;
}

}  // namespace mfsdp::test
