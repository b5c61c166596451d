#include "core/runtime/memory_meter.hpp"

#include <algorithm>

namespace mfsdp {
namespace {

void learn(std::vector<std::int64_t>& into, const std::vector<std::int64_t>& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

}  // namespace

MemoryMeter::MemoryMeter(const Program& program, PlanRole plan, Backend& backend)
    : program_(program),
      backend_(backend),
      pool_index_(program.pools),
      buffer_index_(program.buffers),
      streams_(program.streams.size(), Clock(program.streams.size(), 0)),
      recorded_(event_list(program).size(), Clock(program.streams.size(), 0)),
      communicated_(program.communicators.size(), Clock(program.streams.size(), 0)),
      host_(program.streams.size(), 0),
      pools_(program.pools.size()) {
  const Plan* watched = program.find_plan(plan);
  if (watched == nullptr) return;
  for (const Op& op : ops_of(*watched)) watched_.insert(&op);
}

void MemoryMeter::pass(const BoundOp& op, const Clock* learned) {
  Clock& clock = streams_[op.stream];
  learn(clock, host_);
  if (learned != nullptr) learn(clock, *learned);
  ++clock[op.stream];
}

Result<std::byte*> MemoryMeter::allocate(const Pool& pool) {
  MFSDP_LET(data, backend_.allocate(pool));
  allocated_.push_back(pool.height);
  return data;
}

Result<void> MemoryMeter::issue(const BoundOp& op, std::int64_t step) {
  if (is_watched(op)) {
    const OpKind kind = op.op->kind();
    if (kind == OpKind::collective) {
      Clock& latest = communicated_[op.communicator];
      pass(op, &latest);
      latest = streams_[op.stream];
    } else {
      pass(op);
      if (kind == OpKind::acquire) acquire(op);
      if (kind == OpKind::release) release(op);
    }
  }
  return backend_.issue(op, step);
}

void MemoryMeter::acquire(const BoundOp& op) {
  const std::size_t index = buffer_index_[std::get<Acquire>(op.op->body).buffer];
  PoolUse& pool = pools_[pool_index_[program_.buffers[index].pool]];
  std::erase_if(pool.held, [&](const Held& held) {
    return held.released && streams_[held.stream][held.released->stream] > held.released->position;
  });
  pool.held.push_back(
      {.buffer = index, .data = op.buffer.data(), .stream = op.stream, .released = std::nullopt});
  CategoryBytes now{};
  for (const Held& held : pool.held) {
    const Buffer& buffer = program_.buffers[held.buffer];
    now.at(static_cast<std::size_t>(buffer.category)) += buffer.size;
  }
  if (sum_of(now) <= pool.fullest) return;
  pool.fullest = sum_of(now);
  pool.categories = now;
}

void MemoryMeter::release(const BoundOp& op) {
  const std::size_t index = buffer_index_[std::get<Release>(op.op->body).buffer];
  for (Held& held : pools_[pool_index_[program_.buffers[index].pool]].held)
    if (held.buffer == index && held.data == op.buffer.data() && !held.released)
      held.released = {.stream = op.stream, .position = streams_[op.stream][op.stream] - 1};
}

Result<void> MemoryMeter::record(const BoundOp& op, std::int64_t step, std::int64_t number) {
  if (is_watched(op)) {
    pass(op);
    recorded_[op.event] = streams_[op.stream];
  }
  return backend_.record(op, step, number);
}

Result<void> MemoryMeter::wait(const BoundOp& op, std::int64_t step, std::int64_t number) {
  if (is_watched(op)) pass(op, &recorded_[op.event]);
  return backend_.wait(op, step, number);
}

Result<Nanos> MemoryMeter::host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                     std::int64_t number) {
  if (op.op->kind() == OpKind::host_wait && is_watched(op)) learn(host_, recorded_[event]);
  return backend_.host_wait(op, step, event, number);
}

/// Then everything has run, and whatever is issued next knows it.
Result<void> MemoryMeter::synchronise() {
  for (const Clock& clock : streams_) learn(host_, clock);
  return backend_.synchronise();
}

MeasuredMemory MemoryMeter::measured() const {
  MeasuredMemory measured{.pools = allocated_, .categories = {}};
  for (const Buffer& buffer : program_.buffers)
    if (buffer.persistent && program_.pools[pool_index_[buffer.pool]].space == MemorySpace::device)
      measured.categories.at(static_cast<std::size_t>(buffer.category)) += buffer.size;
  for (std::size_t p = 0; p < pools_.size(); ++p)
    if (program_.pools[p].space == MemorySpace::device)
      for (std::size_t i = 0; i < measured.categories.size(); ++i)
        measured.categories.at(i) += pools_[p].categories.at(i);
  return measured;
}

}  // namespace mfsdp
