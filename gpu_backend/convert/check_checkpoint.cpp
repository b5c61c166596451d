#include "gpu_backend/convert/check_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "core/formats/safetensors.hpp"
#include "gpu_backend/convert/data_file.hpp"
#include "gpu_backend/convert/element_values.hpp"
#include "gpu_backend/convert/model_names.hpp"
#include "gpu_backend/convert/tensor_names.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kPieceBytes = 8 << 20;

class CheckpointCheck {
 public:
  CheckpointCheck(const Checkpoint& checkpoint, const ReadProgress& progress)
      : checkpoint_(checkpoint), named_(name_tensors(checkpoint)), progress_(progress) {}

  void check_files() {
    for (const Error& problem : checkpoint_.problems)
      add(CheckpointFlaw::file, problem.where, problem.what);
    check_shared_bytes();
  }

  void check_boxes() {
    for (const CheckpointTensor& tensor : checkpoint_.tensors) {
      std::int64_t held = 0;
      for (const StoredBox& one : tensor.boxes) held += one.box.elements();
      if (const auto overlap = find_overlap(tensor))
        add(CheckpointFlaw::overlap, tensor.name,
            fmt::format("two boxes hold its element {}", shown_shape(*overlap)));
      else if (held < tensor.elements())
        add(CheckpointFlaw::hole, tensor.name,
            fmt::format("boxes hold {} of its {} elements", held, tensor.elements()));
    }
  }

  /// Parts whose numbers skip: "layers.0", "layers.2".
  void check_numbers() {
    std::map<std::string, std::set<std::int64_t>> numbers;
    for (const NamedTensor& named : named_) {
      if (!named.is_weight()) continue;
      for (std::size_t at = 0; at < named.parameter.size();) {
        const std::size_t end = std::min(named.parameter.find('.', at), named.parameter.size());
        std::int64_t number = 0;
        const char* const first = named.parameter.data() + at;
        const char* const last = named.parameter.data() + end;
        const auto [stop, code] = std::from_chars(first, last, number);
        if (code == std::errc() && stop == last && at > 0)
          numbers[named.parameter.substr(0, at - 1)].insert(number);
        at = end + 1;
      }
    }
    for (const auto& [parent, held] : numbers)
      if (*held.begin() != 0 || *held.rbegin() != std::ssize(held) - 1)
        add(CheckpointFlaw::layers, parent,
            fmt::format("has {} of the numbers 0 to {}", held.size(), *held.rbegin()));
  }

  /// Each state has its weight's shape, and all weights have the same states.
  void check_states() {
    std::map<std::string, const CheckpointTensor*> weights;
    std::map<std::string, std::set<std::string>> parameters_of_state;
    for (const NamedTensor& named : named_)
      if (named.is_weight()) weights[named.parameter] = named.tensor;
    for (const NamedTensor& named : named_) {
      if (named.state.empty()) continue;
      parameters_of_state[named.state].insert(named.parameter);
      const auto weight = weights.find(named.parameter);
      if (weight == weights.end()) {
        if (!weights.empty())
          add(CheckpointFlaw::moments, named.tensor->name, "is a state of no weight");
      } else if (named.state.starts_with("exp_avg") &&
                 named.tensor->shape != weight->second->shape) {
        add(CheckpointFlaw::moments, named.tensor->name,
            fmt::format("has shape {}, its weight {}", shown_shape(named.tensor->shape),
                        shown_shape(weight->second->shape)));
      }
    }
    const std::set<std::string>* all = nullptr;
    for (const char* state : {"exp_avg", "exp_avg_sq", "step"}) {
      const auto found = parameters_of_state.find(state);
      if (found == parameters_of_state.end()) continue;
      if (all == nullptr) all = &found->second;
      if (found->second != *all)
        add(CheckpointFlaw::moments, state,
            fmt::format("{} weights have it, {} have exp_avg", found->second.size(), all->size()));
    }
    if (all == nullptr) return;
    for (const auto& [parameter, tensor] : weights)
      if (!all->contains(parameter))
        add(CheckpointFlaw::moments, tensor->name, "has no moments; other weights have them");
  }

  Result<void> check_elements() {
    std::map<std::int64_t, std::string> steps;
    for (const NamedTensor& named : named_) MFSDP_TRY(read_tensor(named, steps));
    if (!moments_.empty() && *std::ranges::max_element(moments_) == 0 &&
        checkpoint_.step.value_or(0) > 0)
      add(CheckpointFlaw::moments, "exp_avg",
          fmt::format("all moments are zero after {} steps", *checkpoint_.step));
    if (checkpoint_.step) steps.try_emplace(*checkpoint_.step, "the checkpoint");
    if (steps.size() > 1)
      add(CheckpointFlaw::step, steps.rbegin()->second,
          fmt::format("is of step {}; {} is of step {}", steps.rbegin()->first,
                      steps.begin()->second, steps.begin()->first));
    return {};
  }

