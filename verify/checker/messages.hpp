// Classes of ranks send each other values, which have the model's names. The n-th recv of a route
// gets the message of its n-th send.
#pragma once

#include <deque>

#include "verify/checker/values.hpp"

namespace mfsdp::checker {

class Messages {
 public:
  /// `cells`: all of what the op sends. `is_value`: it lies in memory for values, not for weights,
  /// gradients or the host.
  void send(const Op& op, const Route& route, std::vector<std::pair<Int, Cell>> cells,
            bool is_value) {
    const bool written = std::ranges::none_of(
        cells, [](const auto& cell) { return cell.second.value.name.empty(); });
    if (cells.empty() || !written || !is_value)
      refuse("{}: what it sends is no value, or was not written", op.place());
    queues_[route].push_back({.from = &op, .cells = std::move(cells)});
  }
  [[nodiscard]] bool has(const Route& route) const {
    const auto queue = queues_.find(route);
    return queue != queues_.end() && !queue->second.empty();
  }
  /// Requires has().
  void receive(const Op& op, const Route& route, const Operand& to, Values& values) {
    auto& queue = queues_.at(route);
    const Message message = std::move(queue.front());
    queue.pop_front();
    const Operand& sent = message.from->operands.at(0);
    if (sent.elements != to.elements || sent.dtype != to.dtype || !to.dense)
      refuse("{}: receives what {} does not send", op.place(), message.from->place());
    const Int bytes = times(to.elements, size_of(to.dtype));
    for (Index i = 0; i < message.cells.size(); ++i) {
      const auto& [begin, cell] = message.cells[i];
      const Int end = i + 1 < message.cells.size() ? message.cells[i + 1].first : bytes;
      values.write(op, to, to.offset + begin, end - begin, cell.value, begin - cell.base);
    }
  }
  [[nodiscard]] bool empty() const {
    return std::ranges::all_of(queues_, [](const auto& queue) { return queue.second.empty(); });
  }

 private:
  struct Message {
    const Op* from = nullptr;
    std::vector<std::pair<Int, Cell>> cells{};
  };
  std::map<Route, std::deque<Message>> queues_{};
};

}  // namespace mfsdp::checker
