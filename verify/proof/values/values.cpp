#include "verify/proof/values/values.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "verify/proof/values/value_cells.hpp"

namespace mfsdp {
namespace {

/// Whether the host writes the buffer once, before the first step.
bool is_there_from_the_start(const Buffer& buffer) {
  if (!buffer.persistent || !buffer.holds || !buffer.holds->port) return false;
  switch (*buffer.holds->port) {
    case Port::rope_table:
    case Port::local_rope_table:
    case Port::loss_scale:
    case Port::amax_history: return true;
    case Port::tokens:
    case Port::step_block:
    case Port::report:
    case Port::log_probs: return false;
  }
  return false;
}

/// Whether two operands of one buffer are the same bytes on every rank.
bool are_same_bytes(const Operand& a, const Operand& b) {
  return a.offset == b.offset && size_of(a.dtype) == size_of(b.dtype) && a.shape == b.shape &&
         a.strides == b.strides && a.rank_strides == b.rank_strides;
}

/// The last op that wrote some bytes of a cell, where none has written all of them.
struct PartlyWritten {
  const Operand* by = nullptr;
  std::uint32_t lifetime = kNone;
};

}  // namespace

class ValueRun::Impl {
 public:
  Impl(const UnrolledPlan& unrolled, const AccessTable& table, const Layouts& layouts,
       FindingList& findings)
      : unrolled_(unrolled),
        program_(*unrolled.program),
        table_(table),
        findings_(findings),
        cells_of_(value_cells(unrolled, table, layouts)),
        memory_{.cells = std::vector<ValueCell>(cells_of_.begin.size()),
                .lifetimes = std::vector<std::uint32_t>(program_.buffers.size(), 0)},
        model_(unrolled, layouts, cells_of_, memory_, findings),
        outside_(cells_of_.begin.size(), 0),
        partly_(std::ranges::all_of(cells_of_.uses, &CellUse::exact) ? 0 : cells_of_.begin.size()),
        read_(table.first.size() - 1, 0),
        complained_(table.first.size() - 1, 0) {
    bring_from_outside();
  }

  bool run(Mailbox<SentValues>* mailbox) {
    for (std::uint32_t& i = next_; i < unrolled_.instances.size(); ++i) {
      const Instance& instance = unrolled_.instances[i];
      const auto* sent = std::get_if<Collective>(&instance.op->body);
      const bool receives = sent != nullptr && sent->kind == CollectiveKind::recv;
      if (receives && (mailbox == nullptr || !mailbox->has(*sent))) return false;
      if (instance.host_work) {
        model_.fill(i);
        continue;
      }
      if (const auto* acquire = std::get_if<Acquire>(&instance.op->body))
        ++memory_.lifetimes[unrolled_.index->buffers[acquire->buffer]];
      const auto uses = cells_of_.of(instance.op_index);
      if (uses.empty() && sent == nullptr) continue;
      for (const CellUse& use : uses)
        if (use.reads) read(i, use);
      model_.read(i);
      for (const CellUse& use : uses)
        if (!use.reads || use.writes) write(instance.op_index, use);
      model_.write(i);
      if (receives) model_.receive(mailbox->take(*sent));
      if (sent != nullptr && sent->kind == CollectiveKind::send && mailbox != nullptr)
        mailbox->send(*sent, model_.sent());
    }
    model_.end();
    find_unused();
    return true;
  }

 private:
  void bring_from_outside() {
    const bool states_contents = std::ranges::any_of(program_.buffers, [](const Buffer& buffer) {
      return buffer.holds && buffer.holds->kind != ContentKind::port;
    });
    for (std::size_t b = 0; b < program_.buffers.size(); ++b)
      if (states_contents ? is_there_from_the_start(program_.buffers[b])
                          : program_.buffers[b].persistent)
        std::fill(outside_.begin() + cells_of_.first_cell[b],
                  outside_.begin() + cells_of_.first_cell[b + 1], 1);
    for (std::size_t op = 0; op + 1 < cells_of_.first_use.size(); ++op)
      for (const CellUse& use : cells_of_.of(op))
        if (!use.reads && !is_update(op, use))
          std::fill(outside_.begin() + use.first, outside_.begin() + use.last, 0);
    for (std::size_t c = 0; c < outside_.size(); ++c)
      if (outside_[c] != 0) memory_.cells[c].lifetime = 0;
  }
  /// Whether the op also reads what it writes there.
  [[nodiscard]] bool is_update(std::size_t op, const CellUse& write) const {
    return write.writes && std::ranges::any_of(cells_of_.of(op), [&](const CellUse& use) {
             return use.reads && use.first <= write.first && write.last <= use.last;
           });
  }

  void read(std::uint32_t i, const CellUse& use) {
    const std::uint32_t lifetime = memory_.lifetimes[use.buffer];
    const bool from_outside = outside_[use.first] != 0;
    std::uint32_t unwritten = kNone;
    for (std::uint32_t c = use.first; c < use.last; ++c) {
      const ValueCell& cell = memory_.cells[c];
      if (cell.lifetime != lifetime && !has_these_bytes(c, use, lifetime))
        unwritten = std::min(unwritten, c);
      else if ((outside_[c] != 0) != from_outside)  // partly made in the plan
        unwritten = std::min(unwritten, from_outside ? use.first : c);
      else if (cell.writer != kNone)
        read_[cell.writer] = 1;
    }
    if (unwritten != kNone && !is_report(i, use)) report_unwritten(i, use, unwritten);
  }

