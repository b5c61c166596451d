#include "gpu_backend/train/host_gather.hpp"

#include <chrono>

namespace mfsdp {
namespace {

/// While it lives, OnWait knows that the rank's host waits.
class KnownWait {
 public:
  KnownWait(const SharedHostGather::OnWait& on_wait, std::int64_t rank)
      : on_wait_(on_wait), rank_(rank) {
    if (on_wait_) on_wait_(rank_, true);
  }
  ~KnownWait() {
    if (on_wait_) on_wait_(rank_, false);
  }
  KnownWait(const KnownWait&) = delete;
  KnownWait& operator=(const KnownWait&) = delete;

 private:
  const SharedHostGather::OnWait& on_wait_;
  std::int64_t rank_;
};

}  // namespace

Result<std::vector<std::vector<double>>> SharedHostGather::all_gather(std::int64_t rank,
                                                                      std::vector<double> values,
                                                                      const Alive& alive) {
  constexpr std::chrono::milliseconds kLook{20};
  const KnownWait wait(on_wait_, rank);
  const auto own = static_cast<std::size_t>(rank);
  std::unique_lock lock(mutex_);
  const std::int64_t number = given_[own]++;
  Round& round = rounds_[number];  // its address stays valid until every rank has taken the result
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
