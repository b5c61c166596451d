// Draws places in a plan and edits them: the building blocks of patterns of pairs (edit_pairs.cpp).
#pragma once

#include <algorithm>
#include <functional>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plan/instances.hpp"
#include "core/plan/plan.hpp"
#include "verify/mutation/operands.hpp"
#include "verify/mutation/rebind.hpp"

namespace mfsdp {

using OpFilter = std::function<bool(const Op&)>;

/// A plan to which a pattern applies two edits. Edits return whether the plan had a place for them.
class PairEditor {
 public:
  PairEditor(Program& program, std::mt19937_64& random) : program_(program), random_(random) {}

  [[nodiscard]] Program& program() { return program_; }

  // ---- places

  struct Spot {
    Segment* segment = nullptr;
    std::size_t index = 0;

    [[nodiscard]] Op& op() const { return segment->ops[index]; }
    explicit operator bool() const { return segment != nullptr; }
  };

  /// Ops of a step that trains.
  [[nodiscard]] std::vector<Spot> all(const OpFilter& filter) {
    std::vector<Spot> spots;
    for (Segment& segment : program_.plans.front().segments)
      for (std::size_t i = 0; i < segment.ops.size(); ++i)
        if (filter(segment.ops[i])) spots.push_back({&segment, i});
    return spots;
  }
  [[nodiscard]] std::size_t draw(std::size_t below) { return random_() % below; }
  template <class T>
  [[nodiscard]] T any(const std::vector<T>& list) {
    return list.empty() ? T{} : list[draw(list.size())];
  }
  [[nodiscard]] Spot any(const OpFilter& filter) { return any(all(filter)); }
  /// Two different ops that pass the filter.
  [[nodiscard]] std::pair<Spot, Spot> two(const OpFilter& filter) {
    std::vector<Spot> spots = all(filter);
    if (spots.size() < 2) return {};
    const std::size_t a = random_() % spots.size();
    const std::size_t b = (a + 1 + random_() % (spots.size() - 1)) % spots.size();
    return {spots[std::min(a, b)], spots[std::max(a, b)]};
  }
  /// The same work of two blocks: kernels of one kind and attributes, in one segment and phase.
  [[nodiscard]] std::pair<Spot, Spot> twins(KernelKind kind, std::string_view role) {
    const auto [first, other] = two([&](const Op& op) { return has(op, kind, role); });
    if (!first) return {};
    const auto same = [&](const Op& op) {
      return has(op, kind, role) && op.phase == first.op().phase &&
             kernel(op)->attributes == kernel(first.op())->attributes &&
             find(op, role)->shape == find(first.op(), role)->shape;
    };
    std::vector<Spot> list = all(same);
    std::erase_if(list, [&](const Spot& spot) {
      return spot.segment != first.segment || spot.index == first.index;
    });
    return list.empty() ? std::pair<Spot, Spot>{} : std::pair(first, any(list));
  }

  static const Kernel* kernel(const Op& op) { return std::get_if<Kernel>(&op.body); }
  static bool has(const Op& op, KernelKind kind, std::string_view role = {}) {
    const Kernel* found = kernel(op);
    return found != nullptr && found->kind == kind && (role.empty() || find(op, role) != nullptr);
  }
  static bool gathers_or_reduces(const Op& op, CollectiveKind kind) {
    const auto* collective = std::get_if<Collective>(&op.body);
    return collective != nullptr && collective->kind == kind;
  }
  static const Operand* find(const Op& op, std::string_view role) {
    const Operand* found = nullptr;
    for_each_operand(op, [&](const Operand& operand) {
      if (operand.role == role && found == nullptr) found = &operand;
    });
    return found;
  }
  static Operand* find(Op& op, std::string_view role) {
    return const_cast<Operand*>(find(std::as_const(op), role));
  }

  // ---- edits

  /// Exchanges the places of the operands of a role between two ops.
  static bool exchange(const std::pair<Spot, Spot>& spots, std::string_view role) {
    if (!spots.first) return false;
    Operand* a = find(spots.first.op(), role);
    Operand* b = find(spots.second.op(), role);
    if (a == nullptr || b == nullptr || a->buffer == b->buffer) return false;
    std::swap(a->buffer, b->buffer);
    std::swap(a->offset, b->offset);
    return true;
  }
  /// Exchanges the places of two roles of one op.
  static bool exchange(const Spot& spot, std::string_view one, std::string_view other) {
    if (!spot) return false;
    Operand* a = find(spot.op(), one);
    Operand* b = find(spot.op(), other);
    if (a == nullptr || b == nullptr) return false;
    std::swap(a->buffer, b->buffer);
    std::swap(a->offset, b->offset);
    return true;
  }
  void for_each_operand_in(BufferId buffer, const std::function<void(Operand&)>& visit) {
    for (Plan& plan : program_.plans)
      for (Op& op : ops_of(plan))
        for_each_operand(op, [&](Operand& operand) {
          if (operand.buffer == buffer) visit(operand);
        });
  }
  bool drop(const Spot& spot) {
    if (!spot) return false;
    spot.segment->ops.erase(spot.segment->ops.begin() + static_cast<std::ptrdiff_t>(spot.index));
    return bind();
  }
  bool bind() {
    for (Plan& plan : program_.plans) rebind(plan, program_.events);
    return true;
  }
  bool set(const Spot& spot, std::string_view attribute, std::int64_t value) {
    if (!spot) return false;
    for (Attribute& stated : std::get<Kernel>(spot.op().body).attributes)
      if (stated.name == attribute) {
        stated.value = {.num = value};
        return true;
      }
    return false;
  }
  /// Sets beta, and the operand's access accordingly.
  bool set_beta(const Spot& spot, std::string_view role, std::int64_t beta) {
    if (!set(spot, "beta", beta)) return false;
    Operand* sum = find(spot.op(), role);
    if (sum == nullptr) return false;
    sum->access = beta == 0 ? Access::write : Access::read_write;
    return true;
  }

  /// Two buffers of one pool, of equal size or not.
  [[nodiscard]] std::pair<Buffer*, Buffer*> two_buffers(bool equal, bool persistent) {
    std::vector<std::pair<Buffer*, Buffer*>> list;
    for (Buffer& a : program_.buffers)
      for (Buffer& b : program_.buffers)
        if (a.id.value < b.id.value && a.pool == b.pool && (a.size == b.size) == equal &&
            a.persistent == persistent && b.persistent == persistent && a.dtype == b.dtype &&
            !is_scratch(a) && !is_scratch(b))
          list.emplace_back(&a, &b);
    return any(list);
  }
  static bool is_scratch(const Buffer& buffer) { return buffer.category == Category::workspace; }

  /// The next op after a spot, on the same stream, that passes the filter.
  [[nodiscard]] static Spot behind(const Spot& spot, const OpFilter& filter) {
    for (std::size_t i = spot.index + 1; spot && i < spot.segment->ops.size(); ++i)
      if (const Op& op = spot.segment->ops[i]; op.stream == spot.op().stream && filter(op))
        return {spot.segment, i};
    return {};
  }
  static bool writes(const Op& op) {
    bool found = false;
    for_each_operand(
        op, [&](const Operand& operand) { found = found || operand.access == Access::write; });
    return found;
  }
  static bool call_read(Op& op) {
    bool done = false;
    for_each_operand(op, [&](Operand& operand) {
      if (operand.access == Access::write && !std::exchange(done, true))
        operand.access = Access::read;
    });
    return done;
  }

 private:
  Program& program_;
  std::mt19937_64& random_;
};

}  // namespace mfsdp
