#include "verify/proof/kernel_signatures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace mfsdp {
namespace {

using enum Takes;
using enum Element;
using Letter = std::pair<char, std::string_view>;
using Operands = OperandSignature;

constexpr std::array kRowsCols{Letter{'r', "rows"}, Letter{'c', "cols"}};
constexpr std::array kSizes{Letter{'m', "m"}, Letter{'n', "n"}, Letter{'k', "k"}};
constexpr std::array kHeads{Letter{'b', "batch"}, Letter{'d', "head_dim"}, Letter{'g', "kv_heads"},
                            Letter{'h', "heads"}, Letter{'s', "seq"}};

constexpr Operands kWorkspace{"workspace", scratch, bytes, ""};

constexpr std::array kForward{
    Operands{"input", read, compute, "mk"}, Operands{"weight", read, compute, "nk"},
    Operands{"output", write, compute, "mn"}, kWorkspace,
    Operands{"weight", read, compute, "n", true}};  // the bias
constexpr std::array kInputGradient{
    Operands{"d_output", read, compute, "mn"}, Operands{"weight", read, compute, "nk"},
    Operands{"d_input", write, compute, "mk"}, kWorkspace};
constexpr std::array kWeightGradient{
    Operands{"d_output", read, compute, "mn"}, Operands{"input", read, compute, "mk"},
    Operands{"weight_grad", sum, of_buffer, "nk"}, kWorkspace};

constexpr std::array kNormForward{Operands{"residual", read, compute, "rc"},
                                  Operands{"delta", read, compute, "rc", true},
                                  Operands{"weight", read, compute, "c"},
                                  Operands{"residual_out", write, compute, "rc", true},
                                  Operands{"normed", write, compute, "rc"},
                                  Operands{"rstd", write, statistic, "r"}};
constexpr std::array kNormBackward{
    Operands{"d_normed", read_or_update, compute, "rc"}, Operands{"input", read, compute, "rc"},
    Operands{"rstd", read, statistic, "r"},              Operands{"weight", read, compute, "c"},
    Operands{"d_residual", sum, compute, "rc"},          Operands{"partials", write, statistic, ""}};
constexpr std::array kNormWeightGrad{Operands{"partials", read, statistic, "rc"},
                                     Operands{"weight_grad", sum, of_buffer, "c"}};
constexpr std::array kBiasGrad{Operands{"d_output", read, compute, "rc"},
                               Operands{"partials", scratch, statistic, ""},
                               Operands{"weight_grad", sum, of_buffer, "c"}};

constexpr Operands kRopeTable{"rope_table", read, fp32, ""};
constexpr std::array kRopeForward{Operands{"query_key", update, compute, "rc"}, kRopeTable};
constexpr std::array kRopeBackward{Operands{"d_query_key", update, compute, "rc"}, kRopeTable};
constexpr std::array kQkForward{
    Operands{"query_key", read, compute, "rc"}, kRopeTable,
    Operands{"weight", read, compute, ""},      Operands{"weight", read, compute, ""},
    Operands{"output", write, compute, "rc"},   Operands{"rstd", write, statistic, ""}};
constexpr std::array kQkBackward{
    Operands{"d_query_key", update, compute, "rc"}, Operands{"query_key", read, compute, "rc"},
    kRopeTable,                                     Operands{"rstd", read, statistic, ""},
    Operands{"weight", read, compute, ""},          Operands{"weight", read, compute, ""},
    Operands{"partials", write, statistic, ""}};

constexpr std::array kAttentionForward{
    Operands{"query", read, compute, "bhsd"}, Operands{"key", read, compute, "bgsd"},
    Operands{"value", read, compute, "bgsd"}, Operands{"output", write, compute, "bhsd"},
    Operands{"log_sum_exp", write, statistic, "bhs"}};
constexpr std::array kAttentionBackward{
    Operands{"query", read, compute, "bhsd"},         Operands{"key", read, compute, "bgsd"},
    Operands{"value", read, compute, "bgsd"},         Operands{"output", read, compute, "bhsd"},
    Operands{"d_output", read, compute, "bhsd"},      Operands{"log_sum_exp", read, statistic, "bhs"},
    Operands{"d_qkv", write, compute, ""},            Operands{"d_query_sum", scratch, statistic, ""},
    Operands{"row_sums", scratch, statistic, "bhs"}, kWorkspace};

constexpr std::array kSwigluForward{Operands{"gate_up", read, compute, "2rc"},
                                    Operands{"product", write, compute, "rc"}};
constexpr std::array kSwigluBackward{Operands{"gate_up", update, compute, "2rc"},
                                     Operands{"d_product", read_or_update, compute, "rc"}};

constexpr std::array kTokenCopy{Operands{"input", read, int32, ""},
                                Operands{"output", write, int32, ""}};
constexpr std::array kEmbeddingForward{Operands{"tokens", read, int32, "r"},
                                       Operands{"weight", read, compute, ""},
                                       Operands{"output", write, compute, "rc"}};
constexpr std::array kEmbeddingBackward{
    Operands{"tokens", read, int32, "r"}, Operands{"d_output", read, compute, "rc"},
    Operands{"token_order", scratch, bytes, ""}, Operands{"weight_grad", sum, of_buffer, ""}};
constexpr std::array kCrossEntropy{Operands{"logits", update, compute, "rc"},
                                   Operands{"labels", read, int32, "r"},
                                   Operands{"loss_sums", sum, statistic, "2"}};
constexpr std::array kCrossEntropyLoss{Operands{"logits", read, compute, "rc"},
                                       Operands{"labels", read, int32, "r"},
                                       Operands{"loss_sums", sum, statistic, "2"}};

constexpr std::array kSum{Operands{"input", read, of_buffer, ""},
                          Operands{"output", sum, of_buffer, "", true},
                          Operands{"weight_grad", sum, of_buffer, "", true}};
constexpr std::array kZeroPadding{Operands{"padding", write, of_buffer, ""}};
constexpr std::array kLossFinish{Operands{"input", read, statistic, ""},
                                 Operands{"loss", write, fp32, "4"}};
constexpr std::array kNormPartial{Operands{"input", read, of_buffer, ""},
                                  Operands{"output", write, norm, "1"}};
constexpr std::array kNormFinish{Operands{"input", read, norm, ""},
                                 Operands{"loss", read, fp32, "4"},
                                 Operands{"norm", write, fp32, "4"}};
constexpr std::array kUpdate{Operands{"grad", read, of_buffer, ""},
                             Operands{"main_weight", update, main, "", true},
                             Operands{"exp_avg", update, statistic, "", true},
                             Operands{"exp_avg_sq", update, statistic, "", true},
                             Operands{"weight", sum, compute, ""},
                             Operands{"step_block", read, bytes, "64"},
                             Operands{"loss", read, fp32, "4", true},
                             Operands{"norm", read, fp32, "4", true}};

using K = KernelKind;
constexpr std::array kGemms{KernelSignature{K::gemm, 0, kSizes, kForward},
                            KernelSignature{K::gemm, 1, kSizes, kInputGradient},
                            KernelSignature{K::gemm, 2, kSizes, kWeightGradient}};
/// By kind. The gemm's stands for all three.
constexpr std::array kSignatures{
    KernelSignature{K::accumulate, 0, {}, kSum},
    KernelSignature{K::adamw, 0, {}, kUpdate},
    KernelSignature{K::attention_backward, 0, kHeads, kAttentionBackward},
    KernelSignature{K::attention_forward, 0, kHeads, kAttentionForward},
    KernelSignature{K::bias_grad, 0, kRowsCols, kBiasGrad},
    KernelSignature{K::cast, 0, {}, kSum},
    KernelSignature{K::cross_entropy, 0, kRowsCols, kCrossEntropy},
    KernelSignature{K::cross_entropy_loss, 0, kRowsCols, kCrossEntropyLoss},
    KernelSignature{K::embedding_backward, 0, kRowsCols, kEmbeddingBackward},
    KernelSignature{K::embedding_forward, 0, kRowsCols, kEmbeddingForward},
    KernelSignature{K::gemm, 0, kSizes, kForward},
    KernelSignature{K::loss_finish, 0, {}, kLossFinish},
    KernelSignature{K::norm_finish, 0, {}, kNormFinish},
    KernelSignature{K::norm_partial, 0, {}, kNormPartial},
    KernelSignature{K::norm_weight_grad, 0, kRowsCols, kNormWeightGrad},
    KernelSignature{K::qk_norm_rope_backward, 0, kRowsCols, kQkBackward},
    KernelSignature{K::qk_norm_rope_forward, 0, kRowsCols, kQkForward},
    KernelSignature{K::rms_norm_backward, 0, kRowsCols, kNormBackward},
    KernelSignature{K::rms_norm_forward, 0, kRowsCols, kNormForward},
    KernelSignature{K::rope_backward, 0, kRowsCols, kRopeBackward},
    KernelSignature{K::rope_forward, 0, kRowsCols, kRopeForward},
    KernelSignature{K::sgd, 0, {}, kUpdate},
    KernelSignature{K::swiglu_backward, 0, kRowsCols, kSwigluBackward},
    KernelSignature{K::swiglu_forward, 0, kRowsCols, kSwigluForward},
    KernelSignature{K::token_copy, 0, {}, kTokenCopy},
    KernelSignature{K::zero_padding, 0, {}, kZeroPadding}};
static_assert(kSignatures.size() == Names<KernelKind>::values.size() &&
              std::ranges::is_sorted(kSignatures, {}, &KernelSignature::kind));

bool allows(Takes takes, Access access) {
  switch (takes) {
    case read: return access == Access::read;
    case write: return access == Access::write;
    case update: return access == Access::read_write;
    case read_or_update: return access == Access::read || access == Access::read_write;
    case sum: return access == Access::write || access == Access::read_write;
    case scratch: return access == Access::scratch;
  }
  return false;
}

std::optional<DType> dtype_of(Element element, const PlanConfig& config) {
  switch (element) {
    case compute: return config.param_dtype;
    case statistic: return config.statistic_dtype();
    case main: return config.main_dtype;
    case norm: return config.exact_sums ? DType::int64 : DType::fp32;
    case fp32: return DType::fp32;
    case int32: return DType::int32;
    case bytes: return DType::uint8;
    case of_buffer: return std::nullopt;
  }
  return std::nullopt;
}

class SignatureCheck {
 public:
  SignatureCheck(const Kernel& kernel, const KernelSignature& signature, const PlanConfig& config)
      : kernel_(kernel), config_(config) {
    for (const auto& [letter, name] : signature.letters)
      sizes_[static_cast<std::size_t>(letter - 'a')] = kernel.attribute(name);
    check(signature);
  }

