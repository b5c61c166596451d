#include "verify/proof/order/accesses.hpp"

#include <utility>

#include "core/plan/instances.hpp"
#include "verify/proof/order/overlap.hpp"

namespace mfsdp {
namespace {

/// Lists the bytes that ops touch, for a program without structure_faults().
class AccessList {
 public:
  AccessList(const Program& program, const ProgramIndex& index)
      : program_(program), index_(index) {}

  AccessTable of(const Plan& plan) {
    table_ = {};
    for (const Op& op : ops_of(plan)) {
      std::visit([this](const auto& body) { add(body); }, op.body);
      table_.first.push_back(static_cast<std::uint32_t>(table_.accesses.size()));
    }
    return std::move(table_);
  }

 private:
  void add(const Kernel& kernel) {
    for (const Operand& operand : kernel.operands) add(operand);
  }
  void add(const Collective& collective) {
    if (collective.input.stated()) add(collective.input);
    if (collective.output.stated()) add(collective.output);
  }
  void add(const Copy& copy) {
    add(copy.input);
    add(copy.output);
  }
  void add(const Acquire& acquire) { add_whole(acquire.buffer); }
  void add(const Release& release) { add_whole(release.buffer); }
  void add(const auto& /*touches_nothing*/) {}

  void add_whole(BufferId id) {
    const auto buffer = static_cast<std::uint32_t>(index_.buffers[id]);
    const std::int64_t size = program_.buffers[buffer].size.value;
    if (size > 0) table_.accesses.push_back({.buffer = buffer, .writes = true, .end = size});
  }

  void add(const Operand& operand) {
    const std::int64_t span = operand.span_bytes();
    if (span == 0) return;
    ByteAccess access{.buffer = static_cast<std::uint32_t>(index_.buffers[operand.buffer]),
                      .writes = operand.access != Access::read,
                      .exact = is_contiguous(operand),
                      .begin = operand.offset,
                      .end = operand.offset + span,
                      .operand = &operand};
    for (const RankStride& stride : operand.rank_strides) {
      const std::int64_t reach = stride.bytes * (program_.config.mesh.size(stride.axis) - 1);
      (reach < 0 ? access.begin : access.end) += reach;
      access.exact = access.exact && reach == 0;
    }
    table_.accesses.push_back(access);
  }

  const Program& program_;
  const ProgramIndex& index_;
  AccessTable table_;
};

}  // namespace

std::vector<AccessTable> access_tables(const Program& program, const ProgramIndex& index) {
  AccessList accesses(program, index);
  std::vector<AccessTable> tables;
  for (const Plan& plan : program.plans) tables.push_back(accesses.of(plan));
  return tables;
}

}  // namespace mfsdp
