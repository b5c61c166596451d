#include "verify/cpu/machine/meeting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "verify/cpu/machine/run_collective.hpp"

namespace mfsdp {
namespace {

using Clock = std::chrono::steady_clock;

const Collective& collective_of(const BoundOp& op) { return std::get<Collective>(op.op->body); }

std::string describe(std::int64_t rank, const BoundOp& op) {
  const Collective& collective = collective_of(op);
  return fmt::format("rank {} at {} has {} of {} {}, reduction {}", rank, op.op->name,
                     to_string(collective.kind), collective.count, to_string(collective.dtype),
                     to_string(collective.reduction));
}

}  // namespace

Meeting::Meeting(RunState& run, std::string name, std::vector<std::int64_t> ranks)
    : run_(run), name_(std::move(name)), ranks_(std::move(ranks)), arrivals_(ranks_.size()) {
  run.add(gate_);
}

Result<MeetingTimes> Meeting::join(std::int64_t rank, std::int64_t ticket, const BoundOp& op) {
  Arrival arrival{.op = &op, .times = {.begin = Clock::now(), .end = {}}};
  const auto member =
      static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  std::unique_lock lock(gate_.mutex);
  if (!run_.await(gate_, lock, [&] { return round_ == ticket; })) return {};
  arrival.times.begin = std::max(arrival.times.begin, ended_);
  arrivals_[member] = &arrival;
  if (const auto outcome = arrive(member); !outcome) {
    arrivals_[member] = nullptr;  // it goes with this call
    return tl::unexpected<Error>(outcome.error());
  }
  run_.await(gate_, lock, [&] { return round_ > ticket; });
  return arrival.times;
}

/// The last member to join runs the collective for all.
Result<void> Meeting::arrive(std::size_t member) {
  for (std::size_t other = 0; other < arrivals_.size(); ++other)
    if (arrivals_[other] != nullptr) MFSDP_TRY(compare(member, other));
  if (std::find(arrivals_.begin(), arrivals_.end(), nullptr) != arrivals_.end()) return {};
  MFSDP_TRY(complete());
  ended_ = Clock::now();
  for (Arrival*& arrival : arrivals_) std::exchange(arrival, nullptr)->times.end = ended_;
  ++round_;
  gate_.changed.notify_all();
  return {};
}

Result<void> Meeting::compare(std::size_t member, std::size_t other) const {
  const Collective& a = collective_of(*arrivals_[member]->op);
  const Collective& b = collective_of(*arrivals_[other]->op);
  if (a.kind == b.kind && a.count == b.count && a.dtype == b.dtype && a.reduction == b.reduction)
    return {};
  return fail("",
              fmt::format("collectives differ on communicator {}: {}, but {}", name_,
                          describe(ranks_[member], *arrivals_[member]->op),
                          describe(ranks_[other], *arrivals_[other]->op)),
              Fault::environment);
}

Result<void> Meeting::complete() {
  std::vector<Member> members;
  for (const Arrival* arrival : arrivals_)
    members.push_back(
        {.input = arrival->op->operands[0].data, .output = arrival->op->operands[1].data});
  return run_collective(collective_of(*arrivals_.front()->op), members);
}

std::vector<std::int64_t> Meeting::missing(std::int64_t ticket) {
  const std::scoped_lock lock(gate_.mutex);
  std::vector<std::int64_t> ranks;
  if (round_ != ticket) return ranks;
  for (std::size_t member = 0; member < ranks_.size(); ++member)
    if (arrivals_[member] == nullptr) ranks.push_back(ranks_[member]);
  return ranks;
}

MeetingPlaces make_meetings(const Program& program, RunState& run) {
  const Mesh& mesh = program.config.mesh;
  MeetingPlaces meetings;
  for (const Communicator& communicator : program.communicators) {
    meetings.transfers.push_back(std::make_unique<Transfers>(run, communicator.purpose));
    const Membership membership(communicator.axes, mesh);
    std::vector<Meeting*>& by_rank =
        meetings.of.emplace_back(static_cast<std::size_t>(mesh.world_size()));
    for (std::int64_t c = 0; c < membership.count(); ++c) {
      std::vector<std::int64_t> ranks;
      for (std::int64_t m = 0; m < membership.size(); ++m) ranks.push_back(membership.rank(c, m));
      meetings.all.push_back(std::make_unique<Meeting>(run, communicator.purpose, ranks));
      for (const std::int64_t rank : ranks)
        by_rank[static_cast<std::size_t>(rank)] = meetings.all.back().get();
    }
  }
  return meetings;
}

}  // namespace mfsdp
