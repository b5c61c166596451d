// A rank's reports to its supervisor, each with a deadline for the next.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"
#include "gpu_backend/launch/launch_environment.hpp"

namespace mfsdp {

/// The supervisor ends the whole run when a rank misses its deadline: a process is stopped or hangs
/// while it starts or ends, or ncclCommAbort cannot free a stream. A report is 16 bytes written to
/// a pipe, takes about a microsecond and never blocks. Any thread may report.
class Watchdog {
 public:
  /// No supervisor: reports are discarded.
  Watchdog() = default;

  /// Binds this process to its supervisor: it dies with it (PR_SET_PDEATHSIG). Call at the start of
  /// the main thread. Errors: the supervisor has already ended; the descriptor is not open.
  [[nodiscard]] static Result<Watchdog> attach(const Supervision& supervision);

  /// The next report follows within `patience`. Called once a step, and before anything long. Zero
  /// removes the deadline until the next report.
  void feed(std::chrono::milliseconds patience) const;

  /// This process ends within `patience`; later calls of feed() have no effect. For a rank whose
  /// run has failed, and before the teardown of one that has not.
  void end_within(std::chrono::milliseconds patience) const;

 private:
  explicit Watchdog(FileDescriptor pipe) : pipe_(std::move(pipe)) {}
  FileDescriptor pipe_;
};

/// One report in the pipe's format.
struct WatchdogReport {
  enum class Kind : std::int64_t { feed = 1, end_within = 2 };
  Kind kind = Kind::feed;
  std::int64_t patience = 0;  ///< milliseconds
};
static_assert(sizeof(WatchdogReport) == 16);

}  // namespace mfsdp
