// Progress of long work, on a terminal's standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

namespace mfsdp {

/// Whether standard error is a terminal that can rewrite a line.
[[nodiscard]] bool shows_progress();

/// Clears a line of progress, so that another text can be printed.
void wipe_progress(std::ostream& err);

/// One line that is rewritten, at most ten times a second, and wiped at the end.
class Progress {
 public:
  /// `what` is counted: "configurations". `total` of 0: unknown. Prints nothing unless `shown`.
  Progress(std::ostream& err, std::string what, std::int64_t total, bool shown = shows_progress());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` items are done.
  void at(std::int64_t done);

  /// Wipes the line. Prints nothing afterwards.
  void end();

 private:
  std::ostream& err_;
  std::string what_;
  std::int64_t total_;
  bool shown_;
  bool written_ = false;
  std::chrono::steady_clock::time_point next_;
};

}  // namespace mfsdp
