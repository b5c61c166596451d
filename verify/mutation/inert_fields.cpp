#include "verify/mutation/inert_fields.hpp"

#include <algorithm>
#include <array>

namespace mfsdp {
namespace {

// First labels for readers, then fields that are free within bounds that the proofs check.
constexpr std::array kInert{
    InertField{"meta*", "about the plan, no part of it: not hashed"},
    InertField{"*.ops[]*.name", "a label: timelines and messages show it"},
    InertField{"*.segments[].name", "a label"},
    InertField{"buffers[]*.name", "a label; what a buffer is for is in holds and in its ops"},
    InertField{"communicators[].purpose", "a label"},
    InertField{"events[].name", "a label"},
    InertField{"pools[].name", "a label"},
    InertField{"*.passes[].name", "a label"},
    InertField{"streams[]{*}.role", "a label where streams are not found by it: order is proved"},
    InertField{"units[]*.name", "a label"},
    InertField{"classes[]*.role", "a label of the ranks that run the plan"},
    InertField{"*.kernel{*.flops", "not stated (0), or what the attributes come to"},
    InertField{"buffers[]*.category", "for accounts of memory"},
    InertField{"pools[].lower_bound", "for reports: how near to its least a pool is"},
    InertField{"config.allocator", "how offsets were found: the proofs see the offsets"},
    InertField{"config.prefetch", "how the order was made: the proofs see the order"},
    InertField{"config.schedule", "how the order was made: the proofs see the order"},
    InertField{"config.virtual_stages", "how the order was made: the proofs see the order"},
    InertField{"config.microbatch_group", "how the order was made: the proofs see the order"},
    InertField{"config.grad_slots", "how the order was made: the proofs see the order"},
    InertField{"config.keep_gathered", "how the order was made: the proofs see the order"},
    InertField{"config.placement", "how the order was made: the proofs see the order"},
    InertField{"config.gather", "how pools were registered: the proofs see pools and transports"},
    InertField{"config.reduce", "how pools were registered: the proofs see pools and transports"},
    InertField{"communicators[].transport", "of those that use no registered memory"},
    InertField{"pools[].registered", "who may touch it: what its communicator needs is proved"},
    InertField{"buffers[].slot_class", "how offsets were found: the proofs see the offsets"},
    InertField{"groups[].chunk", "that shards are multiples of it is checked: of a part too"},
    InertField{"buffers[].unit", "for accounts of memory by unit"},
    InertField{"*.ops[]{*}.unit", "for accounts of time by unit; of updates it is checked"},
    InertField{"*.ops[]{*}.group", "a label; of what moves parameters and gradients it is checked"},
    InertField{"*.ops[]{*}.phase", "for accounts of time; of what is computed again it is checked"},
    InertField{"*.ops[]{*}.id", "a name by number: references to an op are checked"},
    InertField{"events[].id", "a name by number"},
    InertField{"*.ops[]{host_wait}.stream", "the host waits, whatever the stream"},
    InertField{"*.attributes[]{\"bytes\"}.value", "for prices: nothing is computed from it"},
    InertField{"*.operands[]{workspace}.shape[]", "as large as the kernel needs at least"},
    InertField{"pools[].height", "as high as its buffers reach at least"},
    InertField{"*.operands[]{*}", "operands are found by their roles: their order is free"},
    InertField{"groups[].parameters[]{*}", "parameters lie at their offsets: their order is free"},
    InertField{"streams[]{*}", "streams are found by their roles: their order is free"},
    InertField{"*.segments[].ops[]{*}", "ops are free to change places where nothing orders them"},
    InertField{"*.passes[].ops[]{*}", "ops are free to change places where nothing orders them"},
    InertField{"*.passes[]", "found by id: the order is free"},
    InertField{"classes[]{*}", "found by their places: the order is free"},
    InertField{"*.lag", "of what has one instance: instances and microbatches are proved"},
    InertField{"*.lag_step", "as a lag: instances and microbatches are proved"},
    InertField{"*.bindings[]", "a record that is named twice is waited for once"},
    InertField{"*.collective{*}.communicator", "of the same ranks; their order is proved"},
    InertField{"*.ops[]{copy}.stream", "of whichever stream: order and races are proved"},
    InertField{"*.ops[]{collective}.stream", "of whichever stream: order and races are proved"},
    InertField{"*.operands[]{padding}.offset", "padding is cleared in any order"},
    InertField{"*.operands[]{d_normed}.access", "its additional output is not read, or proved"},
    InertField{"*.operands[]{d_product}.access", "its additional output is not read, or proved"},
    InertField{"*.copy{*}.*put{*}.shape[]", "a copy moves elements: their number is checked"},
    InertField{"*.collective{all_to_all}.*put{*}.shape[]",
               "the number of elements of each rank's block is checked"},
    InertField{"*.collective{reduce_scatter}.output{output}.shape[]",
               "the number of elements of each rank's part is checked"},
    InertField{"*.collective{recv}.output{*}.shape*", "the number of elements is checked"},
    InertField{"*.collective{send}.input{*}.shape*", "the number of elements is checked"},
    InertField{"*.kernel{norm_partial}.operands[]{output}.offset",
               "parts of the norm are free to change places"},
    InertField{"events[].instances", "more than needed are harmless: what waits get is proved"},
    InertField{"*.ops[]{collective}.body", "parts of the norm are free to change places"},
    InertField{"*.collective{recv}.peer.step", "parts of the norm are free to change places"},
    InertField{"*.kernel{cast}.operands[]{*}.shape[]",
               "a cast goes element by element: their number is checked"},
    InertField{"buffers[]", "found by id: the order is free"},
    InertField{"communicators[]", "found by id: the order is free"},
    InertField{"communicators[].id", "a name by number; who takes part in what is proved"},
    InertField{"events[]", "found by id: the order is free"},
    InertField{"groups[]", "found by id: the order is free"},
    InertField{"groups[]{*}", "found by id: the order is free"},
    InertField{"plans[]", "found by name: the order is free"},
    InertField{"*.ops[]{record}.stream", "of whichever stream: order and races are proved"},
    InertField{"*.ops[]{release}.stream", "of whichever stream: order and races are proved"},
    InertField{"*.record.event", "of whichever event: what waits get is proved"},
    InertField{"*.ops[]{record}.body.record", "of whichever event: what waits get is proved"},
    InertField{"*.operands[]{row_sums}.buffer", "bytes that are free then: races are proved"},
    InertField{"*.operands[]{rstd}.buffer", "bytes that are free then: races are proved"},
    InertField{"*.operands[]{mean}.buffer", "bytes that are free then: races are proved"},
    InertField{"units[]{*}", "found by id and position: the order is free"},
    InertField{"pools[]", "found by id; one without buffers may be missing"},
    InertField{"groups[].reduce[]", "a sum over axes in any order"},
    InertField{"groups[].reduce", "of a group that does not train: nothing is summed"},
    InertField{"buffers[].pool", "bytes that are free there then: lifetimes and races are proved"},
    InertField{"pools[].alignment", "where buffers lie is proved"},
    InertField{"config.model.max_seq_len", "a limit of seq_len"},
    InertField{"config.logits_chunk", "how the head was cut: the proofs see the cuts"},
    InertField{"config.recompute{*}.full_blocks", "how the order was made: the proofs see it"},
    InertField{"config.recompute{*}.kind", "how the order was made: the proofs see it"},
    InertField{"config.layout", "how groups were laid out: the proofs see the layouts"},
    InertField{"config.strategy", "of ranks that share no parameters: placements are proved"},
    InertField{"config.frozen[]", "a set of parts of names: twice, or in any order"},
    InertField{"config.no_decay[]", "a set of parts of names: twice, or in any order"},
    InertField{"buffers[].size", "as large as what its operands reach at least"},
    InertField{"buffers[].offset", "bytes that are free then: lifetimes and races are proved"},
    InertField{"buffers[].holds", "of gathered weights a label: what is gathered is followed"},
    InertField{"buffers[].holds{*}.groups[]", "groups lie at their offsets: their order is free"},
    InertField{"streams[]{*}.id", "a name by number"},
    InertField{"*.ops[]{acquire}.body", "buffers begin in any order: lifetimes are proved"},
    InertField{"*.ops[]{release}.body.release", "buffers end in any order: lifetimes are proved"},
    InertField{"*.ops[]{record}.body", "of whichever event: what waits get is proved"},
    InertField{"*.ops[]{wait}.body", "for whichever event: order and races are proved"},
    InertField{"*.ops[]{wait}.body.wait", "for whichever event: order and races are proved"},
    InertField{"*.ops[]{wait}.stream", "of whichever stream: order and races are proved"},
    InertField{"*.kernel{*}.operands", "ops are free to change places where nothing orders them"},
    InertField{"*.operands[]{*}.strides", "rows that follow one another may go without"},
    InertField{"*.operands[]{workspace}.offset", "bytes that are free then: races are proved"},
    InertField{.field = "config.loss_scale.*",
               .reason = "the initial loss scale is an input",
               .is_input = true},
    InertField{.field = "config.loss_scale",
               .reason = "the initial loss scale is an input",
               .is_input = true},
    InertField{.field = "config.model.local_rope_theta*",
               .reason = "the model that is trained: another theta is another one",
               .is_input = true},
    InertField{.field = "config.model.rope_scaling*",
               .reason = "the model that is trained: another scaling is another one",
               .is_input = true},
    InertField{.field = "config.model.rope_theta*",
               .reason = "the model that is trained: another theta is another one",
               .is_input = true},
};

bool matches(std::string_view pattern, std::string_view text) {
  const std::size_t hub = pattern.find('*');
  if (hub == std::string_view::npos) return pattern == text;
  const std::string_view head = pattern.substr(0, hub);
  const std::string_view rest = pattern.substr(hub + 1);
  if (!text.starts_with(head)) return false;
  for (std::size_t at = head.size(); at <= text.size(); ++at)
    if (matches(rest, text.substr(at))) return true;
  return false;
}

}  // namespace

std::span<const InertField> inert_fields() { return kInert; }

const InertField* find_inert(std::string_view field) {
  // Each class of a job has lists of its own.
  if (const std::size_t end = field.find("}.");
      field.starts_with("classes[]{") && end < field.size())
    if (const InertField* of_class = find_inert(field.substr(end + 2))) return of_class;
  const auto* const found = std::ranges::find_if(
      kInert, [&](const InertField& inert) { return matches(inert.field, field); });
  return found == kInert.end() ? nullptr : &*found;
}

}  // namespace mfsdp
