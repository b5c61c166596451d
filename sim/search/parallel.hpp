// Independent pieces of work on several threads, results on one.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace mfsdp {

/// Calls `work(i)` for every i below `count` on `threads` threads (at least one) and hands each
/// value that it returns to `receive(i, value)` on the calling thread, in order of completion. No
/// new work starts after `receive` has returned false or `work` has thrown; running work is
/// awaited, and then the exception is thrown again. Few values are kept at a time: a slow receiver
/// holds the workers up.
void run_in_parallel(std::size_t count, unsigned threads, const auto& work, const auto& receive) {
  using Value = decltype(work(std::size_t{0}));
  const std::size_t workers = std::min<std::size_t>(std::max(threads, 1U), count);
  const std::size_t most_waiting = 2 * workers;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<std::size_t, Value>> finished;
  std::size_t next = 0;
  std::size_t running = workers;
  bool stop = false;
  std::exception_ptr fault;

  const auto serve = [&] {
    std::unique_lock lock(mutex);
    while (!stop && next < count) {
      const std::size_t index = next++;
      lock.unlock();
      try {
        Value value = work(index);
        lock.lock();
        changed.wait(lock, [&] { return stop || finished.size() < most_waiting; });
        finished.emplace_back(index, std::move(value));
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        if (!fault) fault = std::current_exception();
        stop = true;
      }
      changed.notify_all();
    }
    --running;
    changed.notify_all();
  };

  {
    std::vector<std::jthread> pool;
    for (std::size_t i = 0; i < workers; ++i) pool.emplace_back(serve);
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return !finished.empty() || running == 0; });
      if (finished.empty()) break;
      auto [index, value] = std::move(finished.front());
      finished.pop_front();
      changed.notify_all();
      lock.unlock();
      bool more = false;
      std::exception_ptr thrown;
      try {
        more = receive(index, std::move(value));
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown && !fault) fault = thrown;
      if (!more) stop = true;
      changed.notify_all();
    }
  }
  if (fault) std::rethrow_exception(fault);
}

}  // namespace mfsdp
