// Whether each kernel of a model's step reads the values that it is to read: of its own block, of
// its own microbatch, from their first row on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "verify/proof/values/model_binding.hpp"
#include "verify/proof/values/value_layouts.hpp"

namespace mfsdp {

/// A value. The owner of the host's data is the buffer that it was put into.
struct ValueKey {
  Value value = Value::unknown;
  std::uint32_t owner = 0;
  std::uint32_t microbatch = 0;  ///< counted from 1; of the host's data, how often it was filled
  ValueLayout layout = ValueLayout::whole;
  ValueForm form = ValueForm::whole;
  // Rings have these (ring_values.cpp); they are 0 in all other values.
  std::uint8_t shift = 0;   ///< the keys are of as many ranks before this one, around
  std::uint64_t steps = 0;  ///< by bit: what was made with the keys of as many ranks before

  friend bool operator==(const ValueKey&, const ValueKey&) = default;
};

/// Adds what was made with the keys of some ranks to what was made with those of others.
[[nodiscard]] constexpr bool adds_in_ring(KernelKind kind) {
  return kind == KernelKind::add_rows || kind == KernelKind::attention_merge;
}

/// The known contents of a cell.
struct ValueCell {
  std::uint32_t lifetime = kNone;  ///< of its buffer, in which it was written; kNone: not at all
  std::uint32_t writer = kNone;    ///< op index
  ValueKey key = {};
  std::int64_t place = 0;  ///< of its first byte in the value
};

struct ValueMemory {
  std::vector<ValueCell> cells;
  std::vector<std::uint32_t> lifetimes;  ///< by buffer: how often it was acquired
};

/// A value, or a part of one, in an operand that is sent or copied.
struct SentPart {
  std::int64_t begin = 0;  ///< bytes into the operand, or into each of its rows
  ValueKey key;
  std::int64_t place = 0;  ///< of its first byte in the value
};
/// The values of a whole operand.
struct SentValues {
  std::int64_t pitch = 0;       ///< bytes of its rows, where parts are columns; 0: they are not
  std::vector<SentPart> parts;  ///< ascending
};

class ModelValues {
 public:
  ModelValues(const UnrolledPlan& unrolled, const Layouts& layouts, const ValueCells& cells,
              ValueMemory& memory, FindingList& findings);

  /// The host fills the source of a copy.
  void fill(std::uint32_t instance);
  /// Checks the values that an instance reads, before it writes.
  void read(std::uint32_t instance);
  /// Notes the values that it makes, after its cells are written.
  void write(std::uint32_t instance);
  /// After all instances: sums over chunks are of all rows.
  void end();
  /// The values that the latest instance, a send, sends.
  [[nodiscard]] SentValues sent() const;
  /// The values that it receives, where it is a recv.
  void receive(const SentValues& values);

 private:
  struct Fills {
    std::uint32_t count = 0;
    std::int64_t step = 0;
  };

  /// Rows of a microbatch that chunks have added to a sum, by the first: one past the last.
  struct Summed {
    std::map<std::int64_t, std::int64_t> rows;
    std::uint32_t last = 0;  ///< the instance that added to it last
  };

