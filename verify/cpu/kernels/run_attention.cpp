#include "verify/cpu/kernels/attention.hpp"
#include "verify/cpu/kernels/check_positions.hpp"
#include "verify/cpu/kernels/head_groups.hpp"
#include "verify/cpu/kernels/key_columns.hpp"
#include "verify/cpu/kernels/ring.hpp"
#include "verify/cpu/kernels/run_kind.hpp"

namespace mfsdp::kernels {

template <>
Result<void> run_kind(const KernelRun<K::attention_forward>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_documents(run.kernel(), k.shape));
    attention_forward(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::attention_backward>& run) {
  return run([&](const auto& k) -> Result<void> {
    MFSDP_TRY(check_documents(run.kernel(), k.shape));
    attention_backward(k);
    return {};
  });
}

template <>
Result<void> run_kind(const KernelRun<K::attention_merge>& run) {
  return run([](const auto& k) { attention_merge(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::add_rows>& run) {
  return run([](const auto& k) { add_rows(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::sink_forward>& run) {
  return run([](const auto& k) { sink_forward(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::sink_backward>& run) {
  return run([](const auto& k) { sink_backward(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::split_heads>& run) {
  return run([](const auto& k) { split_heads(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::join_heads>& run) {
  return run([](const auto& k) { join_heads(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::take_keys>& run) {
  return run([](const auto& k) { take_keys(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::join_keys>& run) {
  return run([](const auto& k) { join_keys(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::join_key_parts>& run) {
  return run([](const auto& k) { join_key_parts(k); });
}

template <>
Result<void> run_kind(const KernelRun<K::split_key_parts>& run) {
  return run([](const auto& k) { split_key_parts(k); });
}

}  // namespace mfsdp::kernels
