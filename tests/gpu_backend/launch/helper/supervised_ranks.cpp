// A program that supervises ranks of itself, one of which comes to harm:
//   mfsdp_supervised_ranks FOLDER RANKS VICTIM PHASE HARM
// Each rank writes its process id to FOLDER. RANKS 0: the environment defines the ranks.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "gpu_backend/launch/rendezvous.hpp"
#include "gpu_backend/launch/supervisor.hpp"
#include "gpu_backend/launch/watchdog.hpp"

namespace {

using namespace mfsdp;
using std::chrono::milliseconds;

std::atomic<bool> interrupted = false;

[[noreturn]] void sleep_forever() {
  while (true) std::this_thread::sleep_for(milliseconds(100));
}

struct Case {
  std::filesystem::path folder;
  std::int64_t ranks = 0;
  std::int64_t victim = 0;
  std::string phase;
  std::string harm;
};

class Rank {
 public:
  Rank(const Case& what, RankLaunch launch) : case_(what), launch_(std::move(launch)) {}

  int run() {
    leave("pid", std::to_string(::getpid()));
    come_to("start");
    auto attached = Watchdog::attach(*launch_.supervised);
    if (!attached) return report_mismatch(attached.error());
    watchdog_ = std::move(*attached);
    watchdog_.feed(std::chrono::minutes(1));
    come_to("attached");
    if (case_.phase == "meeting") meet_in_vain();
    auto met =
        Rendezvous::meet(launch_, {.run_id = launch_.run_id, .plan_hash = "", .build_id = ""});
    if (!met) return report_mismatch(met.error());
    ranks_ = std::move(*met);
    if (auto outcome = ranks_->barrier(); !outcome) return report_mismatch(outcome.error());
    leave("met", "");
    std::cout << "out of rank " << launch_.place.rank << "\nsecond line" << std::endl;
    come_to("met");
    if (case_.harm == "end") return 0;
    return turn_until_it_ends();
  }

 private:
  int turn_until_it_ends() {
    for (int step = 0;; ++step) {
      std::this_thread::sleep_for(milliseconds(5));
      if (step == 5) come_to("steps");
      if (interrupted) return 130;
      if (auto outcome = ranks_->barrier(); !outcome) {
        if (interrupted) return 130;
        std::cerr << outcome.error().message() + "\n";
        if (case_.harm == "kill, others deaf") sleep_forever();
        return 3;
      }
    }
  }

  void leave(const std::string& name, const std::string& text) const {
    std::ofstream(case_.folder / (name + std::to_string(launch_.place.rank))) << text;
  }

  [[nodiscard]] bool is_victim() const { return launch_.place.rank == case_.victim; }

  static int report_mismatch(const Error& error) {
    std::cerr << error.message() + "\n";
    return 3;
  }

  /// One rank does not come, so that all others are in the rendezvous when the victim dies.
  void meet_in_vain() const {
    if (launch_.place.rank == launch_.place.world_size - 1) sleep_forever();
    if (!is_victim()) return;
    std::thread([this] {
      std::this_thread::sleep_for(milliseconds(500));
      suffer();
    }).detach();
  }

  void come_to(const std::string& phase) {
    if (phase == "met" && case_.harm == "kill, others deaf") std::signal(SIGTERM, SIG_IGN);
    if (is_victim() && phase == case_.phase) suffer();
  }

  void suffer() const {
    const std::string& harm = case_.harm;
    if (harm == "exit 2") std::_Exit(2);
    if (harm.starts_with("kill")) std::raise(SIGKILL);
    if (harm == "crash") {
      std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would end it by an exit code
      std::raise(SIGSEGV);
    }
    if (harm == "fail") ranks_->fail("fails on purpose");
    if (harm == "stop") {
      watchdog_.feed(milliseconds(500));
      std::raise(SIGSTOP);
    }
    if (harm == "hang") {
      std::signal(SIGTERM, SIG_IGN);
      watchdog_.feed(milliseconds(500));
      sleep_forever();
    }
    if (harm == "hang at the end") {
      watchdog_.end_within(milliseconds(500));
      watchdog_.feed(std::chrono::minutes(1));
      sleep_forever();
    }
    if (harm == "never report") sleep_forever();
  }

  const Case& case_;
  RankLaunch launch_;
  Watchdog watchdog_;
  std::unique_ptr<Rendezvous> ranks_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const Case what{.folder = argv[1],
                  .ranks = std::atoll(argv[2]),
                  .victim = std::atoll(argv[3]),
                  .phase = argv[4],
                  .harm = argv[5]};
  LaunchFlags flags;
  if (what.ranks > 0) flags.ranks_per_node = what.ranks;
  const Environment environment = read_environment(environ);
  const auto launch = resolve_launch(environment, flags, 1);
  if (!launch) {
    std::cerr << launch.error().message() << std::endl;
    return 2;
  }
  if (launch->supervised) {
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int) { interrupted = true; });
    return Rank(what, *launch).run();
  }
  // Libraries start threads before main, and signals may be given to those.
  std::thread([] { sleep_forever(); }).detach();
  const auto code = supervise(
      *launch, {.arguments = {argv, argv + argc},
                .environment = environment,
                .start_deadline = std::chrono::seconds(what.harm == "never report" ? 1 : 60),
                .own_end = milliseconds(1000),
                .term_end = milliseconds(500),
                .stopping = "stopping",
                .err = &std::cerr});
  if (code) return *code;
  std::cerr << code.error().message() << std::endl;
  return 3;
}
