// Exchanges small numbers between the hosts of all ranks, for logs and checks between steps.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

/// A collective of hosts. Every rank must call it equally often.
class HostGather {
 public:
  virtual ~HostGather() = default;

  /// Called from time to time during a wait for other ranks. It returns an error when the run has
  /// failed, so that no host waits for a rank that has ended.
  using Alive = std::function<Result<void>()>;

  /// Every rank's values, in rank order.
  [[nodiscard]] virtual Result<std::vector<std::vector<double>>> all_gather(
      std::int64_t rank, std::vector<double> values, const Alive& alive) = 0;
};

/// For ranks that are threads of one process.
class SharedHostGather final : public HostGather {
 public:
  /// Called when a rank's host begins to wait for others here, and when it has stopped waiting: a
  /// machine with a deadline must know that this host does not work.
  using OnWait = std::function<void(std::int64_t rank, bool waits)>;

  explicit SharedHostGather(std::int64_t ranks, OnWait on_wait = {})
      : on_wait_(std::move(on_wait)), given_(static_cast<std::size_t>(ranks), std::int64_t{0}) {}

  [[nodiscard]] Result<std::vector<std::vector<double>>> all_gather(std::int64_t rank,
                                                                    std::vector<double> values,
                                                                    const Alive& alive) override;

 private:
  struct Round {
    std::vector<std::vector<double>> values;  ///< by rank
    std::size_t given = 0;
    std::size_t taken = 0;
  };

  OnWait on_wait_;
  std::mutex mutex_;
  std::condition_variable complete_;
  std::vector<std::int64_t> given_;  ///< number of rounds that each rank has joined
  std::map<std::int64_t, Round> rounds_;
};

}  // namespace mfsdp
