// The ends of a stage: tensors that it receives from its neighbours and sends to them.
//
//   recv      acquire x | recv x     | record received
//   compute             wait received | kernels read x ... | release x | record read
//
//   compute   wait sent | acquire y | kernels write y | record made
//   send                                              wait made | send y | release y | record sent
//
// An acquire waits for the microbatch that had the instance before: `read` and `sent` have as many
// instances as their buffer. A tensor that backward reads, too, has one for each microbatch in
// flight; others that are received have one for each that is received ahead. Others that are sent
// have two, so that the kernel that writes the next one does not wait for the transfer.
//
// A receive begins with the last unit of the action that is launched before it (kLastUnit): one that
// waits for its sender takes multiprocessors from kernels, and a unit's time hides a transfer.
#include <algorithm>
#include <set>
#include <stdexcept>

#include "core/schedule/microbatch.hpp"

namespace mfsdp::schedule {
namespace {

std::size_t number(PipelinePart part) { return static_cast<std::size_t>(part); }

/// Forward goes one chunk on, backward one back.
std::int64_t step_of(PipelinePart part) { return part == PipelinePart::forward ? 1 : -1; }

Phase phase_of(PipelinePart part) {
  return part == PipelinePart::forward ? Phase::forward : Phase::backward;
}

bool reads(const RecipeOperand& operand) {
  return operand.access == Access::read || operand.access == Access::read_write;
}

}  // namespace

bool MicrobatchSchedule::reads_tokens() const {
  return std::ranges::any_of(steps_, [](const Step& step) {
    return std::ranges::any_of(step.op->operands, [](const RecipeOperand& operand) {
      return operand.source == Source::global && operand.name == global::tokens;
    });
  });
}

std::string MicrobatchSchedule::buffer_name(const std::string& key, Source source) const {
  const bool several = state_.stage.chunks.size() > 1 && source == Source::microbatch;
  return several ? key + "." + std::to_string(chunk_) : key;
}

std::vector<std::string> MicrobatchSchedule::needed(PipelinePart part) const {
  std::set<std::string> touched;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < steps_.size(); ++i)
    for (const RecipeOperand& operand : steps_[i].op->operands) {
      const std::string key = key_of(steps_[i], operand);
      if (key.empty() || !touched.insert(key).second) continue;
      if (reads(operand) && part_of(i) == part) keys.push_back(key);
    }
  return keys;
}

std::size_t MicrobatchSchedule::sending_step(PipelinePart part, const std::string& key) const {
  std::optional<std::size_t> touched;
  std::optional<std::size_t> written;
  for (std::size_t i = 0; i < steps_.size(); ++i)
    for (const RecipeOperand& operand : steps_[i].op->operands) {
      if (key_of(steps_[i], operand) != key) continue;
      touched = i;
      if (part_of(i) == part && operand.access != Access::read) written = i;
    }
  if (!written)
    throw std::logic_error("a stage does not make " + key + ", which its neighbour reads");
  return part_of(*touched) == part ? *touched : *written;
}

std::vector<std::string> MicrobatchSchedule::in_sending_order(PipelinePart part,
                                                              std::vector<std::string> keys) const {
  const auto step = [&](const std::string& key) { return sending_step(part, key); };
  std::ranges::stable_sort(keys, {}, step);
  return keys;
}

bool MicrobatchSchedule::is_received(const std::string& key) const {
  return std::ranges::any_of(ends_.received, [&](const std::vector<std::string>& keys) {
    return std::ranges::find(keys, key) != keys.end();
  });
}

/// Gives acquires and releases of what crosses to the streams of transfers.
void MicrobatchSchedule::make_ends(const std::unordered_map<std::string, BufferId>& tensors,
                                   const std::unordered_map<BufferId, std::size_t>& last_use) {
  if (const auto tokens = last_use.find(state_.tokens);
      ends_.releases_tokens && tokens != last_use.end())
    steps_[tokens->second].releases.push_back(state_.tokens);
  rotate_kept(last_use);
  const std::int64_t two = std::min<std::int64_t>(2, ends_.microbatches);
  for (const PipelinePart part : {PipelinePart::forward, PipelinePart::backward}) {
    for (const std::string& key : ends_.sent[number(part)]) {
      const BufferId id = tensors.at(key);
      const std::size_t last = last_use.at(id);
      const Crossing tensor{
          .buffer = id, .step = sending_step(part, key), .releases = part_of(last) == part};
      if (tensor.releases) {
        std::erase(steps_[last].releases, id);
        e_.rotate(id, two);
      }
      sent_.push_back(tensor);
    }
    for (const std::string& key : ends_.received[number(part)]) {
      const BufferId id = tensors.at(key);
      const auto first = std::ranges::find_if(steps_, [&](const Step& step) {
        return std::ranges::find(step.acquires, id) != step.acquires.end();
      });
      std::erase(first->acquires, id);
      received_.push_back({.buffer = id, .step = static_cast<std::size_t>(first - steps_.begin())});
      const bool kept = part_of(last_use.at(id)) != part;
      e_.rotate(id, std::max(e_.at(id).instances.value_or(1),
                             kept ? ends_.inputs_in_flight : ends_.received_before[number(part)]));
    }
  }
  for (const Crossing& tensor : sent_)
    e_.rotate(e_.event(e_.at(tensor.buffer).name + ".sent"),
              e_.at(tensor.buffer).instances.value_or(1));
  for (Crossing& tensor : received_) {
    const Crossing* const sent = crossing(sent_, tensor.buffer);
    tensor.sent_on = sent != nullptr && sent->releases;
    if (!tensor.sent_on)
      e_.rotate(e_.event(e_.at(tensor.buffer).name + ".read"),
                e_.at(tensor.buffer).instances.value_or(1));
  }
}

