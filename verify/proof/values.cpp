#include "verify/proof/values.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "verify/proof/value_cells.hpp"

namespace mfsdp {

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
        read_(table.first.size() - 1, 0),
        complained_(table.first.size() - 1, 0) {
    bring_from_outside();
  }

  bool run(WireEnds<SentValues>* wires) {
    for (std::uint32_t& i = next_; i < unrolled_.instances.size(); ++i) {
      const Instance& instance = unrolled_.instances[i];
      const auto* sent = std::get_if<Collective>(&instance.op->body);
      const bool receives = sent != nullptr && sent->kind == CollectiveKind::recv;
      if (receives && (wires == nullptr || !wires->has(*sent))) return false;
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
      if (receives) model_.receive(wires->take(*sent));
      if (sent != nullptr && sent->kind == CollectiveKind::send && wires != nullptr)
        wires->send(*sent, model_.sent());
    }
    model_.end();
    find_unused();
    return true;
  }

 private:
  /// What ops of the plan only read or update in place is there from the start, in buffers that
  /// are.
  void bring_from_outside() {
    for (std::size_t b = 0; b < program_.buffers.size(); ++b)
      if (program_.buffers[b].persistent)
        std::fill(outside_.begin() + cells_of_.first_cell[b],
                  outside_.begin() + cells_of_.first_cell[b + 1], 1);
    for (std::size_t op = 0; op + 1 < cells_of_.first_use.size(); ++op)
      for (const CellUse& use : cells_of_.of(op))
        if (!use.reads && program_.buffers[use.buffer].persistent && !is_update(op, use))
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
    bool any = false;
    for (std::uint32_t c = use.first; c < use.last; ++c) {
      const ValueCell& cell = memory_.cells[c];
      any = any || cell.lifetime == lifetime;
      if (cell.lifetime != lifetime)
        unwritten = std::min(unwritten, c);
      else if ((outside_[c] != 0) != from_outside)  // partly made in the plan
        unwritten = std::min(unwritten, from_outside ? use.first : c);
      else if (cell.writer != kNone)
        read_[cell.writer] = 1;
    }
    if (unwritten != kNone && (use.exact || !any) && !is_report(i, use))
      report_unwritten(i, use, unwritten);
  }

  /// What the host is brought of a persistent buffer may be partly another plan's.
  [[nodiscard]] bool is_report(std::uint32_t i, const CellUse& use) const {
    const auto* copy = std::get_if<Copy>(&unrolled_.instances[i].op->body);
    return copy != nullptr && copy->kind == CopyKind::d2h &&
           program_.buffers[use.buffer].persistent;
  }

  void write(std::uint32_t op_index, const CellUse& use) {
    const ValueCell cell{.lifetime = use.scratch ? kNone : memory_.lifetimes[use.buffer],
                         .writer = op_index};
    std::fill(memory_.cells.begin() + use.first, memory_.cells.begin() + use.last, cell);
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
        "{} reads '{}' of buffer '{}', where nothing has written from byte {} on",
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
    Finding finding;
    finding.rule = "MF112";
    finding.places = {place_of(unrolled_, i)};
    finding.message =
        fmt::format("op {}, {}, writes nothing that is read", unrolled_.instances[i].op->id.value,
                    to_text(finding.places.front()));
    findings_.add(std::move(finding));
  }

  const UnrolledPlan& unrolled_;
  const Program& program_;
  const AccessTable& table_;
  FindingList& findings_;
  ValueCells cells_of_;
  ValueMemory memory_;
  ModelValues model_;
  std::vector<char> outside_;     ///< by cell: it is there from the start
  std::vector<char> read_;        ///< by op: something that it wrote
  std::vector<char> complained_;  ///< by op
  std::uint32_t next_ = 0;        ///< the instance to go on with
};

ValueRun::ValueRun(const UnrolledPlan& unrolled, const AccessTable& table, const Layouts& layouts,
                   FindingList& findings)
    : impl_(std::make_unique<Impl>(unrolled, table, layouts, findings)) {}
ValueRun::ValueRun(ValueRun&&) noexcept = default;
ValueRun::~ValueRun() = default;

bool ValueRun::go_on(WireEnds<SentValues>* wires) { return impl_->run(wires); }

void check_values(const UnrolledPlan& unrolled, const AccessTable& table, const Layouts& layouts,
                  FindingList& findings) {
  ValueRun(unrolled, table, layouts, findings).go_on(nullptr);
}

}  // namespace mfsdp