  std::string fault;

 private:
  /// Operands come in the signature's order, or in any other.
  void check(const KernelSignature& signature) {
    std::size_t taken = 0;
    std::size_t next = 0;
    for (std::size_t s = 0; s < signature.operands.size() && fault.empty(); ++s) {
      const OperandSignature& wanted = signature.operands[s];
      const Operand* found = nullptr;
      if (next < kernel_.operands.size() && kernel_.operands[next].role == wanted.role)
        found = &kernel_.operands[next++];
      else
        found = find(signature, s);
      if (found != nullptr) {
        ++taken;
        check(*found, wanted);
      } else if (!wanted.optional) {
        fault = fmt::format("has no operand '{}'", wanted.role);
      }
    }
    if (!fault.empty() || taken == kernel_.operands.size()) return;
    // Several of one role: more of them are judged like the first.
    for (const Operand& operand : kernel_.operands) {
      const auto wanted =
          std::ranges::find(signature.operands, operand.role, &OperandSignature::role);
      if (wanted == signature.operands.end())
        fault = fmt::format("has '{}', which it does not take", operand.role);
      else if (kernel_.kind == KernelKind::zero_padding)
        check(operand, *wanted);
      if (!fault.empty()) return;
    }
  }

  /// The operand of the signature's s-th entry: of several of one role, as many in.
  [[nodiscard]] const Operand* find(const KernelSignature& signature, std::size_t s) const {
    const std::string_view role = signature.operands[s].role;
    auto nth = std::ranges::count(signature.operands.first(s), role, &OperandSignature::role);
    for (const Operand& operand : kernel_.operands)
      if (operand.role == role && nth-- == 0) return &operand;
    return nullptr;
  }

