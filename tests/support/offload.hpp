// A plan whose activation lies in the host's memory between forward and backward, edited by hand:
//
//   compute   ..., last use ─ record          wait ─ release ...  acquire ─ record       wait ─ use
//   d2h                         └─ wait ─ copy ─┘                           └─ wait ─ copy ─┘  h2d
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp::test {

class Offload {
 public:
  /// Edits plan "train", in each segment that uses the buffer. The pool of the activations needs
  /// less then; its height stays.
  Offload(Program& program, const std::string& buffer) : program_(program) {
    for (const Buffer& one : program.buffers)
      if (one.name == buffer) device_ = one;
    if (device_.name.empty()) throw std::logic_error("no buffer " + buffer);
    for (const Plan& plan : program.plans)
      for (const Segment& segment : plan.segments)
        for (const Op& op : segment.ops)
          next_op_ = std::max(next_op_, std::size_t{op.id.value} + 1);
    add_host_buffer();
    for (const char* of : {".used", ".away", ".room", ".back"}) {
      EventId next;
      for (const Event& event : program.events)
        next = std::max(next, EventId(std::size_t{event.id.value} + 1));
      program.events.push_back({.id = next, .name = buffer + of});
      events_.push_back(next);
    }
    for (Segment& segment : program.plans.at(0).segments) edit(segment);
  }

 private:
  void add_host_buffer() {
    BufferId next;
    for (const Buffer& buffer : program_.buffers)
      next = std::max(next, BufferId(std::size_t{buffer.id.value} + 1));
    const auto pool = std::ranges::find(program_.pools, MemorySpace::host, &Pool::space);
    Buffer buffer = device_;
    buffer.id = next;
    buffer.name += ".host";
    buffer.pool = pool->id;
    buffer.offset = Bytes((pool->height.value + 255) / 256 * 256);
    buffer.persistent = true;
    buffer.category = Category::workspace;
    buffer.unit.reset();
    buffer.slot_class.reset();
    pool->height = pool->lower_bound =
        Bytes(buffer.offset.value + (buffer.size.value + 255) / 256 * 256);
    program_.buffers.push_back(buffer);
    host_ = buffer.id;
  }

  [[nodiscard]] StreamId stream(StreamRole role) const {
    return std::ranges::find(program_.streams, role, &Stream::role)->id;
  }
  Op op(StreamRole on, Phase phase, const std::string& name, OpBody body) {
    Op made;
    made.id = OpId(next_op_++);
    made.stream = stream(on);
    made.phase = phase;
    made.name = name;
    made.body = std::move(body);
    return made;
  }
  Op copy(CopyKind kind, Phase phase) {
    const auto whole = [&](const char* role, Access access, BufferId id) {
      Operand operand;
      operand.role = role;
      operand.access = access;
      operand.buffer = id;
      operand.dtype = device_.dtype;
      operand.shape = {device_.size.value / size_of(device_.dtype)};
      return operand;
    };
    const bool out = kind == CopyKind::d2h;
    return op(out ? StreamRole::d2h : StreamRole::h2d, phase,
              device_.name + (out ? ".d2h" : ".h2d"),
              Copy{.kind = kind,
                   .input = whole("input", Access::read, out ? device_.id : host_),
                   .output = whole("output", Access::write, out ? host_ : device_.id)});
  }
  /// A record on one stream and the wait for it on another.
  std::pair<Op, Op> order(std::size_t event, Phase phase, StreamRole first, StreamRole then) {
    const std::string& name = program_.events[program_.events.size() - 4 + event].name;
    Op record = op(first, phase, name, Record{.event = events_[event]});
    Op wait = op(then, phase, name,
                 Wait{.event = events_[event], .bindings = {{.record = record.id, .distance = 0}}});
    return {std::move(record), std::move(wait)};
  }

  void edit(Segment& segment) {
    constexpr std::size_t kUntilReleased = 5;  ///< ops beside which the copy runs
    std::size_t last = 0;
    std::size_t next = 0;
    for (std::size_t i = 0; i < segment.ops.size(); ++i) {
      const auto* kernel = std::get_if<Kernel>(&segment.ops[i].body);
      if (kernel == nullptr || std::ranges::find(kernel->operands, device_.id, &Operand::buffer) ==
                                   kernel->operands.end())
        continue;
      if (segment.ops[i].phase == Phase::forward)
        last = i;
      else if (next == 0)
        next = i;
    }
    if (next == 0) return;
    using enum StreamRole;
    auto [used, read] = order(0, Phase::forward, compute, d2h);
    auto [away, gone] = order(1, Phase::forward, d2h, compute);
    auto [room, there] = order(2, Phase::backward, compute, h2d);
    auto [back, found] = order(3, Phase::backward, h2d, compute);
    std::vector<Op> ops(segment.ops.begin(), segment.ops.begin() + std::ptrdiff_t(last) + 1);
    const auto add = [&](std::vector<Op> more) { ops.insert(ops.end(), more.begin(), more.end()); };
    const auto keep = [&](std::size_t begin, std::size_t end) {
      ops.insert(ops.end(), segment.ops.begin() + std::ptrdiff_t(begin),
                 segment.ops.begin() + std::ptrdiff_t(end));
    };
    add({used, read, copy(CopyKind::d2h, Phase::forward), away});
    keep(last + 1, last + 1 + kUntilReleased);
    add({gone, op(compute, Phase::forward, device_.name, Release{.buffer = device_.id})});
    keep(last + 1 + kUntilReleased, next);
    add({op(compute, Phase::backward, device_.name, Acquire{.buffer = device_.id}), room, there,
         copy(CopyKind::h2d, Phase::backward), back, found});
    keep(next, segment.ops.size());
    segment.ops = std::move(ops);
  }

  Program& program_;
  Buffer device_;
  BufferId host_;
  std::vector<EventId> events_;
  std::size_t next_op_ = 0;
};

/// Moves an activation to the host after its last forward use and back before its first backward
/// use.
inline Program with_offload(Program program, const std::string& buffer) {
  Offload(program, buffer);
  return program;
}

}  // namespace mfsdp::test
