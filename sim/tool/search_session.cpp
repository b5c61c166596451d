#include "sim/tool/search_session.hpp"

#include <utility>

namespace mfsdp {

SearchHooks SearchSession::hooks() {
  return {.progress = [this](std::int64_t done, std::int64_t total) { show(done, total); },
          .cancelled = [this] { return session_.interrupted.load(); },
          .keep = [this](PredictedRun& run) { return keep(run); }};
}

Result<void> SearchSession::flush() {
  progress_.reset();
  return store_waiting();
}

Result<void> SearchSession::store_waiting() {
  const std::vector<RunResult> runs = std::exchange(waiting_, {});
  return store_.save(runs);
}

Result<void> SearchSession::keep(PredictedRun& run) {
  constexpr std::size_t kTransaction = 100;
  sign(run, options_, session_);
  waiting_.emplace_back(run);
  return waiting_.size() < kTransaction ? Result<void>() : store_waiting();
}

void SearchSession::show(std::int64_t done, std::int64_t total) {
  if (!progress_) progress_.emplace(session_.err, "configurations", total);
  progress_->at(done);
  if (done == total) progress_.reset();
}

}  // namespace mfsdp