  void check_model(const Model& model) {
    std::map<std::string, std::vector<std::int64_t>> expected = hf_shapes_of(model);
    const auto held = to_hf_names(named_, model);
    if (!held) {
      add(CheckpointFlaw::model, held.error().where, held.error().what);
      return;
    }
    for (const MappedTensor& tensor : *held) {
      if (!tensor.state.empty()) continue;  // check_states() compares it with its weight
      const auto found = expected.find(tensor.name);
      if (found == expected.end()) {
        const bool is_tied = tensor.name == "lm_head.weight" && model.shape.tied_embeddings;
        add(is_tied ? CheckpointFlaw::tied : CheckpointFlaw::model, tensor.name,
            is_tied ? "is there, though the model's head is its embedding"
                    : "is no parameter of the model");
        continue;
      }
      if (found->second != tensor.shape)
        add(CheckpointFlaw::model, tensor.name,
            fmt::format("has shape {}, the model's has {}", shown_shape(tensor.shape),
                        shown_shape(found->second)));
      expected.erase(found);
    }
    for (const auto& [name, shape] : expected)
      add(CheckpointFlaw::model, name, "is missing; the model has it");
  }

  [[nodiscard]] std::vector<CheckpointFinding> take() {
    std::ranges::stable_sort(findings_, {}, &CheckpointFinding::flaw);
    return std::move(findings_);
  }

 private:
  void add(CheckpointFlaw flaw, std::string place, std::string what) {
    findings_.push_back({.flaw = flaw, .place = std::move(place), .what = std::move(what)});
  }

  /// Boxes that lie in the same bytes of a file.
  void check_shared_bytes() {
    struct Bytes {
      std::size_t file;
      std::uint64_t begin;
      std::uint64_t end;
      const CheckpointTensor* tensor;
    };
    std::vector<Bytes> all;
    for (const CheckpointTensor& tensor : checkpoint_.tensors)
      for (const StoredBox& one : tensor.boxes) {
        const auto size = static_cast<std::uint64_t>(one.box.elements() * bytes_of(*tensor.type));
        all.push_back(
            {.file = one.file, .begin = one.offset, .end = one.offset + size, .tensor = &tensor});
      }
    std::ranges::sort(all, {}, [](const Bytes& one) { return std::tuple(one.file, one.begin); });
    for (std::size_t i = 1; i < all.size(); ++i)
      if (all[i].file == all[i - 1].file && all[i].begin < all[i - 1].end &&
          checkpoint_.format != CheckpointFormat::torch)  // storages may be shared there
        add(CheckpointFlaw::overlap, all[i].tensor->name,
            fmt::format("shares bytes with {}", shown_name(all[i - 1].tensor->name)));
  }

  /// An element that two boxes hold. Sorted by the first dim, only neighbours in it are compared.
  [[nodiscard]] static std::optional<std::vector<std::int64_t>> find_overlap(
      const CheckpointTensor& tensor) {
    std::vector<const TensorBox*> boxes;
    for (const StoredBox& one : tensor.boxes) boxes.push_back(&one.box);
    const auto begin = [](const TensorBox* box) {
      return box->offsets.empty() ? 0 : box->offsets.front();
    };
    std::ranges::sort(boxes, {}, begin);
    for (std::size_t i = 0; i < boxes.size(); ++i)
      for (std::size_t j = i + 1; j < boxes.size(); ++j) {
        if (!boxes[i]->offsets.empty() &&
            begin(boxes[j]) >= boxes[i]->offsets.front() + boxes[i]->sizes.front())
          break;
        if (const auto common = common_box(*boxes[i], *boxes[j])) return common->offsets;
      }
    return std::nullopt;
  }

  Result<void> read_tensor(const NamedTensor& named, std::map<std::int64_t, std::string>& steps) {
    const CheckpointTensor& tensor = *named.tensor;
    if (!is_numeric(*tensor.type)) return {};
    const std::int64_t size = bytes_of(*tensor.type);
    std::int64_t not_finite = 0;
    double largest = 0;
    double last = 0;
    std::vector<std::byte> bytes;
    for (std::int64_t at = 0; at < tensor.elements();) {
      const std::int64_t count = std::min(kPieceBytes / size, tensor.elements() - at);
      bytes.assign(static_cast<std::size_t>(count * size), std::byte{0});
      MFSDP_TRY(reader_.read(tensor, at, bytes));
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        last = number_at(*tensor.type, bytes, i);
        if (!std::isfinite(last)) ++not_finite;
        largest = std::max(largest, std::fabs(last));
      }
      at += count;
      done_ += count * size;
      if (progress_) progress_(done_);
    }
    if (not_finite > 0)
      add(CheckpointFlaw::finite, tensor.name,
          fmt::format("{} of its {} elements are NaN or infinite", not_finite, tensor.elements()));
    if (named.state == "step" && tensor.elements() == 1 && std::fabs(last) < 1e15)
      steps.try_emplace(static_cast<std::int64_t>(last), tensor.name);
    if (named.state.starts_with("exp_avg")) moments_.push_back(largest);
    return {};
  }

  const Checkpoint& checkpoint_;
  std::vector<NamedTensor> named_;
  TensorReader reader_{checkpoint_};
  const ReadProgress& progress_;
  std::int64_t done_ = 0;
  std::vector<double> moments_;  ///< the largest of each
  std::vector<CheckpointFinding> findings_;
};

}  // namespace

Result<std::vector<CheckpointFinding>> check_checkpoint(const Checkpoint& checkpoint,
                                                        const std::optional<Model>& model,
                                                        bool reads, const ReadProgress& progress) {
  CheckpointCheck check(checkpoint, progress);
  check.check_files();
  check.check_boxes();
  check.check_numbers();
  check.check_states();
  if (model) check.check_model(*model);
  if (reads) MFSDP_TRY(check.check_elements());
  return check.take();
}

}  // namespace mfsdp