  void check(const Operand& operand, const OperandSignature& wanted) {
    const auto dtype = dtype_of(wanted.element, config_);
    if (!allows(wanted.takes, operand.access))
      fault = fmt::format("has '{}' as {}", operand.role, to_string(operand.access));
    else if (dtype && operand.dtype != *dtype)
      fault = fmt::format("has '{}' in {}, expected {}", operand.role, to_string(operand.dtype),
                          to_string(*dtype));
    else if (wanted.element != of_buffer && (operand.scale || operand.extent))
      fault = fmt::format("has '{}' with a scalar, of which it has no form", operand.role);
    else if (!wanted.elements.empty() && operand.elements() != product(wanted.elements))
      fault = fmt::format("has '{}' of {} elements, expected {}", operand.role, operand.elements(),
                          product(wanted.elements));
  }

  [[nodiscard]] std::int64_t product(std::string_view factors) const {
    std::int64_t elements = 1;
    std::int64_t number = 0;
    for (const char factor : factors) {
      if (factor >= '0' && factor <= '9') {
        number = 10 * number + (factor - '0');
        continue;
      }
      elements = checked_mul(elements, sizes_[static_cast<std::size_t>(factor - 'a')]);
    }
    return number == 0 ? elements : checked_mul(elements, number);
  }

  const Kernel& kernel_;
  const PlanConfig& config_;
  std::array<std::int64_t, 26> sizes_{};
};

}  // namespace

const KernelSignature* signature_of(const Kernel& kernel) {
  if (kernel.kind != KernelKind::gemm) return &kSignatures[static_cast<std::size_t>(kernel.kind)];
  const std::int64_t variant = kernel.attribute("kind");
  return variant >= 0 && variant < std::ssize(kGemms) ? &kGemms[static_cast<std::size_t>(variant)]
                                                      : nullptr;
}

std::string signature_fault(const Kernel& kernel, const PlanConfig& config) {
  const KernelSignature* signature = signature_of(kernel);
  if (signature == nullptr)
    return fmt::format("is a gemm of kind {}, expected 0, 1 or 2", kernel.attribute("kind"));
  return SignatureCheck(kernel, *signature, config).fault;
}

}  // namespace mfsdp