  void read_step(const BoundStep& step);
  void add_rows();
  void add_once(const BoundStep& step);
  void find_owner(const BoundStep& step);
  void find_cast(const BoundStep& step);
  void check_fp8_block();
  // Largest magnitudes (amax_values.cpp).
  void check_kept_amax(const CellUse& use);
  void check_next_amax(const CellUse& use);
  void read_history(const Kernel& kernel);
  void write_history(const Kernel& kernel);
  [[nodiscard]] bool is_of_history(const Collective& collective) const;
  void read_reduced(const Collective& collective);
  void find_largest(const Collective& collective, const CellUse& input);
  void write_reduced(const CellUse& output);
  void check(const BoundStep& step, const BoundFlow& flow);
  void check_window();
  void check_outside(const CellUse& use);
  [[nodiscard]] bool follows_layouts() const {
    return unrolled_.program->config.mesh.size(kLayoutAxis) > 1;
  }
  void find_layouts(const BoundStep& step);
  void check_gradient(const BoundStep& step, ValueLayout layout);
  void exchange(const Collective& collective);
  [[nodiscard]] const char* expected_move(Value value, bool of_experts) const;
  void move_layout(const Collective& collective, const ValueKey& key);
  // Rings (ring_values.cpp).
  void find_ring_step();
  void keep_ring_step(Value value, ValueKey& key) const;
  [[nodiscard]] ValueKey passed_on(ValueKey key) const;
  [[nodiscard]] ValueKey completed(ValueKey key) const;
  [[nodiscard]] static std::string ring_words(const ValueKey& key);
  void read_sum(const Kernel& kernel);
  void write_sum(const Kernel& kernel);
  void gather_softmax(const Collective& collective, const CellUse& input);
  void copy_tokens(const Kernel& kernel);
  void check_step_block(const Kernel& kernel);
  void check_log_probs(const Copy& copy);
  void bring(const Copy& copy);
  [[nodiscard]] bool comes_from(const ValueKey& key, Port port) const;
  [[nodiscard]] SentValues values_in(const Operand& operand) const;
  void put_values(const Operand& operand, const SentValues& values);
  void put(const CellUse& use, const ValueKey& key, std::int64_t place);

  /// Null where the bytes of the operand are not known exactly.
  [[nodiscard]] const CellUse* use_of(const Operand* operand) const;
  /// The one value of all cells, from its first byte on, or unknown.
  [[nodiscard]] ValueKey whole(const CellUse& use) const;
  [[nodiscard]] std::int64_t step_of(std::uint32_t instance) const {
    return unrolled_.runs[unrolled_.instances[instance].run].step;
  }
  /// The step of the instance that runs, counted from 1.
  [[nodiscard]] std::uint32_t step_number() const {
    return static_cast<std::uint32_t>(step_of(now_)) + 1;
  }
  [[nodiscard]] ValueKey key_of(const OwnedValue& term, const ValueKey& base) const;
  /// The microbatch on which the instance that runs works, counted from 1 over all steps.
  [[nodiscard]] std::uint32_t worked_on() const;
  void report_mismatch(const std::string& what);
  [[nodiscard]] std::string in_words(const ValueKey& key) const;

  const UnrolledPlan& unrolled_;
  const ValueCells& cells_;
  ValueMemory& memory_;
  FindingList& findings_;
  ModelBinding binding_;
  std::vector<Fills> fills_;      ///< by buffer
  std::vector<char> complained_;  ///< by op
  std::optional<std::uint32_t> token_source_;
  std::uint32_t token_run_ = kNone;  ///< the first run of the repetition that took tokens last
  std::int64_t token_lag_ = 0;       ///< of the op that took them
  std::uint32_t microbatch_ = 0;     ///< whose tokens were taken last
  /// By the kernel that sums, of which there is one step in chunks, and microbatch.
  std::map<std::pair<KernelKind, std::uint32_t>, Summed> summed_;
  /// Other steps that were added to sums: by kernel, parameter, owner and microbatch.
  std::set<std::tuple<KernelKind, std::optional<ParameterRole>, std::uint32_t, std::uint32_t>>
      added_;
  // The instance that runs.
  std::uint32_t now_ = 0;
  ValueKey base_;                ///< its owner and microbatch; excused where these are unknown
  Value cast_ = Value::unknown;  ///< of which a cast is made, or the largest magnitude taken
  /// By cell of the history's first row: microbatches whose largest magnitude it has in this step.
  std::map<std::uint32_t, std::set<std::uint32_t>> amax_of_;
  std::uint32_t kept_until_ = 0;  ///< the last microbatch of which the history has them
  /// Largest magnitudes that the instance has read, by cell; a collective's are reduced.
  std::vector<ValueKey> amaxes_;
  std::vector<ValueKey> sums_;  ///< that a kernel of a ring makes
  std::int64_t first_row_ = 0;
  std::int64_t moved_from_ = 0;                     ///< byte of the value that a collective moves
  std::vector<ReadLayout> layouts_;                 ///< of what it reads, where they are followed
  ValueLayout made_ = ValueLayout::whole;           ///< of what it makes
  ValueLayout made_partials_ = ValueLayout::whole;  ///< likewise, of a norm's partial sums
};

}  // namespace mfsdp
