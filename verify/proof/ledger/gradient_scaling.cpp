#include "verify/proof/ledger/gradient_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "verify/proof/ledger/checks.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/ledger/scaling_state.hpp"
#include "verify/proof/order/overlap.hpp"

namespace mfsdp::scaling {
namespace {

/// Updates read this step's 1/T, and clip by this step's norm as configured.
void update(State& s, const Kernel& kernel) {
  const auto count = [&](std::string_view role) {
    return std::ranges::count(kernel.operands, role, &Operand::role);
  };
  // A direction was computed from a gradient that was scaled before.
  const bool scales = kernel.kind != KernelKind::update || count("direction") == 0;
  if (!scales && count("loss") > 0)
    report(s, "MF308", "multiplies a direction by 1/T, which its gradient already contains");
  if (scales && count("loss") == 0)
    report(s, "MF307", "does not multiply its gradient by 1/T");
  else if (scales && !s.is_fresh(operand_of(kernel, "loss"), Scale::loss))
    report(s, "MF307", "multiplies its gradient by a value that is not this step's 1/T");
  if (count("loss") > 1) report(s, "MF308", "multiplies its gradient by 1/T more than once");
  const bool by_norm = s.config.updates_by_norm();
  if (count("norm") != (by_norm ? 1 : 0))
    report(s, "MF311",
           fmt::format("clips its gradient {} times; expected {}", count("norm"), by_norm ? 1 : 0));
  else if (by_norm && !s.is_fresh(operand_of(kernel, "norm"), Scale::norm))
    report(s, "MF311", "clips its gradient by a value that is not this step's norm");
}

bool takes_port(const State& s, const Copy& copy) {
  const Operand* on_host = copy.on_host();
  return on_host != nullptr &&
         s.unrolled.program->buffers[s.unrolled.index->buffers[on_host->buffer]].is_port();
}

/// A copy to the host brings the loss and the norm that this step has finished.
void check_host_copy(State& s, const Copy& copy) {
  const auto check = [&](Scale what, std::int64_t begin, const char* name) {
    Operand part = copy.input;
    part.offset = checked_add(copy.input.offset, begin);
    if (s.finished_in.contains({what, part.buffer}) && !s.is_fresh(&part, what))
      report(s, "MF115",
             fmt::format("copies a stale {0} to the host; expected this step's {0}", name));
  };
  check(Scale::loss, 0, "loss");
  check(Scale::norm, kReportBytes, "norm");
}

/// The part of `from` that lies in the input, moved by `further` bytes.
Sums moved(const State& s, const Sums& from, const ByteRange& input, std::int64_t further) {
  Sums sums = from;
  if (from.begin) {
    sums.begin = *from.begin + further;
    sums.there = {.begin = std::max(from.there.begin, input.begin) + further,
                  .end = std::min(from.there.end, input.end) + further};
    return sums;
  }
  sums.made_by.clear();
  sums.received.clear();
  for (const auto& [offset, instance] : from.made_by)
    if (input.has(offset, bytes_made(s, instance)))
      sums.made_by.emplace(offset + further, instance);
  for (const auto& [offset, partial] : from.received)
    if (input.has(offset, partial.bytes)) sums.received.emplace(offset + further, partial);
  return sums;
}

/// Values that the input has whole are in the output after the copy.
void move_values(State& s, const Operand& from, const Operand& to) {
  const bool moves = is_contiguous(from) && is_contiguous(to) && from.rank_strides.empty() &&
                     to.rank_strides.empty();
  const ByteRange input{.begin = from.offset, .end = from.offset + from.span_bytes()};
  const std::int64_t further = checked_sub(to.offset, from.offset);
  std::vector<std::pair<std::int64_t, Finished>> finished;
  for (const auto& [place, made] : s.finished)
    if (place.first == from.buffer && input.has(place.second, kReportBytes))
      finished.emplace_back(place.second + further, made);
  std::optional<Sums> copied;
  if (const auto found = s.sums.find(from.buffer); found != s.sums.end())
    copied = moved(s, found->second, input, further);
  write_over(s, to);
  if (!moves) return;
  for (const auto& [offset, made] : finished) {
    s.finished[{to.buffer, offset}] = made;
    s.finished_in.emplace(made.what, to.buffer);
  }
  if (copied) s.sums[to.buffer] = *std::move(copied);
}

bool lies_in(std::int64_t offset, const Operand& operand) {
  return offset >= operand.offset && offset - operand.offset < operand.span_bytes();
}

void gather(State& s, const Collective& collective) {
  const auto found = s.sums.find(collective.input.buffer);
  if (found == s.sums.end()) return write_over(s, collective.output);
  const auto& communicator =
      s.unrolled.program->communicators[s.unrolled.index->communicators[collective.communicator]];
  Sums gathered = found->second;
  write_over(s, collective.output);
  const auto is_left = [&](const auto& made) { return !lies_in(made.first, collective.input); };
  std::erase_if(gathered.made_by, is_left);
  std::erase_if(gathered.received, is_left);
  gathered.ranks = communicator.size;
  gathered.over = communicator.id;
  gathered.begin = collective.output.offset;
  gathered.there = {.begin = collective.output.offset,
                    .end = collective.output.offset + collective.output.span_bytes()};
  gathered.count = collective.count;
  s.sums[collective.output.buffer] = std::move(gathered);
}

void send(const State& s, const Collective& collective, Mailbox<SentScaling>* mailbox) {
  if (mailbox == nullptr) return;
  SentScaling sent;
  const Operand& from = collective.input;
  const auto is_sent = [&](std::int64_t offset, std::uint32_t by) {
    return lies_in(offset, from) && s.step_of(by) == s.step();
  };
  for (const auto& [place, made] : s.finished)
    if (place.first == from.buffer && is_sent(place.second, made.by))
      sent.finished.emplace_back(place.second - from.offset, made.what);
  if (const auto found = s.sums.find(from.buffer); found != s.sums.end()) {
    for (const auto& [offset, instance] : found->second.made_by)
      if (const auto group = s.group_of(instance); group && is_sent(offset, instance))
        sent.partials.emplace_back(offset - from.offset, *group);
    for (const auto& [offset, partial] : found->second.received)
      if (is_sent(offset, partial.instance))
        sent.partials.emplace_back(offset - from.offset, partial.group);
  }
  mailbox->send(collective, std::move(sent));
}

void receive(State& s, const Collective& collective, Mailbox<SentScaling>& mailbox) {
  const Operand& to = collective.output;
  const SentScaling sent = mailbox.take(collective);
  write_over(s, to);
  for (const auto& [offset, what] : sent.finished)
    s.finished[{to.buffer, to.offset + offset}] = {.what = what, .by = s.now};
  for (const auto& [offset, group] : sent.partials) {
    Sums& sums = s.sums[to.buffer];
    sums.garbage = false;
    sums.received[to.offset + offset] = {
        .group = group, .instance = s.now, .bytes = size_of(collective.dtype)};
  }
}

void run_kernel(State& s, const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::cross_entropy:
    case KernelKind::cross_entropy_loss: sum_loss(s, kernel); return;
    case KernelKind::router_backward: check_router_losses(s, kernel); return;
    case KernelKind::loss_finish: finish_loss(s, kernel); return;
    case KernelKind::norm_partial: keep_partial(s, kernel); return;
    case KernelKind::norm_finish: finish_norm(s, kernel); return;
    case KernelKind::token_copy: ++s.microbatches; return;
    case KernelKind::momentum:
    case KernelKind::update: update(s, kernel); return;
    default: return;
  }
}

void run_collective(State& s, const Collective& collective, Mailbox<SentScaling>* mailbox) {
  switch (collective.kind) {
    case CollectiveKind::send: send(s, collective, mailbox); return;
    case CollectiveKind::recv: receive(s, collective, *mailbox); return;
    default: gather(s, collective);
  }
}

/// The instance `s.next`. False where it receives and nothing was sent yet.
bool run_instance(State& s, Mailbox<SentScaling>* mailbox) {
  const Instance& instance = s.unrolled.instances[s.next];
  const auto* collective = std::get_if<Collective>(&instance.op->body);
  if (collective != nullptr && collective->kind == CollectiveKind::recv &&
      (mailbox == nullptr || !mailbox->has(*collective)))
    return false;
  if (s.run == kNone || s.unrolled.runs[s.run].step != s.step_of(s.next)) s.microbatches = 0;
  s.run = instance.run;
  s.now = s.next;
  for (const ScalingOverwrite& write : std::ranges::equal_range(
           s.followed.scaling_overwrites, instance.op_index, {}, &ScalingOverwrite::op))
    write_over(s, write.buffer, write.begin, write.end);
  if (const auto* kernel = std::get_if<Kernel>(&instance.op->body)) run_kernel(s, *kernel);
  if (const auto* copy = std::get_if<Copy>(&instance.op->body)) {
    if (!takes_port(s, *copy))
      move_values(s, copy->input, copy->output);
    else if (copy->kind == CopyKind::d2h)
      check_host_copy(s, *copy);
  }
  if (collective != nullptr) run_collective(s, *collective, mailbox);
  return true;
}

}  // namespace
}  // namespace mfsdp::scaling

namespace mfsdp {

GradientScaling::GradientScaling(const UnrolledPlan& unrolled, const FollowedOps& followed,
                                 FindingList& findings)
    : state_(std::make_unique<scaling::State>(unrolled, followed, findings)) {
  check_microbatches(unrolled, findings);
}
GradientScaling::GradientScaling(GradientScaling&&) noexcept = default;
GradientScaling::~GradientScaling() = default;

bool GradientScaling::go_on(Mailbox<SentScaling>* mailbox) {
  scaling::State& s = *state_;
  for (; s.next < s.unrolled.instances.size(); ++s.next)
    if ((s.followed.bits[s.unrolled.instances[s.next].op_index] & kFollowScaling) != 0 &&
        !scaling::run_instance(s, mailbox))
      return false;
  return true;
}

void check_gradient_scaling(const UnrolledPlan& unrolled, const FollowedOps& followed,
                            FindingList& findings) {
  GradientScaling(unrolled, followed, findings).go_on(nullptr);
}

}  // namespace mfsdp
