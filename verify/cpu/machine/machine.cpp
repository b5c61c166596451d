#include "verify/cpu/machine/machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stop_token>
#include <system_error>
#include <thread>

#include "core/plan/job.hpp"
#include "verify/cpu/machine/rank.hpp"

namespace mfsdp {
namespace {

/// Lists streams that others may wait for first; limits the number of lines.
std::string describe(std::vector<Stall> stalls, std::chrono::milliseconds deadline) {
  constexpr std::size_t kMost = 4;
  std::stable_sort(stalls.begin(), stalls.end(),
                   [](const Stall& a, const Stall& b) { return a.reason < b.reason; });
  std::string text =
      fmt::format("no op ended for {} s", static_cast<double>(deadline.count()) / 1000);
  for (std::size_t i = 0; i < std::min(kMost, stalls.size()); ++i)
    text += (i == 0 ? ": " : "; ") + stalls[i].text;
  if (stalls.size() > kMost) text += fmt::format("; and {} more", stalls.size() - kMost);
  return text;
}

/// Fails the run if every host waits for issued ops and none ends within the deadline.
void watch(const std::stop_token& stop, MachineShare& share,
           const std::vector<std::unique_ptr<CpuRank>>& ranks) {
  using Clock = std::chrono::steady_clock;
  std::mutex mutex;
  std::condition_variable_any stopped;
  std::unique_lock lock(mutex);
  std::int64_t ended = -1;
  Clock::time_point since = Clock::now();
  while (!stop.stop_requested() && !share.run.failed()) {
    const std::int64_t now_ended = share.run.ended();
    if (now_ended != ended || share.run.issued() == now_ended || share.run.hosts_work()) {
      ended = now_ended;
      since = Clock::now();
    } else if (Clock::now() - since >= share.settings.deadline) {
      std::vector<Stall> stalls;
      {
        const std::scoped_lock reporting(share.reporting);
        for (const auto& rank : ranks)
          for (Stall& stall : rank->stalls()) stalls.push_back(std::move(stall));
      }
      share.run.fail({.where = "",
                      .what = describe(std::move(stalls), share.settings.deadline),
                      .fault = Fault::environment});
    }
    stopped.wait_for(lock, stop, share.settings.deadline / 8, [] { return false; });
  }
}

}  // namespace

Machine::Machine(std::span<const Program> programs, MachineSettings settings)
    : share_(new MachineShare{.settings = std::move(settings)}) {
  share_->meetings = make_meetings(programs.front(), share_->run);  // communicators are shared
  const std::vector<std::uint32_t> classes = class_of_ranks(programs);
  for (std::size_t rank = 0; rank < classes.size(); ++rank)
    ranks_.push_back(std::make_unique<CpuRank>(*share_, programs[classes[rank]],
                                               static_cast<std::int64_t>(rank)));
}

Machine::~Machine() = default;

Result<void> Machine::run(const Host& host) {
  const std::jthread watchdog(
      [this](const std::stop_token& stop) { watch(stop, *share_, ranks_); });
  {
    std::vector<std::jthread> hosts;
    const auto host_of = [&](std::size_t r) {
      return [&, r] {
        const auto guarded = [&]() -> Result<void> {
          try {
            MFSDP_TRY(host(static_cast<std::int64_t>(r), *ranks_[r]));
            return ranks_[r]->synchronise();
          } catch (const std::exception& error) {
            return fail("", error.what());
          }
        };
        if (auto outcome = guarded(); !outcome && !share_->run.failed()) {
          Error& error = outcome.error();
          error.where = fmt::format("rank {}{}{}", r, error.where.empty() ? "" : ", ", error.where);
          share_->run.fail(std::move(error));
        }
        share_->run.host_pauses();
      };
    };
    for (std::size_t r = 0; r < ranks_.size() && !share_->run.failed(); ++r) {
      share_->run.host_begins();
      try {
        hosts.emplace_back(host_of(r));
      } catch (const std::system_error& error) {
        share_->run.host_pauses();
        share_->run.fail({.where = fmt::format("rank {}", r),
                          .what = fmt::format("its host cannot start: {}", error.what()),
                          .fault = Fault::environment});
      }
    }
  }
  return share_->run.outcome();
}

void Machine::host_waits(std::int64_t rank, bool waits) {
  HostWaits& of_host = ranks_[static_cast<std::size_t>(rank)]->host_waits();
  waits ? of_host.begin() : of_host.end();
}

std::vector<Bytes> Machine::allocated(std::int64_t rank) const {
  return ranks_[static_cast<std::size_t>(rank)]->allocated();
}

}  // namespace mfsdp
