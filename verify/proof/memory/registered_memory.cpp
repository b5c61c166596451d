#include "verify/proof/memory/registered_memory.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "verify/proof/memory/symmetric_memory.hpp"
#include "verify/proof/order/counterexample.hpp"
#include "verify/proof/order/overlap.hpp"

namespace mfsdp {
namespace {

/// Uses of one buffer that are compared pair by pair; a plan with more is refused.
constexpr std::size_t kMostUses = 4096;

struct Use {
  std::uint32_t instance = 0;
  ByteAccess access;
  std::optional<std::size_t> launch;  ///< of the communicator, where peers take part
};

class RegisteredPool {
 public:
  RegisteredPool(const UnrolledPlan& unrolled, CommunicatorId communicator, FindingList& findings)
      : u_(unrolled), communicator_(communicator), findings_(findings) {
    launch_of_.assign(u_.instances.size(), 0);
    for (std::uint32_t i = 0; i < u_.instances.size(); ++i) {
      if (!is_collective(i)) continue;
      const bool same_group = !launches_.empty() && !u_.ordered(launches_.back(), i);
      if (!same_group) launches_.push_back(i);
      launch_of_[i] = launches_.size() - 1;
    }
  }

  [[nodiscard]] std::optional<std::size_t> launch(std::uint32_t i) const {
    return is_collective(i) ? std::optional(launch_of_[i]) : std::nullopt;
  }

  void check(std::uint32_t buffer, const std::vector<Use>& uses) {
    for (std::size_t b = 0; b < uses.size(); ++b)
      for (std::size_t a = 0; a < b; ++a)
        if (uses.size() > kMostUses || (conflict(uses[a], uses[b]) && !safe(uses[a], uses[b]))) {
          Finding finding =
              unordered_finding(u_, "MF205", uses[a].instance, uses[b].instance,
                                {.buffer = buffer,
                                 .begin = std::max(uses[a].access.begin, uses[b].access.begin),
                                 .end = std::min(uses[a].access.end, uses[b].access.end)});
          finding.message = "between ranks, " + finding.message + ", which peers read and write";
          findings_.add(std::move(finding));
          return;
        }
  }

 private:
  [[nodiscard]] bool is_collective(std::uint32_t i) const {
    const auto* collective = std::get_if<Collective>(&u_.instances[i].op->body);
    return collective != nullptr && collective->communicator == communicator_;
  }
  [[nodiscard]] bool conflict(const Use& a, const Use& b) const {
    if (!a.launch && !b.launch) return false;  // local: the races' affair
    if (a.instance == b.instance || (!a.access.writes && !b.access.writes)) return false;
    return overlap(rows_of(a.access), rows_of(b.access), u_.program->config.mesh);
  }
  /// a is before b in host order.
  [[nodiscard]] bool safe(const Use& a, const Use& b) const {
    if (a.launch && b.launch) return *b.launch >= *a.launch + 2;
    if (b.launch) return *b.launch > 0 && u_.before(a.instance, launches_[*b.launch - 1]);
    return *a.launch + 1 < launches_.size() && u_.before(launches_[*a.launch + 1], b.instance);
  }

  const UnrolledPlan& u_;
  CommunicatorId communicator_;
  FindingList& findings_;
  std::vector<std::uint32_t> launches_;  // first instance of each
  std::vector<std::size_t> launch_of_;   // by instance
};

}  // namespace

void check_registered_memory(const UnrolledPlan& unrolled, const AccessTable& table,
                             FindingList& findings) {
  const Program& program = *unrolled.program;
  for (std::size_t p = 0; p < program.pools.size(); ++p) {
    const auto& registered = program.pools[p].registered;
    if (!registered) continue;
    if (uses_symmetric_memory(program.communicators[unrolled.index->communicators[*registered]]))
      continue;
    RegisteredPool pool(unrolled, *registered, findings);
    std::map<std::uint32_t, std::vector<Use>> uses;
    for (std::uint32_t i = 0; i < unrolled.instances.size(); ++i) {
      const Instance& instance = unrolled.instances[i];
      if (instance.host_work) continue;  // registered memory is the device's
      for (const ByteAccess& access : table.of(instance.op_index))
        if (unrolled.index->pools[program.buffers[access.buffer].pool] == p)
          uses[access.buffer].push_back(
              {.instance = i, .access = access, .launch = pool.launch(i)});
    }
    for (const auto& [buffer, list] : uses) pool.check(buffer, list);
  }
}

}  // namespace mfsdp
