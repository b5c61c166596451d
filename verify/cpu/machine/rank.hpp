// One rank of the CPU machine: its memory, its events, and a thread for each of its streams.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/runtime/backend.hpp"
#include "verify/cpu/machine/chaos.hpp"
#include "verify/cpu/machine/machine_settings.hpp"
#include "verify/cpu/machine/meeting.hpp"
#include "verify/cpu/machine/run_state.hpp"

namespace mfsdp {

/// State shared by all ranks of a machine.
struct MachineShare {
  MachineSettings settings;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  RunState run{};
  MeetingPlaces meetings{};
  /// Held while a report reads the streams' current ops; no op is destroyed meanwhile.
  std::mutex reporting{};
};

/// A stream's current op when no op of the run ends.
struct Stall {
  enum class Reason { in_op, meeting, event };
  Reason reason = Reason::in_op;
  std::string text;
};

class CpuRank final : public Backend {
 public:
  /// `program`: that of the rank's class. Both must outlive the object.
  CpuRank(MachineShare& share, const Program& program, std::int64_t rank);
  ~CpuRank() override;
  CpuRank(const CpuRank&) = delete;
  CpuRank& operator=(const CpuRank&) = delete;

  [[nodiscard]] Result<std::byte*> allocate(const Pool& pool) override;
  [[nodiscard]] Result<void> upload(std::span<const std::byte> from, std::byte* device) override;
  [[nodiscard]] Result<void> download(const std::byte* device, std::span<std::byte> to) override;
  [[nodiscard]] Result<void> issue(const BoundOp& op, std::int64_t step) override;
  [[nodiscard]] Result<void> record(const BoundOp& op, std::int64_t step,
                                    std::int64_t number) override;
  [[nodiscard]] Result<void> wait(const BoundOp& op, std::int64_t step,
                                  std::int64_t number) override;
  [[nodiscard]] Result<Nanos> host_wait(const BoundOp& op, std::int64_t step, std::size_t event,
                                        std::int64_t number) override;
  /// Even after a failure it returns only when no stream runs an op.
  [[nodiscard]] Result<void> synchronise() override;
  /// Time since the machine was constructed.
  [[nodiscard]] Nanos now() const override;
  [[nodiscard]] std::vector<OpTiming> take_timings() override;

  /// The host announces here waits of which this rank does not know.
  [[nodiscard]] HostWaits& host_waits() { return host_waits_; }

  /// Bytes of each allocation, in the order in which they were made.
  [[nodiscard]] std::vector<Bytes> allocated() const;
  /// The current op of each busy stream. The caller holds MachineShare::reporting.
  [[nodiscard]] std::vector<Stall> stalls();

 private:
  /// An op's number in the host's order of issue, and the last time that the host read.
  struct Issue {
    std::int64_t number = 0;  ///< from 1
    std::int64_t drains = 0;
    Nanos at;
  };
  /// `number`: the number of a record, of a collective on its communicator, of a send or a recv with
  /// its peer there, or of a drain.
  struct Item {
    const BoundOp* op = nullptr;  ///< null: a drain, which the host waits for
    std::int64_t step = 0;
    std::int64_t number = 0;
    std::optional<Issue> timed{};  ///< none: its times are not recorded
  };
  struct Timed {
    std::int64_t issue = 0;  ///< number
    OpTiming timing;
  };
  struct Event {
    explicit Event(std::string its_name) : name(std::move(its_name)) {}

    std::string name;
    Gate gate;
    std::int64_t recorded = 0;       ///< records 1 to this number have run
    std::set<std::int64_t> ahead{};  ///< later records that have also run, on other streams
    Nanos at;                        ///< when the latest ran

    [[nodiscard]] bool has_run(std::int64_t number) const {
      return number <= recorded || ahead.contains(number);
    }
    void run(std::int64_t number) {
      ahead.insert(number);
      while (ahead.erase(recorded + 1) != 0) ++recorded;
    }
  };
  struct BegunTransfer {
    Item item;
    RankTransfer transfer;
  };
  struct Stream {
    explicit Stream(const Chaos& delays) : chaos(delays) {}

    Gate gate;                 ///< guards the members above the line
    std::vector<Item> queue;   ///< issued, not yet taken by the thread
    std::int64_t drained = 0;  ///< number of the latest drain reached
    bool closed = false;
    // --------------------------------------------------------------------------------------
    bool in_group = false;            ///< between group_begin and group_end
    std::deque<BegunTransfer> begun;  ///< sends and recvs that it does not know to have ended
    std::mutex current_mutex;         ///< the thread and a report; orders nothing between streams
    Item current;                     ///< what it runs, if anything
    Chaos chaos;                      ///< the thread's own
    Nanos ended;                      ///< the thread's: its last timed op
    bool halted = false;              ///< the thread's: an op after a failure could not be done
    std::vector<Timed> timings;       ///< the thread's, and the host's after a drain
    std::jthread thread;
  };
  struct Allocation {
    std::byte* data;
    Bytes size;
    std::int64_t alignment;
  };

  [[nodiscard]] Nanos since_start(std::chrono::steady_clock::time_point at) const;
  void make_room_for_timings();
  [[nodiscard]] std::optional<Issue> issue_of(const BoundOp& op, std::int64_t step);
  void keep(std::vector<Timed>& timings, const Item& item, OpTiming timing) const;
  void end_streams();
  [[nodiscard]] Result<void> push(std::size_t stream, Item item);
  void serve(Stream& stream);
  static void set_current(Stream& stream, const Item& item);
  void run_item(Stream& stream, const Item& item);
  [[nodiscard]] bool ends_after_failure(const Item& item) const;
  [[nodiscard]] Result<void> run_op(Stream& stream, const Item& item);
  [[nodiscard]] Result<void> run_body(Stream& stream, const Item& item, OpTiming& timing);
  [[nodiscard]] Result<void> run_faulty(Stream& stream, const Item& item, InjectedFault::Kind kind);
  [[nodiscard]] Result<void> join(std::int64_t ticket, const BoundOp& op, OpTiming& timing);
  [[nodiscard]] Transfers& transfers_of(const BoundOp& op) const;
  [[nodiscard]] Result<void> begin_transfer(Stream& stream, const Item& item);
  void end_transfers(Stream& stream);
  Nanos await_event(std::size_t event, std::int64_t number);
  void stop_here(Stream& stream);
  [[nodiscard]] std::string place(const BoundOp& op, std::int64_t step) const;

  MachineShare& share_;
  const Program& program_;
  std::int64_t rank_;
  HostWaits host_waits_;
  std::int64_t drains_ = 0;
  std::vector<std::span<const Op>> timed_ops_;  ///< those of the timed plan, by list
  std::int64_t issued_ = 0;                     ///< number of issued ops of the timed plan
  std::optional<std::int64_t> looked_in_;       ///< the step in which the host read the clock
  Nanos looked_at_;
  std::vector<Timed> host_timings_;
  std::vector<std::int64_t> tickets_;  ///< collectives issued, by communicator
  /// Sends and recvs issued, by communicator, peer and kind.
  std::map<std::tuple<std::size_t, std::int64_t, CollectiveKind>, std::int64_t> transfers_issued_;
  std::vector<Allocation> allocations_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<std::unique_ptr<Stream>> streams_;  ///< last: their threads use the rest
};

}  // namespace mfsdp
