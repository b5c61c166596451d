// The data between weights and gradients: whether every op reads the values that it needs.
//
// Host order is one of the orders that the plan allows, and where nothing races (races.hpp) all of
// them have the same flow of data. With findings of races, the findings here are dropped
// (passes.cpp).
//
// Unwritten (MF111). Each byte that an op reads was written before by an op of its plan, since its
// buffer was acquired. Scratch leaves bytes unwritten. Only ports that the host writes before the
// first step have values then, such as tables of rotations; no operand is partly of these. In a
// plan by hand that states of no buffer which parameters it holds, these are the persistent buffers
// that ops only read or update in place. The report may bring the host a part that another plan
// makes. An op may touch only some of the bytes that it spans (value_cells.hpp). It then needs all
// of them written, or the same bytes written by one op, and counts as writing them for equal
// operands only.
//
// Unused (MF112). An op is of use if anything that it writes is read by another op, or lies where
// this proof does not look: weights, gradients, state, the host's memory. Gradients of activations
// need no reader: backward ends where nothing before it is trained.
//
// Wrong (MF113). Where the program's units are those of its configuration's model, each kernel is a
// step of that model (model_steps.hpp) and reads the values of its own block and microbatch. Received
// values are those that the peer sent.
#pragma once

#include <memory>

#include "verify/proof/ledger/layouts.hpp"
#include "verify/proof/order/accesses.hpp"
#include "verify/proof/order/messages.hpp"
#include "verify/proof/order/unrolled_plan.hpp"
#include "verify/proof/values/model_values.hpp"

namespace mfsdp {

/// The check of one plan, as far as what it receives was sent.
class ValueRun {
 public:
  ValueRun(const UnrolledPlan& unrolled, const AccessTable& table, const Layouts& layouts,
           FindingList& findings);
  ValueRun(const ValueRun&) = delete;
  ValueRun& operator=(const ValueRun&) = delete;
  ValueRun(ValueRun&& other) noexcept;
  ~ValueRun();

  /// False where it has to wait for a send; without wires it stops there.
  bool go_on(Mailbox<SentValues>* mailbox);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Finds MF111 to MF113, at most one of each for an op.
void check_values(const UnrolledPlan& unrolled, const AccessTable& table, const Layouts& layouts,
                  FindingList& findings);

}  // namespace mfsdp
