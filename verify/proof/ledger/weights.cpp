// Whether every kernel reads the weights of its step.
//
// Compute weights begin at version 0, an update makes the next version of the slice that it writes,
// and collectives carry versions with the elements. In step t every kernel is to read version t of
// whole parameters of its own unit; frozen ones stay at 0. Host order is one of the orders that the
// plan allows, and where nothing races (races.hpp) all of them compute the same.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "verify/proof/ledger/checks.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kNotGathered = -1;
constexpr std::int64_t kCoarser = -2;  ///< what the next coarser level has
constexpr std::int64_t kMixed = -3;    ///< slices of several versions

/// The version of a group in a buffer, by level.
using Versions = std::array<std::int64_t, kMostLevels>;

class WeightCheck {
 public:
  WeightCheck(const UnrolledPlan& unrolled, const Layouts& layouts, const FollowedOps& followed,
              FindingList& findings)
      : unrolled_(unrolled),
        layouts_(layouts),
        findings_(findings),
        live_(layouts.homes.size(), 0),
        first_(layouts.homes.size()),
        gathered_(layouts.groups.size()),
        updated_(layouts.groups.size(), false),
        followed_(followed),
        trains_(std::ranges::any_of(followed.bits, changes_weights)) {
    for (std::uint32_t b = 0; b < first_.size(); ++b) {
      if (layouts.homes[b].holds != Holds::weight) continue;
      first_[b] = versions_.size();
      versions_.resize(versions_.size() + layouts.homes[b].groups.size());
      const Buffer& buffer = unrolled.program->buffers[b];
      fill(b, buffer.persistent && !layouts.homes[b].casts ? 0 : kNotGathered);
      if (!buffer.persistent)
        for (const std::uint32_t g : layouts.homes[b].groups) gathered_[g].push_back(b);
    }
  }

  void run() {
    for (std::uint32_t i = 0; i < unrolled_.instances.size(); ++i) {
      const Instance& instance = unrolled_.instances[i];
      if ((followed_.bits[instance.op_index] & kFollowWeights) == 0 || instance.host_work) continue;
      now_ = i;
      const OpFacts& facts = unrolled_.ops[instance.op_index];
      switch (facts.kind) {
        case OpKind::kernel: run_kernel(instance.op_index); break;
        case OpKind::collective: gather(std::get<Collective>(instance.op->body)); break;
        case OpKind::copy: spoil(weight(std::get<Copy>(instance.op->body).output)); break;
        case OpKind::acquire: change_life(facts.subject, true); break;
        case OpKind::release: change_life(facts.subject, false); break;
        default: break;
      }
    }
    check_end();
  }

 private:
  /// Between steps an evaluation, a save or an export may read what is kept.
  void check_end() {
    if (unrolled_.instances.empty()) return;
    for (std::uint32_t b = 0; b < first_.size(); ++b) {
      const Home& home = layouts_.homes[b];
      if (home.holds != Holds::weight || home.casts || !unrolled_.program->buffers[b].persistent)
        continue;
      for (const std::uint32_t g : home.groups) {
        const std::int64_t version = version_at(b, g, home.level);
        const std::int64_t expected =
            updated_[g] ? unrolled_.runs[unrolled_.instances.back().run].step + 1 : 0;
        // Weights that an update made invalid are reported where they are read.
        if (version == expected || (updated_[g] && version == kNotGathered)) continue;
        report(
            "MF401", g, static_cast<std::uint32_t>(unrolled_.instances.size() - 1),
            fmt::format("ends a step in which buffer '{}' holds weights of '{}' {}; expected them "
                        "after {} updates",
                        unrolled_.program->buffers[b].name, layouts_.groups[g].name,
                        in_words(version), expected));
      }
    }
  }

  /// Updates weights, or makes gradients, which are to be followed by an update.
  static bool changes_weights(std::uint8_t bits) {
    return (bits & kFollowGradients) != 0 &&
           ((bits & kFollowWeights) == 0 || (bits & kFollowScaling) != 0);
  }
  /// An operand of the instance that runs, or null where that is no weight.
  [[nodiscard]] const FollowedOperand* weight(const Operand& operand) const {
    const auto* followed = followed_.find(unrolled_.instances[now_].op_index, operand);
    return followed == nullptr || followed->gradient ? nullptr : followed;
  }

