#include "reports/tool/interrupt.hpp"

#include <csignal>

namespace mfsdp {
namespace {

std::atomic<bool> caught{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler writes it

void interrupt(int signal) {
  caught = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& interrupted() { return caught; }

void catch_interrupts(std::initializer_list<int> signals) {
  for (const int signal : signals) std::signal(signal, interrupt);
}

}  // namespace mfsdp
