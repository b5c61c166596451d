// A rank's line to its supervisor: what it promises about when it will be heard of again.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/base/error.hpp"
#include "core/base/file_descriptor.hpp"
#include "gpu_backend/launch/launch_environment.hpp"

namespace mfsdp {

/// The supervisor ends the whole run when a rank breaks its promise: a process that is stopped or
/// hangs while it starts or ends, a stream that ncclCommAbort cannot free. Reports are 16 bytes
/// into a pipe, about a microsecond, and never wait; any thread may report.
class Watchdog {
 public:
  /// Nobody watches: reports go nowhere.
  Watchdog() = default;

  /// Binds this process to its supervisor: it dies with it (PR_SET_PDEATHSIG). To be called at the
  /// start of the main thread. Errors: the supervisor has gone already; a descriptor that is none.
  [[nodiscard]] static Result<Watchdog> attach(const Supervision& supervision);

  /// "The next report comes within `patience`": once a step, and before anything long. Zero takes
  /// the promise back: no deadline until the next report.
  void feed(std::chrono::milliseconds patience) const;

  /// "This process ends within `patience`." Whatever is fed afterwards changes nothing: for a rank
  /// whose run has failed, and before the teardown of one that has not.
  void end_within(std::chrono::milliseconds patience) const;

 private:
  explicit Watchdog(FileDescriptor pipe) : pipe_(std::move(pipe)) {}
  FileDescriptor pipe_;
};

/// One report as the pipe carries it.
struct WatchdogReport {
  enum class Kind : std::int64_t { feed = 1, end_within = 2 };
  Kind kind = Kind::feed;
  std::int64_t patience = 0;  ///< milliseconds
};
static_assert(sizeof(WatchdogReport) == 16);

}  // namespace mfsdp