  void fill(std::uint32_t buffer, std::int64_t version) {
    const Home& home = layouts_.homes[buffer];
    Versions versions;
    versions.fill(kCoarser);
    versions[static_cast<std::size_t>(home.level)] = version;
    std::fill_n(versions_.begin() + static_cast<std::ptrdiff_t>(first_[buffer]), home.groups.size(),
                versions);
  }
  void change_life(std::uint32_t buffer, bool live) {
    if (layouts_.homes[buffer].holds != Holds::weight) return;
    live_[buffer] = live ? 1 : 0;
    fill(buffer, kNotGathered);
  }

  [[nodiscard]] Versions& versions(std::uint32_t buffer, std::uint32_t group) {
    const auto& groups = layouts_.homes[buffer].groups;
    const auto at = std::ranges::find(groups, group) - groups.begin();
    return versions_[first_[buffer] + static_cast<std::size_t>(at)];
  }
  /// The one version of a level and all finer ones, or kMixed.
  [[nodiscard]] std::int64_t version_at(std::uint32_t buffer, std::uint32_t group, int level) {
    const Versions& all = versions(buffer, group);
    int coarsest = level;
    while (coarsest > 0 && all[static_cast<std::size_t>(coarsest)] == kCoarser) --coarsest;
    const std::int64_t version = all[static_cast<std::size_t>(coarsest)];
    for (int finer = level + 1; finer < layouts_.levels; ++finer)
      if (const std::int64_t own = all[static_cast<std::size_t>(finer)];
          own != kCoarser && own != version)
        return kMixed;
    return version;
  }
  void set_version(std::uint32_t buffer, std::uint32_t group, int level, std::int64_t version) {
    Versions& all = versions(buffer, group);
    for (int finer = level; finer < layouts_.levels; ++finer)
      all[static_cast<std::size_t>(finer)] = kCoarser;
    all[static_cast<std::size_t>(level)] = version;
  }
  [[nodiscard]] std::optional<int> level_of(const Located& located) const {
    const auto level = layouts_.groups[located.group].level_of(located.region);
    if (!located.exact || !level || *level < layouts_.homes[located.buffer].level)
      return std::nullopt;
    return level;
  }

  /// A cast of a shard has its version.
  bool cast(std::uint32_t op) {
    const FollowedOperand* input = nullptr;
    const FollowedOperand* output = nullptr;
    for (const FollowedOperand& operand : followed_.of(op))
      (operand.reads ? input : output) = &operand;
    if (input == nullptr || output == nullptr) return false;
    check_read(*input);
    const Located& from = input->located;
    const Located& to = output->located;
    const auto part = level_of(from);
    const auto level = level_of(to);
    if (!part || !level || from.group != to.group || from.region != to.region ||
        !layouts_.homes[to.buffer].casts)
      spoil(output);
    else
      set_version(to.buffer, to.group, *level, version_at(from.buffer, from.group, *part));
    return true;
  }

  void run_kernel(std::uint32_t op) {
    const auto& kernel = std::get<Kernel>(unrolled_.instances[now_].op->body);
    if (kernel.kind == KernelKind::cast_scaled && cast(op)) return;
    const bool update = (followed_.bits[op] & kUpdates) != 0;
    for (const FollowedOperand& operand : followed_.of(op)) {
      if (operand.gradient) continue;
      const Located& located = operand.located;
      updated_[located.group] = updated_[located.group] || update;
      if (!update && operand.reads) {
        check_read(operand);
      } else if (const auto level = level_of(located); update && level) {
        const std::int64_t old = version_at(located.buffer, located.group, *level);
        set_version(located.buffer, located.group, *level, old < 0 ? old : old + 1);
      } else {
        spoil(&operand);
      }
    }
  }

  /// The operand's bytes, if there are any, no longer hold weights.
  void spoil(const FollowedOperand* operand) {
    if (operand == nullptr) return;
    const Located& located = operand->located;
    if (located.region.count == 0) return;
    set_version(located.buffer, located.group, layouts_.homes[located.buffer].level, kNotGathered);
  }

