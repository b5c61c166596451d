#include "verify/checker/amaxes.hpp"

#include <utility>

namespace mfsdp::checker {

Int Amaxes::row_of(const Op& op, const Operand& operand) const {
  const Int row = 4 * state_.model.amax_columns();
  if (row == 0 || !is_history(state_.view.homes[operand.buffer]) || operand.dtype != "fp32" ||
      !operand.dense || !operand.rank_strides.empty() || operand.offset % 4 != 0)
    refuse("{}: '{}' is no number of the history", op.place(), operand.role);
  return operand.offset / row;
}

void Amaxes::read_kept(const Op& op, const Operand& operand, const std::string& of, Int owner) {
  if (row_of(op, operand) != 1) refuse("{}: 'amax' is not in row 1", op.place());
  const Value value = state_.values.read(op, operand, operand.offset, 4).value;
  const bool from_host = value.name == kHistory && kept_ == 0;
  if (!from_host && value != Value{"kept amax " + of, owner, kept_})
    refuse("{}: its scale is not of what the step before kept of {}", op.place(), of);
}

void Amaxes::keep(const Op& op, const Operand& operand, const std::string& of, Int owner,
                  Int pass) {
  const Value mine{"next amax " + of, owner, kept_};
  const Operand& amax = checker::operand(op, "amax");
  if (!state_.trains || reduced_ || row_of(op, operand) != 0 || row_of(op, amax) != 1 ||
      amax.offset - operand.offset != 4 * state_.model.amax_columns())
    refuse("{}: keeps a largest magnitude elsewhere, or too late", op.place());
  const Value before = state_.values.read(op, operand, operand.offset, 4).value;
  const bool begins =
      before == Value{"no amax", -1, kept_} || (before.name == kHistory && kept_ == 0);
  if (!begins && before != mine)
    refuse("{}: keeps the largest magnitude of {} beside another's", op.place(), of);
  seen_[operand.offset].insert(pass);
  state_.values.write(op, operand, operand.offset, 4, mine, 0);
}

void Amaxes::reduce(const Op& op, const Operand& from, const Operand& to) {
  const Json& communicator = state_.view.communicator_of(op);
  if (row_of(op, from) != 0 || from.offset != 0 || to.offset != 0 || to.buffer != from.buffer ||
      from.elements != state_.model.amax_columns() || to.elements != from.elements ||
      op.body->at("reduction") != "max" || communicator.at("size") != ranks_of(state_.view.dense))
    refuse("{}: is not the maximum of all amaxes over all ranks", op.place());
  if (!state_.trains || std::exchange(reduced_, true))
    refuse("{}: takes a maximum that no history takes", op.place());
}

void Amaxes::finish(const Op& op) {
  Names attributes{"slots", "tensors"};
  if (state_.model.takes_recent_amax()) attributes.insert("recent");
  if (op.operands.size() != 3) refuse("{}: has an operand too many or too few", op.place());
  state_.check_attributes(op, op.does, 0, attributes);
  const Int columns = state_.model.amax_columns();
  Int row = 0;
  for (const char* role : {"next_amax", "amax", "history"}) {
    const Operand& part = checker::operand(op, role);
    const Int rows = row < 2 ? 1 : state_.model.amax_slots();
    if (row_of(op, part) != row || part.offset % (4 * columns) != 0 ||
        part.access != "read_write" || part.elements != times(rows, columns))
      refuse("{}: '{}' is not that part of the history", op.place(), role);
    ++row;
  }
  if (op.attributes.at("slots") != state_.model.amax_slots() ||
      op.attributes.at("tensors") != columns ||
      (attributes.contains("recent") && op.attributes.at("recent") != 1))
    refuse("{}: is not the configured history", op.place());
  if (!state_.trains || (!reduced_ && ranks_of(state_.view.dense) > 1))
    refuse("{}: keeps amaxes of one rank alone, or of no step", op.place());
  const Operand& next = checker::operand(op, "next_amax");
  const Operand& amax = checker::operand(op, "amax");
  for (Int column = 0; column < columns; ++column) {
    const Int at = next.offset + 4 * column;
    const Value value = state_.values.read(op, next, at, 4).value;
    const bool is_of_step = value.name.starts_with("next amax ") && value.pass == kept_;
    const std::string of = is_of_step ? value.name.substr(10) : "";
    if (is_of_step && !of.ends_with(" weight") && std::ssize(seen_[at]) != in_step_)
      refuse("{}: has not {} of all microbatches", op.place(), of);
    // A tensor that no op of the step casts has none; then nothing may read it.
    state_.values.write(
        op, amax, amax.offset + 4 * column, 4,
        {is_of_step ? "kept amax " + of : "no amax", is_of_step ? value.owner : -1, kept_ + 1}, 0);
    state_.values.write(op, next, at, 4, {"no amax", -1, kept_ + 1}, 0);
  }
  ++kept_;
  in_step_ = 0;
  reduced_ = false;
  seen_.clear();
}

}  // namespace mfsdp::checker
