// The values in buffers that hold neither parameters nor their gradients: activations, tokens, loss
// and norm, by the model's names. The host's order represents all orders, as races are excluded
// before.
#pragma once

#include "verify/checker/ledger.hpp"

namespace mfsdp::checker {

/// A value of a place in forward order and of a microbatch; -1 where it has none.
struct Value {
  std::string name{};  ///< empty: garbage
  Int owner = -1, pass = -1;
  friend bool operator==(const Value&, const Value&) = default;
};

/// Some bytes of a value.
struct Cell {
  Value value{};
  Int base = 0;  ///< the byte of the buffer at which the value begins, were all of it there
  friend bool operator==(const Cell&, const Cell&) = default;
};

class Values {
 public:
  explicit Values(const PlanView& view);

  /// Before a plan: only what persists is still there.
  void begin_plan();
  void acquire(Index buffer);

  /// The value in `bytes` from `begin` on, which must be one contiguous piece; else it is refused.
  Cell read(const Op& op, const Operand& operand, Int begin, Int bytes);
  void write(const Op& op, const Operand& operand, Int begin, Int bytes, const Value& value,
             Int position);
  /// All of an operand, whatever is there, as it lies.
  std::vector<std::pair<Int, Cell>> look(const Operand& operand);
  void copy(const Op& op, const Operand& from, const Operand& to);
  /// An operand that begins where its value does, and its value.
  Value whole(const Op& op, const Operand& operand);
  void make(const Op& op, const Operand& operand, const Value& value);

 private:
  const PlanView& view_;
  std::vector<std::map<Int, Cell>> memory_{};  ///< by buffer and first byte
};

}  // namespace mfsdp::checker
