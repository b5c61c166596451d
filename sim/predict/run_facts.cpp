#include "sim/predict/run_facts.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace mfsdp {
namespace {

constexpr const char* kClusterTopic = "cluster";
constexpr const char* kSimulationTopic = "simulation";

std::string slow_parts(const Cluster& cluster) {
  std::string text;
  for (const SlowPart& part : cluster.slow)
    text += fmt::format("{}node {}{} x {}", text.empty() ? "" : ", ", part.node,
                        part.nic ? fmt::format(" NIC {}", *part.nic) : "", part.fraction);
  return text;
}

}  // namespace

Facts cluster_facts(const Cluster& cluster) {
  const Gpu& gpu = cluster.gpu;
  Facts facts;
  const auto add = [&](std::string name, FactValue value) {
    facts.push_back({.topic = kClusterTopic, .name = std::move(name), .value = std::move(value)});
  };
  add("bf16_tflops", gpu.bf16);
  add("fp32_tflops", gpu.fp32);
  add("sms", gpu.sms);
  add("gemm_scale", gpu.gemm_scale);
  add("attention_scale", gpu.attention_scale);
  if (gpu.power) add("power_limit_w", gpu.power->own);
  add("launch_ns", gpu.launch.value);
  add("memory_gb_per_s", gpu.memory_bandwidth);
  add("copy_fraction", gpu.copy_fraction);
  add("host_gb_per_s", gpu.host_bandwidth);
  add("runtime_bytes", gpu.runtime.value);
  add("first_communicator_bytes", gpu.first_communicator.value);
  add("communicator_bytes", gpu.communicator.value);
  add("link", std::string(to_string(gpu.link)));
  add("link_gb_per_s", gpu.link_bandwidth);
  add("link_efficiency", gpu.link_efficiency);
  if (gpu.per_peer_bandwidth) add("per_peer_gb_per_s", *gpu.per_peer_bandwidth);
  add("collective_sms", gpu.collective_sms);
  add("domain", cluster.domain);
  add("nics_per_node", cluster.nics_per_node);
  add("nic_gb_per_s", cluster.nic_bandwidth);
  add("nic_latency_ns", cluster.nic_latency.value);
  add("fabric", std::string(cluster.fabric == Fabric::rail ? "rail" : "fat_tree"));
  if (cluster.nodes_per_leaf) add("nodes_per_leaf", *cluster.nodes_per_leaf);
  add("oversubscription", cluster.oversubscription);
  add("switch_latency_ns", cluster.switch_latency.value);
  add("simple_only", cluster.simple_only);
  if (!cluster.slow.empty()) add("slow_parts", slow_parts(cluster));
  return facts;
}

Facts variation_facts(const RankVariation& variation) {
  Facts facts;
  const auto add = [&](std::string name, FactValue value) {
    facts.push_back(
        {.topic = kSimulationTopic, .name = std::move(name), .value = std::move(value)});
  };
  if (variation.jitter.num > 0) {
    add("jitter", variation.jitter.value());
    add("seed", static_cast<std::int64_t>(variation.seed));
  }
  std::string slow;
  for (const SlowRank& rank : variation.slow)
    slow += fmt::format("{}{} x {}", slow.empty() ? "" : ", ", rank.rank, rank.factor.value());
  if (!slow.empty()) add("slow_ranks", std::move(slow));
  if (variation.by_rank) add("by_rank", true);
  return facts;
}

Facts routing_facts(const RoutingReport& routing) {
  Facts facts;
  const auto add = [&](std::string name, FactValue value) {
    facts.push_back(
        {.topic = kSimulationTopic, .name = std::move(name), .value = std::move(value)});
  };
  add("routing", routing.routing);
  add("routing_imbalance", routing.imbalance);
  if (!routing.room) return facts;
  add("routing_room_holds", routing.room->holds);
  add("routing_least_capacity_factor", routing.room->least_factor.value());
  return facts;
}

}  // namespace mfsdp
