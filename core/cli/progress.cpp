#include "core/cli/progress.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "core/cli/format.hpp"

namespace mfsdp {
namespace {

constexpr std::chrono::milliseconds kPause{100};
constexpr std::string_view kWipe = "\r\x1b[K";

}  // namespace

bool shows_progress() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

void wipe_progress(std::ostream& err) {
  if (shows_progress()) err << kWipe;
}

Progress::Progress(std::ostream& err, std::string what, std::int64_t total, bool shown)
    : err_(err),
      what_(std::move(what)),
      total_(total),
      shown_(shown),
      next_(std::chrono::steady_clock::now() + kPause) {}

Progress::~Progress() { end(); }

void Progress::end() {
  if (written_) err_ << kWipe << std::flush;
  written_ = shown_ = false;
}

void Progress::at(std::int64_t done) {
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || now < next_) return;
  next_ = now + kPause;
  written_ = true;
  const std::string of = total_ > 0 ? " of " + format_count(total_) : "";
  err_ << kWipe << format_count(done) << of << ' ' << what_ << std::flush;
}

}  // namespace mfsdp
