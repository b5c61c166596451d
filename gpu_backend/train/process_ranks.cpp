#include "gpu_backend/train/process_ranks.hpp"

#include <fmt/format.h>

#include <cstring>
#include <span>

namespace mfsdp {

Result<std::vector<std::vector<double>>> ProcessHostGather::all_gather(std::int64_t rank,
                                                                       std::vector<double> values,
                                                                       const Alive& alive) {
  static_cast<void>(rank);  // the rendezvous knows it
  MFSDP_LET(given, rendezvous_.all_gather(std::as_bytes(std::span(values)), alive));
  std::vector<std::vector<double>> all;
  for (const Rendezvous::Bytes& bytes : given) {
    if (bytes.size() % sizeof(double) != 0)
      return fail(
          fmt::format("rank {}", all.size()),
          fmt::format("sent {} bytes: expected numbers of {}", bytes.size(), sizeof(double)),
          Fault::environment);
    std::vector<double>& numbers = all.emplace_back(bytes.size() / sizeof(double));
    if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  }
  return all;
}

Result<void> agree_on_start(HostGather& gather, std::int64_t rank, const TrainPosition& start,
                            const HostGather::Alive& alive) {
  const auto numbers = [](std::int64_t step, std::int64_t samples) {
    return std::vector<double>{static_cast<double>(step), static_cast<double>(samples)};
  };
  MFSDP_LET(all, gather.all_gather(rank, numbers(start.step, start.samples), alive));
  for (std::size_t other = 0; other < all.size(); ++other)
    if (all[other] != all.front())
      return fail("--resume",
                  fmt::format("rank 0 goes on after step {}, rank {} after step {}: expected the "
                              "same saves on all hosts",
                              all.front().at(0), other, all[other].at(0)),
                  Fault::environment);
  return {};
}

bool ProcessStopPoint::asked_to_stop() {
  if (!told_ && requested_()) {
    told_ = true;
    rendezvous_.request_stop();
  }
  return told_;
}

Result<bool> ProcessStopPoint::runs(std::int64_t turn) {
  const bool asked = asked_to_stop();
  if (rendezvous_.rank() == 0) {
    if (asked || rendezvous_.stop_requested()) {
      rendezvous_.grant({.turns = 0, .last = true});
    } else {
      // A single rank waits for no other, so it need not go on after Ctrl-C.
      const std::int64_t ahead = rendezvous_.world_size() == 1 ? 0 : kTurnsAhead;
      rendezvous_.grant({.turns = turn + 1 + ahead, .last = false});
    }
  }
  const Rendezvous::Alive look = [this]() -> Result<void> {
    static_cast<void>(asked_to_stop());
    return alive_ ? alive_() : Result<void>();
  };
  MFSDP_LET(runs, rendezvous_.await_turn(turn, look));
  if (!runs) stopped_ = true;
  return runs;
}

}  // namespace mfsdp