  /// Whether an op with the same bytes of the cell wrote them last.
  [[nodiscard]] bool has_these_bytes(std::uint32_t cell, const CellUse& use,
                                     std::uint32_t lifetime) const {
    if (use.exact || use.operand == nullptr) return false;
    const PartlyWritten& partly = partly_[cell];
    return partly.lifetime == lifetime && are_same_bytes(*partly.by, *use.operand);
  }

  /// A part of the report that the host receives may come from another plan.
  [[nodiscard]] bool is_report(std::uint32_t i, const CellUse& use) const {
    const auto* copy = std::get_if<Copy>(&unrolled_.instances[i].op->body);
    if (copy == nullptr || copy->kind != CopyKind::d2h) return false;
    const Buffer& to = program_.buffers[unrolled_.index->buffers[copy->output.buffer]];
    return program_.buffers[use.buffer].persistent && to.holds && to.holds->port == Port::report;
  }

  void write(std::uint32_t op_index, const CellUse& use) {
    if (!use.exact && !use.scratch) return write_some(op_index, use);
    const ValueCell cell{.lifetime = use.scratch ? kNone : memory_.lifetimes[use.buffer],
                         .writer = op_index};
    std::fill(memory_.cells.begin() + use.first, memory_.cells.begin() + use.last, cell);
    if (!partly_.empty())
      std::fill(partly_.begin() + use.first, partly_.begin() + use.last, PartlyWritten{});
  }

  /// Some unknown bytes of these cells are written: their values are gone. Bytes that were not
  /// written before count as written only for ops that read the same bytes.
  void write_some(std::uint32_t op_index, const CellUse& use) {
    for (std::uint32_t c = use.first; c < use.last; ++c) {
      ValueCell& cell = memory_.cells[c];
      cell.key = {};
      cell.writer = op_index;
      partly_[c] = {.by = use.operand, .lifetime = memory_.lifetimes[use.buffer]};
    }
  }

  void report_unwritten(std::uint32_t i, const CellUse& use, std::uint32_t cell) {
    const Buffer& buffer = program_.buffers[use.buffer];
    const std::uint32_t op_index = unrolled_.instances[i].op_index;
    if (complained_[op_index] != 0 || !findings_.wants("MF111")) return;
    complained_[op_index] = 1;
    Finding finding;
    finding.rule = "MF111";
    finding.places = {place_of(unrolled_, i)};
    finding.buffer = buffer.id;
    finding.begin = cells_of_.begin[cell];
    finding.end = cell + 1 < cells_of_.first_cell[use.buffer + 1] ? cells_of_.begin[cell + 1]
                                                                  : buffer.size.value;
    finding.message = fmt::format(
        "{} reads '{}' of buffer '{}', but no op has written it from byte {} on",
        text_in_step(finding.places.front()),
        use.operand == nullptr ? "a scalar" : use.operand->role, buffer.name, finding.begin);
    findings_.add(std::move(finding));
  }

  /// Ops of which no run was of use.
  void find_unused() {
    std::uint32_t seen = 0;  // instances of ops come in order at first
    for (std::uint32_t i = 0; i < unrolled_.instances.size(); ++i) {
      const Instance& instance = unrolled_.instances[i];
      if (instance.op_index < seen || instance.host_work) continue;
      seen = instance.op_index + 1;
      if (read_[instance.op_index] == 0 && could_be_read(instance) && findings_.wants("MF112"))
        report_unused(i);
    }
  }

  /// Everything that the op writes is followed, and something of it is no gradient.
  [[nodiscard]] bool could_be_read(const Instance& instance) const {
    bool writes = false;
    for (const CellUse& use : cells_of_.of(instance.op_index)) writes = writes || use.writes;
    if (!writes || instance.op->phase == Phase::backward) return false;
    return std::ranges::all_of(table_.of(instance.op_index), [&](const ByteAccess& access) {
      return !access.writes || cells_of_.followed[access.buffer] != 0;
    });
  }

  void report_unused(std::uint32_t i) {
    const Place place = place_of(unrolled_, i);
    findings_.add({.rule = "MF112",
                   .message = fmt::format("op {}, {}, is unused: no op reads what it writes",
                                          place.op.value, to_text(place)),
                   .places = {place}});
  }

  const UnrolledPlan& unrolled_;
  const Program& program_;
  const AccessTable& table_;
  FindingList& findings_;
  ValueCells cells_of_;
  ValueMemory memory_;
  ModelValues model_;
  std::vector<char> outside_;          ///< by cell: it is there from the start
  std::vector<PartlyWritten> partly_;  ///< by cell; empty where all ops touch whole cells
  std::vector<char> read_;             ///< by op: something that it wrote
  std::vector<char> complained_;       ///< by op
  std::uint32_t next_ = 0;             ///< the instance to go on with
};

ValueRun::ValueRun(const UnrolledPlan& unrolled, const AccessTable& table, const Layouts& layouts,
                   FindingList& findings)
    : impl_(std::make_unique<Impl>(unrolled, table, layouts, findings)) {}
ValueRun::ValueRun(ValueRun&&) noexcept = default;
ValueRun::~ValueRun() = default;

bool ValueRun::go_on(Mailbox<SentValues>* mailbox) { return impl_->run(mailbox); }

void check_values(const UnrolledPlan& unrolled, const AccessTable& table, const Layouts& layouts,
                  FindingList& findings) {
  ValueRun(unrolled, table, layouts, findings).go_on(nullptr);
}

}  // namespace mfsdp
