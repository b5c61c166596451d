// The parts of a model before and after Megatron-Core's layers: embedding, final norm, head, loss.
//
//   loss, fused      Transformer Engine's: two kernels, which write the gradient over the logits
//                    (releases until July 2026; later ones keep it in fp32 beside them)
//   loss, not fused  the vocabulary-parallel one: logits in fp32; all steps work in place
//   tensor parallel  each rank has a part of the ids: other ids' rows are zero and all ranks' are
//                    summed. The loss gathers 12 bytes a token, or sums three numbers of each. The
//                    head is Megatron's own linear layer, which gathers rows into a buffer that stays
#pragma once

#include <optional>

#include "sim/engines/mcore_rows.hpp"
#include "sim/engines/te_modules.hpp"

namespace mfsdp {

enum class VocabularyLoss { fused, not_fused };

class McoreEnds {
 public:
  /// `config`: with the model of one rank.
  McoreEnds(StepBuilder& step, const PlanConfig& config, TeModules& modules, McoreRows& rows,
            const WeightHooks& hooks, VocabularyLoss loss)
      : step_(step),
        config_(config),
        sizes_(llama_sizes(config)),
        modules_(modules),
        rows_(rows),
        hooks_(hooks),
        kind_(loss) {}

  /// Allocates tokens and positions of a microbatch for the embedding, labels and masks for the head.
  /// The host copies them anew each time.
  void keep_inputs(bool has_embedding, bool has_head);
  /// Returns the first layer's input.
  [[nodiscard]] Tensor embed(const McoreWeights& weights);
  /// From the last layer's output, which stays allocated, to the loss.
  void forward(const McoreWeights& weights);
  /// Returns the gradient of the last layer's output, `state`, which it frees.
  [[nodiscard]] Tensor backward(const McoreWeights& weights, Tensor state);
  /// Frees `state`, the gradient of the first layer's input.
  void embedding_backward(const McoreWeights& weights, Tensor state);

 private:
  /// The sum of the rows and those of their positions. Frees `rows`.
  [[nodiscard]] Tensor add_positions(std::size_t table, Tensor rows);
  /// The rows of all ids, of which `rows` has those of the rank's; frees them.
  [[nodiscard]] Tensor summed_over_ids(const McoreWeights& weights, Tensor rows);
  [[nodiscard]] Tensor by_position(Tensor rows);
  /// Gathers rows for the head into the buffer that stays, on that stream.
  void gather_rows(StreamRole stream);
  void fused_loss();
  void loss_in_fp32();
  [[nodiscard]] Tensor loss_backward();

  StepBuilder& step_;
  const PlanConfig& config_;
  LlamaSizes sizes_;
  TeModules& modules_;
  McoreRows& rows_;
  const WeightHooks& hooks_;
  VocabularyLoss kind_;
  bool has_gathered_ = false;
  TeNorm normed_{};
  Tensor logits_{};         ///< or the gradient in their place
  Tensor probabilities_{};  ///< fp32, where the loss is not fused
  std::optional<Tensor> targets_{};
  Tensor loss_{};
};

}  // namespace mfsdp
