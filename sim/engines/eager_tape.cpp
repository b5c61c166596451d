#include "sim/engines/eager_tape.hpp"

#include <limits>
#include <map>
#include <utility>

namespace mfsdp {

EagerTape::Ref EagerTape::make(std::string_view name, std::int64_t bytes, Category category) {
  return adopt(step_.allocate(name, bytes, category));
}

std::shared_ptr<EagerTape::Node> EagerTape::leaf_node(Sink sink) {
  auto node = std::make_shared<Node>();
  node->sequence = std::numeric_limits<std::uint64_t>::max();  // gradients are stored at once
  node->sink = std::move(sink);
  return node;
}

EagerTape::Value EagerTape::leaf(Ref ref, std::int64_t bytes, Sink sink) {
  return {.ref = std::move(ref), .bytes = bytes, .node = leaf_node(std::move(sink))};
}

void EagerTape::save(const Ref& ref, Saved& saved) {
  if (recomputing_) {
    Frame& frame = *frame_;
    if (const auto slot = frame.slots[frame.next].lock()) slot->ref = ref;
    if (++frame.next == frame.slots.size()) throw StopRecomputation{};
    return;
  }
  auto slot = std::make_shared<Slot>();
  if (frame_) {
    slot->frame = frame_;
    frame_->slots.push_back(slot);
  } else {
    slot->ref = ref;
  }
  saved.push_back(std::move(slot));
}

EagerTape::Value EagerTape::output(Ref ref, std::int64_t bytes,
                                   std::vector<std::shared_ptr<Node>> inputs, Saved saved,
                                   Backward backward) {
  if (recomputing_) return {.ref = std::move(ref), .bytes = bytes};
  auto node = std::make_shared<Node>();
  node->sequence = ++sequence_;
  node->inputs = std::move(inputs);
  node->saved = std::move(saved);
  node->backward = std::move(backward);
  return {.ref = std::move(ref), .bytes = bytes, .node = std::move(node)};
}

/// Each part hands its gradient to the operator, which runs when all of them are there.
std::vector<EagerTape::Value> EagerTape::outputs(const std::vector<Part>& parts,
                                                 std::vector<std::shared_ptr<Node>> inputs,
                                                 Saved saved, PartsBackward backward) {
  const auto gradients = std::make_shared<Refs>(parts.size());
  const Value whole = output(nullptr, 0, std::move(inputs), std::move(saved),
                             [gradients, backward = std::move(backward)](const Ref&, Refs kept) {
                               return backward(std::move(*gradients), std::move(kept));
                             });
  std::vector<Value> values;
  for (std::size_t i = 0; i < parts.size(); ++i)
    values.push_back(output(parts[i].ref, parts[i].bytes, {whole.node}, {},
                            [gradients, i](Ref gradient, const Refs&) {
                              (*gradients)[i] = std::move(gradient);
                              return Refs{nullptr};
                            }));
  return values;
}

EagerTape::Value EagerTape::watch(Value value, std::function<void()> reached) {
  return output(std::move(value.ref), value.bytes, {std::move(value.node)}, {},
                [reached = std::move(reached)](Ref gradient, const Refs&) {
                  reached();
                  return Refs{std::move(gradient)};
                });
}

EagerTape::Value EagerTape::checkpoint(std::function<Value()> function, bool by_operator) {
  frame_ =
      std::make_shared<Frame>(Frame{.function = std::move(function), .by_operator = by_operator});
  products_ = 0;
  Value value = frame_->function();
  frame_.reset();
  return value;
}

bool EagerTape::caches_by_operator() const { return frame_ && frame_->by_operator; }

EagerTape::Refs EagerTape::cached(const std::function<Refs()>& compute) {
  if (recomputing_) {
    Refs refs = std::move(frame_->cached.front());
    frame_->cached.pop_front();
    return refs;
  }
  Refs refs = compute();
  frame_->cached.push_back(refs);
  return refs;
}

void EagerTape::recompute(Frame& frame) {
  frame.is_recomputed = true;
  frame.next = 0;
  recomputing_ = true;
  products_ = 0;
  const Phase phase = step_.phase();
  step_.set_phase(Phase::recompute);
  try {
    (void)frame.function();
  } catch (const StopRecomputation&) {
    // All saved tensors are there.
  }
  step_.set_phase(phase);
  recomputing_ = false;
}

EagerTape::Refs EagerTape::unpack(Saved saved) {
  Refs refs;
  for (const std::shared_ptr<Slot>& slot : saved) {
    if (slot->frame && !slot->frame->is_recomputed) {
      frame_ = slot->frame;
      recompute(*slot->frame);
      frame_.reset();
    }
    refs.push_back(std::move(slot->ref));
  }
  return refs;
}

void EagerTape::add(Ref& sum, Ref gradient, std::string_view name) {
  if (!gradient) return;  // of a part
  if (!sum) {
    sum = std::move(gradient);
    return;
  }
  const std::int64_t bytes = step_.bytes_of(sum->tensor());
  if (sum.use_count() > 1) {
    Ref total = make(name, bytes);
    kernel(KernelKind::accumulate, name, 3 * bytes);
    sum = std::move(total);
    return;
  }
  kernel(KernelKind::accumulate, name, 3 * bytes);
}

void EagerTape::backward(Value value, Ref gradient) {
  const std::function<void(Node&)> count = [&](Node& node) {
    if (node.is_counted) return;
    node.is_counted = true;
    for (const std::shared_ptr<Node>& input : node.inputs) {
      if (!input) continue;
      ++input->waits_for;
      count(*input);
    }
  };
  count(*value.node);
  // By sequence, and then in the order in which they became ready.
  std::multimap<std::uint64_t, std::shared_ptr<Node>> ready;
  value.node->gradient = std::move(gradient);
  value.ref.reset();
  ready.emplace(value.node->sequence, std::move(value.node));
  while (!ready.empty()) {
    const auto last = std::prev(ready.end());
    const std::shared_ptr<Node> node = std::move(last->second);
    ready.erase(last);
    if (node->sink) {
      node->sink(std::move(node->gradient));
      continue;
    }
    Refs gradients =
        node->backward(std::move(node->gradient), unpack(std::exchange(node->saved, {})));
    node->backward = {};
    const auto inputs = std::exchange(node->inputs, {});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i]) continue;
      add(inputs[i]->gradient, std::move(gradients[i]), "d_sum");
      gradients[i].reset();
      if (--inputs[i]->waits_for == 0) ready.emplace(inputs[i]->sequence, inputs[i]);
    }
  }
}

}  // namespace mfsdp
