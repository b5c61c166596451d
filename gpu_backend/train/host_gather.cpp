#include "gpu_backend/train/host_gather.hpp"

#include <chrono>

namespace mfsdp {

Result<std::vector<std::vector<double>>> SharedHostGather::all_gather(std::int64_t rank,
                                                                      std::vector<double> values,
                                                                      const Alive& alive) {
  constexpr std::chrono::milliseconds kLook{20};
  const auto own = static_cast<std::size_t>(rank);
  std::unique_lock lock(mutex_);
  const std::int64_t number = given_[own]++;
  Round& round = rounds_[number];  // stays at its address until every rank has taken it
  round.values.resize(given_.size());
  round.values[own] = std::move(values);
  if (++round.given == given_.size()) complete_.notify_all();
  while (!complete_.wait_for(lock, kLook, [&] { return round.given == given_.size(); })) {
    lock.unlock();
    MFSDP_TRY(alive());
    lock.lock();
  }
  std::vector<std::vector<double>> all = round.values;
  if (++round.taken == given_.size()) rounds_.erase(number);
  return all;
}

}  // namespace mfsdp
