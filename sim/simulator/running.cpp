#include "sim/simulator/running.hpp"

#include <algorithm>

namespace mfsdp {

std::int64_t time_for(Int128 work, std::int64_t rate) {
  if (work <= 0) return 0;
  if (work <= kNever - kOne) {  // the usual case, without 128-bit division
    const auto left = static_cast<std::int64_t>(work);
    return rate == kOne ? (left + kOne - 1) / kOne : (left + rate - 1) / rate;
  }
  return checked_narrow((work + rate - 1) / rate);
}

void Running::change_rate(std::int64_t now, std::int64_t new_rate) {
  remaining -= static_cast<Int128>(now - rate_at) * rate;
  rate_at = now;
  rate = new_rate;
  const std::int64_t left = time_for(remaining, rate);
  end = left < kNever - now ? now + left : kNever;
}

Running& RunningOps::start(std::uint32_t stream) {
  ops_[stream] = {};
  ops_[stream].is_there = true;
  return ops_[stream];
}

std::int64_t RunningOps::demand(int link) const {
  if (messages_.empty()) return collective_demand(link);
  return std::max(demand(link, true), demand(link, false));
}

std::int64_t RunningOps::demand(int link, bool sends) const {
  std::int64_t demand = collective_demand(link);
  for (const MovingMessage& message : messages_)
    if (message.link == link && message.sends == sends) demand += message.demand;
  return demand;
}

std::int64_t RunningOps::collective_demand(int link) const {
  std::int64_t demand = 0;
  for (const Running& op : ops_)
    if (op.is_on(link)) demand += op.launch->demand;
  return demand;
}

std::int64_t RunningOps::copy_rate(const Running& op) const {
  if (op.transfer->demand == 0) return kOne;
  std::int64_t demand = 0;
  for (const Running& other : ops_)
    if (other.is_there && other.transfer != nullptr && other.transfer->link == op.transfer->link)
      demand += other.transfer->demand;
  return demand <= kOne ? kOne : std::max<std::int64_t>(kOne * kOne / demand, 1);
}

bool RunningOps::holds(std::int64_t now) const {
  return !leaves_sms_ &&
         std::ranges::any_of(ops_, [&](const Running& op) { return op.holds(now); });
}

void RunningOps::take_queued(std::int64_t now, std::vector<std::uint32_t>& groups) {
  const bool held = holds(now);
  const bool holds_kernels =
      std::ranges::any_of(ops_, [&](const Running& op) { return op.holds_kernels(now); });
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (Running& op : ops_) {
      if (!op.is_there || !op.queued) continue;
      if (!op.is_collective()) {
        if (!holds_kernels) {
          op.queued = false;
          op.came = now;
        }
        continue;
      }
      if (held) continue;
      if (op.order != kNoOrder) {
        if (op.order != begun_) continue;
        ++begun_;
        goes_on = true;
      }
      op.queued = false;
      op.came = now;
      if (op.is_point_to_point())
        posted_.push_back(static_cast<std::uint32_t>(&op - ops_.data()));
      else
        groups.push_back(op.group);
    }
  }
}

ComputingClasses RunningOps::computes() const {
  ComputingClasses classes;
  for (const Running& op : ops_)
    if (op.is_there && op.computes) classes.set(static_cast<std::size_t>(op.entry->kind));
  return classes;
}

std::int64_t RunningOps::drag(const Launch& launch) const {
  std::int64_t drag = kOne;
  for (const Running& op : ops_)
    if (op.is_there && op.computes) drag = std::max(drag, launch.drag[op.entry->kind]);
  return drag;
}

Running& RunningOps::of_group(std::uint32_t group) {
  return *std::ranges::find_if(
      ops_, [&](const Running& op) { return op.is_collective() && op.group == group; });
}

bool RunningOps::runs_group(std::uint32_t group) const {
  return std::ranges::any_of(ops_, [&](const Running& op) {
    return op.is_collective() && !op.waits && op.group == group;
  });
}

bool RunningOps::runs_beside_compute() const {
  return std::ranges::any_of(ops_, [](const Running& op) {
    return op.is_there && op.is_kernel() && !op.computes && !op.queued;
  });
}

void RunningOps::share(std::int64_t now) {
  bool communicates = false;
  bool waits = false;
  PerKernelClass<std::int64_t> left{{kOne, kOne, kOne, kOne}};
  std::int64_t held = 0;  // by the collective with the most SMs
  std::int64_t next_end = kNever;
  for (const Running& op : ops_) {
    if (!op.is_collective()) continue;
    if (op.communicates()) {
      communicates = true;
      waits |= op.waits;
    }
    next_end = std::min(next_end, op.end);
    if (op.queued) continue;
    held = std::max(held, op.launch->occupancy);
    for (std::size_t kind = 0; kind < kKernelClasses; ++kind) {
      const std::int64_t lost = op.launch->occupancy * op.launch->weight.values[kind] / kOne +
                                op.launch->traffic.values[kind] * op.rate / kOne;
      left.values[kind] = left.values[kind] * std::max<std::int64_t>(kOne - lost, 0) / kOne;
    }
  }
  const bool beside = runs_beside_compute();
  bool computes = false;
  std::int64_t lost_by_compute = 0;
  for (Running& op : ops_) {
    if (!op.is_there || op.launch != nullptr || op.queued) continue;
    const std::int64_t whole_waves = held < kRaggedFrom ? kOne : kOne - op.entry->ragged_loss;
    const std::int64_t rate = std::max(std::min(left[op.entry->kind], whole_waves), kSlowestKernel);
    const bool shares = beside && op.computes && op.is_kernel();
    const std::int64_t share = shares ? kOne - kLostBesideKernel[op.entry->kind] : kOne;
    op.set_rate(now, op.transfer == nullptr ? rate * share / kOne : copy_rate(op));
    next_end = std::min(next_end, op.end);
    if (!op.computes) continue;
    computes = true;
    lost_by_compute += kOne - op.rate;
  }
  doing_.computes = computes;
  doing_.communicates = communicates;
  doing_.waits = waits;
  doing_.lost = lost_by_compute;
  doing_.next_end = next_end;
}

const std::vector<std::uint32_t>& RunningOps::take_ended(std::int64_t now) {
  ended_.clear();
  for (std::uint32_t stream = 0; stream < ops_.size(); ++stream) {
    Running& op = ops_[stream];
    if (op.end > now) continue;
    op.is_there = false;
    op.end = kNever;
    ended_.push_back(stream);
  }
  return ended_;
}

}  // namespace mfsdp
