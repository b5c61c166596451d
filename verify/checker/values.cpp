#include "verify/checker/values.hpp"

namespace mfsdp::checker {

Values::Values(const PlanView& view) : view_(view) {
  for (std::size_t b = 0; b < view.homes.size(); ++b) {
    const Int bytes = view.buffers[b].end - view.buffers[b].begin;
    // The first step.
    static const Names before{"rope_table", "local_rope_table", "loss_scale", "amax_history"};
    const bool filled = view.homes[b].kind == "port" && before.contains(view.homes[b].name);
    memory_.push_back({{0, {{.name = filled ? view.homes[b].name : ""}, 0}}, {bytes, {}}});
  }
}

void Values::begin_plan() {
  for (std::size_t b = 0; b < memory_.size(); ++b)
    if (!view_.json.at("buffers")[b].value("persistent", false)) acquire(b);
}

void Values::acquire(Index buffer) {
  memory_[buffer] = {{0, {}}, {view_.buffers[buffer].end - view_.buffers[buffer].begin, {}}};
}

Cell Values::read(const Op& op, const Operand& operand, Int begin, Int bytes) {
  auto& memory = memory_[operand.buffer];
  if (begin < 0 || bytes < 1 || begin + bytes > memory.rbegin()->first ||
      !view_.homes[operand.buffer].groups.empty() || !operand.rank_strides.empty())
    refuse("{}: operand '{}' is not a followed value", op.place(), operand.role);
  auto cell = std::prev(memory.upper_bound(begin));
  const Cell first = cell->second;
  for (++cell; cell != memory.end() && cell->first < begin + bytes; ++cell)
    if (cell->second != first)
      refuse("{}: operand '{}' holds several values", op.place(), operand.role);
  if (first.value.name.empty()) refuse("{}: '{}' was not written", op.place(), operand.role);
  return first;
}

void Values::write(const Op& op, const Operand& operand, Int begin, Int bytes, const Value& value,
                   Int position) {
  auto& memory = memory_[operand.buffer];
  const Home& home = view_.homes[operand.buffer];
  const bool reported =
      home.kind == "port" && ((home.name == "report" && op.does == "d2h") ||
                              (home.name == "loss_scale" && op.does == "norm_finish") ||
                              (is_history(home) && operand.role.ends_with("amax")));
  if (begin < 0 || bytes < 1 || begin + bytes > memory.rbegin()->first ||
      (!home.kind.empty() && !reported) || !operand.rank_strides.empty())
    refuse("{}: '{}' may not be written", op.place(), operand.role);
  cut_out(memory, begin, begin + bytes);
  memory.erase(std::next(memory.find(begin)), memory.find(begin + bytes));
  memory.at(begin) = {value, begin - position};
}

std::vector<std::pair<Int, Cell>> Values::look(const Operand& operand) {
  std::vector<std::pair<Int, Cell>> cells;
  auto& memory = memory_[operand.buffer];
  const Int end = operand.offset + times(operand.elements, size_of(operand.dtype));
  if (operand.dense && operand.rank_strides.empty() && end <= memory.rbegin()->first)
    for (const Cell* cell : cut_out(memory, operand.offset, end)) cells.emplace_back(0, *cell);
  auto at = memory.find(operand.offset);
  for (auto& [begin, cell] : cells) {
    begin = at->first - operand.offset;
    cell.base -= operand.offset;
    ++at;
  }
  return cells;
}

void Values::copy(const Op& op, const Operand& from, const Operand& to) {
  const Int bytes = times(from.elements, size_of(from.dtype));
  const auto cells = look(from);
  if (cells.empty() || bytes != times(to.elements, size_of(to.dtype)) || !to.dense ||
      !view_.homes[from.buffer].kind.empty())
    refuse("{}: does not copy a whole value", op.place());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto& [begin, cell] = cells[i];
    if (cell.value.name.empty()) refuse("{}: '{}' was not written", op.place(), from.role);
    const Int end = i + 1 < cells.size() ? cells[i + 1].first : bytes;
    write(op, to, to.offset + begin, end - begin, cell.value, begin - cell.base);
  }
}

Value Values::whole(const Op& op, const Operand& operand) {
  const Cell cell =
      read(op, operand, operand.offset, times(operand.elements, size_of(operand.dtype)));
  if (!operand.dense || cell.base != operand.offset)
    refuse("{}: '{}' does not begin where its value does", op.place(), operand.role);
  return cell.value;
}

void Values::make(const Op& op, const Operand& operand, const Value& value) {
  if (!operand.dense) refuse("{}: '{}' has gaps", op.place(), operand.role);
  write(op, operand, operand.offset, times(operand.elements, size_of(operand.dtype)), value, 0);
}

}  // namespace mfsdp::checker