/// A tensor that a part makes or receives and a later one reads has an instance for each microbatch in
/// flight between the two.
void MicrobatchSchedule::rotate_kept(const std::unordered_map<BufferId, std::size_t>& last_use) {
  for (std::size_t i = 0; i < std::min(weights_begin_, steps_.size()); ++i)
    for (const BufferId id : steps_[i].acquires) {
      const PipelinePart last = part_of(last_use.at(id));
      const PipelinePart first = part_of(i);
      if (first == last) continue;
      const std::int64_t late = first == PipelinePart::forward ? ends_.until_weights
                                                               : ends_.gradients_until_weights;
      e_.rotate(id, last == PipelinePart::backward ? ends_.in_flight : late);
    }
}

const MicrobatchSchedule::Crossing* MicrobatchSchedule::crossing(const std::vector<Crossing>& among,
                                                                 BufferId id) const {
  const auto found = std::ranges::find(among, id, &Crossing::buffer);
  return found == among.end() ? nullptr : &*found;
}

void MicrobatchSchedule::emit_receives(PipelinePart part) {
  make_tensors();
  const PipelineStage& stage = state_.stage;
  const std::int64_t from = stage.neighbour(-step_of(part));
  const std::string link = link_from(from, step_of(part), stage.count);
  const Phase phase = phase_of(part);
  e_.wait(StreamRole::recv, phase, std::string(kLastUnit));
  for (const Crossing& tensor : received_) {
    if (part_of(tensor.step) != part) continue;
    const Buffer& buffer = e_.at(tensor.buffer);
    const std::string name = buffer.name;
    e_.wait(StreamRole::recv, phase, name + (tensor.sent_on ? ".sent" : ".read"));
    e_.acquire(StreamRole::recv, phase, tensor.buffer);
    e_.transfer(StreamRole::recv, phase, link, from - stage.index, CollectiveKind::recv,
                {.buffer = tensor.buffer,
                 .dtype = buffer.dtype,
                 .shape = {buffer.size.value / size_of(buffer.dtype)}});
    e_.record(StreamRole::recv, phase, name + ".received");
  }
}

void MicrobatchSchedule::emit_sends(PipelinePart part) {
  for (const Crossing& tensor : sent_)
    if (part_of(tensor.step) == part) send(tensor, part);
}

void MicrobatchSchedule::send(const Crossing& tensor, PipelinePart part) {
  const PipelineStage& stage = state_.stage;
  const std::int64_t to = stage.neighbour(step_of(part));
  const Phase phase = phase_of(part);
  const Buffer& buffer = e_.at(tensor.buffer);
  const std::string name = buffer.name;
  e_.wait(StreamRole::send, phase, name + ".made");
  e_.transfer(StreamRole::send, phase, link_from(stage.index, step_of(part), stage.count),
              to - stage.index, CollectiveKind::send,
              {.buffer = tensor.buffer,
               .dtype = buffer.dtype,
               .shape = {buffer.size.value / size_of(buffer.dtype)}});
  if (tensor.releases) e_.release(StreamRole::send, phase, tensor.buffer);
  e_.record(StreamRole::send, phase, name + ".sent");
}

/// On compute. The instance of a tensor that its transfer releases may still be on its way.
void MicrobatchSchedule::acquire(Phase phase, BufferId id) {
  if (const Crossing* sent = crossing(sent_, id); sent != nullptr && sent->releases)
    e_.wait(StreamRole::compute, phase, e_.at(id).name + ".sent");
  e_.acquire(StreamRole::compute, phase, id);
}

void MicrobatchSchedule::release(Phase phase, BufferId id) {
  if (crossing(sent_, id) != nullptr) e_.wait(StreamRole::compute, phase, e_.at(id).name + ".sent");
  e_.release(StreamRole::compute, phase, id);
  if (crossing(received_, id) != nullptr)
    e_.record(StreamRole::compute, phase, e_.at(id).name + ".read");
}

}  // namespace mfsdp::schedule