  void check_read(const FollowedOperand& operand) {
    const Located& located = operand.located;
    const GroupLayout& layout = layouts_.groups[located.group];
    if (!operand.own_unit)
      return report(
          "MF403", located.group, now_,
          fmt::format("reads weights of '{}', which is another unit than the op's", layout.name));
    // Each rank casts its shard of weights whose casts are gathered.
    const bool of_shard = layout.group->fp8 && !layouts_.homes[located.buffer].casts;
    const auto shard = of_shard ? level_of(located) : std::nullopt;
    const auto& atoms = operand.atoms;
    if (shard) return check_version(operand, *shard, layout.name);
    if (!atoms || atoms->last != atoms->first + 1 ||
        layout.atoms[atoms->first].parameter == nullptr)
      return report("MF403", located.group, now_,
                    fmt::format("reads '{}' at {} of '{}', which is not one whole parameter",
                                operand.operand->role, to_text(located.region), layout.name));
    check_version(operand, 0, layout.atoms[atoms->first].parameter->name);
  }

  void check_version(const FollowedOperand& operand, int level, const std::string& name) {
    const Located& located = operand.located;
    const GroupLayout& layout = layouts_.groups[located.group];
    const std::int64_t step = unrolled_.runs[unrolled_.instances[now_].run].step;
    const std::int64_t expected = trains_ && layout.group->requires_grad ? step : 0;
    const std::int64_t version = version_at(located.buffer, located.group, level);
    if (version == expected) return;
    const char* rule = version == kNotGathered ? "MF402" : "MF401";
    report(rule, located.group, now_,
           fmt::format("reads '{}' of '{}' {}; expected the weights after {} updates", name,
                       layout.name, in_words(version), expected));
  }

  static std::string in_words(std::int64_t version) {
    if (version == kNotGathered) return "before any gather or update wrote it";
    if (version == kMixed) return "of which some shards are after another number of updates";
    return fmt::format("after {} updates", version);
  }

  void gather(const Collective& collective) {
    const FollowedOperand* output = weight(collective.output);
    if (output == nullptr) return;
    const Located& to = output->located;
    const auto astray = [&](const std::string& what) {
      report("MF403", to.group, now_,
             fmt::format("gathers {} of '{}' {}", to_text(to.region),
                         layouts_.groups[to.group].name, what));
      spoil(output);
    };
    const auto& axes =
        unrolled_.program->communicators[unrolled_.index->communicators[collective.communicator]]
            .axes;
    const FollowedOperand* input = weight(collective.input);
    if (input == nullptr) return astray("from a buffer that holds no weights");
    const Located& from = input->located;
    if (from.group != to.group)
      return astray(fmt::format("from '{}'", layouts_.groups[from.group].name));
    const auto part = level_of(from);
    const auto whole = level_of(to);
    if (collective.kind != CollectiveKind::all_gather || !part || !whole ||
        part_of(to.region, axes, unrolled_.program->config.mesh) != from.region)
      return astray(fmt::format("from {}, which is not this rank's shard", to_text(from.region)));
    const std::int64_t version = version_at(from.buffer, from.group, *part);
    note_second_gather(to, version);
    set_version(to.buffer, to.group, *whole, version);
  }

  void note_second_gather(const Located& to, std::int64_t version) {
    if (version < 0) return;
    for (const std::uint32_t other : gathered_[to.group])
      if (live_[other] != 0 && version_at(other, to.group, 0) == version)
        return report(
            "MF404", to.group, now_,
            fmt::format("gathers '{}', which buffer '{}' still holds gathered",
                        layouts_.groups[to.group].name, unrolled_.program->buffers[other].name));
  }

  void report(const char* rule, std::uint32_t group, std::uint32_t instance,
              const std::string& what) {
    if (!findings_.wants(rule) || !reported_.emplace(rule, group).second) return;
    findings_.add(finding_in_step(unrolled_, instance, rule, what));
  }

  const UnrolledPlan& unrolled_;
  const Layouts& layouts_;
  FindingList& findings_;
  std::vector<char> live_;          ///< by buffer
  std::vector<std::size_t> first_;  ///< by buffer: of its versions
  std::vector<Versions> versions_;  ///< of each buffer, in the order of Home::groups
  std::vector<std::vector<std::uint32_t>> gathered_;  ///< by group: buffers that may hold it whole
  std::vector<bool> updated_;                         ///< by group
  const FollowedOps& followed_;
  bool trains_;            ///< the plan makes gradients or updates weights
  std::uint32_t now_ = 0;  ///< the instance that runs
  std::set<std::pair<std::string, std::uint32_t>> reported_;
};

}  // namespace

void check_weights(const UnrolledPlan& unrolled, const Layouts& layouts,
                   const FollowedOps& followed, FindingList& findings) {
  WeightCheck(unrolled, layouts, followed, findings).run();
}

}  // namespace mfsdp
