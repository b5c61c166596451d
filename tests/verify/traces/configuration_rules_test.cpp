#include "verify/traces/configuration_rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace mfsdp::traces {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> rules_of(const std::vector<Finding>& findings) {
  std::vector<std::string> ids;
  for (const Finding& finding : findings) ids.push_back(finding.rule);
  return ids;
}

std::vector<std::string> broken(const std::string& text) {
  const auto list = read_configurations(text, "run");
  EXPECT_TRUE(list) << list.error().message();
  std::vector<std::string> ids;
  for (const Configuration& configuration : *list)
    for (std::string& id : rules_of(check_configuration(configuration))) ids.push_back(id);
  return ids;
}

/// Megatron-LM's own example for Llama-3-8B, shortened: obeys every rule.
const std::string kGood =
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
    "--no-gradient-accumulation-fusion --use-distributed-optimizer --overlap-grad-reduce "
    "--overlap-param-gather --use-nccl-ub --fsdp-manual-registration --fsdp-double-buffer "
    "--init-model-with-meta-device --ckpt-format fsdp_dtensor --optimizer adam --bf16 "
    "--tensor-model-parallel-size 1 --context-parallel-size 1 ";

/// The same for version 2, shortened.
const std::string kGood2 =
    "--use-megatron-fsdp --megatron-fsdp-version 2 --ckpt-format fsdp_dtensor "
    "--data-parallel-sharding-strategy optim_grads_params --no-gradient-accumulation-fusion ";

const std::string kBridge =
    R"("dist": {"use_megatron_fsdp": true}, "ddp": {"use_megatron_fsdp": true,
       "data_parallel_sharding_strategy": "optim_grads_params", "overlap_param_gather": true,
       "overlap_grad_reduce": true}, "optimizer": {"optimizer": "adam"})";

/// Cases for each rule: a configuration that breaks only this rule.
struct Case {
  std::string rule;
  std::string text;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> list{
      {"MF701",
       "--use-megatron-fsdp --data-parallel-sharding-strategy zero3 "
       "--ckpt-format fsdp_dtensor"},
      {"MF701", kGood + "--outer-dp-sharding-strategy optim_grads"},
      {"MF702", "{" + kBridge + R"(, "x": {"use_torch_fsdp2": true}})"},
      {"MF703", "--use-megatron-fsdp --no-gradient-accumulation-fusion"},
      {"MF703", "--use-distributed-optimizer --ckpt-format fsdp_dtensor"},
      {"MF703", "{" + kBridge + R"(, "checkpoint": {"save": "/x", "ckpt_format": "torch_dist"}})"},
      {"MF704", kGood + "--check-weight-hash-across-dp-replicas-interval 100"},
      {"MF705",
       "--use-megatron-fsdp --ckpt-format fsdp_dtensor --data-parallel-sharding-strategy "
       "optim --outer-dp-sharding-strategy optim --num-distributed-optimizer-instances 2"},
      {"MF706", kGood + "--outer-dp-sharding-strategy optim"},
      {"MF708", "--use-distributed-optimizer --overlap-param-gather"},
      {"MF708", R"({"ddp": {"overlap_param_gather": true, "overlap_grad_reduce": false}})"},
      {"MF709", "{" + kBridge + R"(, "x": {"use_tp_pp_dp_mapping": true}})"},
      {"MF710", "{" + kBridge + R"(, "x": {"fsdp_manual_registration": true}})"},
      {"MF712", kGood + "--ddp-average-in-collective"},
      {"MF713", "{" + kBridge + R"(, "x": {"reuse_grad_buf_for_mxfp8_param_ag": true}})"},
      {"MF714", "--use-megatron-fsdp --ckpt-format fsdp_dtensor --optimizer muon"},
      {"MF715", kGood + "--moe-single-grouped-weight"},
      {"MF716", kGood + "--hybrid-context-parallel"},
      {"MF717", "{" + kBridge + R"(, "x": {"use_distributed_optimizer": false}})"},
      {"MF718", "--use-megatron-fsdp --ckpt-format fsdp_dtensor --tensor-model-parallel-size 2"},
      {"MF719",
       "--use-megatron-fsdp --ckpt-format fsdp_dtensor --data-parallel-sharding-strategy "
       "optim_grads"},
      {"MF720", "--use-torch-fsdp2 --no-gradient-accumulation-fusion --fp16"},
      {"MF720", "--use-torch-fsdp2 --no-gradient-accumulation-fusion"},
      {"MF721", "--async-save --ckpt-format torch"},
      {"MF722", "--data-parallel-sharding-strategy optim"},
      {"MF722", R"({"ddp": {"use_megatron_fsdp": true}})"},
      {"MF723", kGood2 + "--use-distributed-optimizer"},
      {"MF723", "--use-megatron-fsdp-v2 --ckpt-format fsdp_dtensor --use-distributed-optimizer"},
      {"MF724", kGood + "--overlap-moe-expert-parallel-comm"},
      {"MF724",
       "--use-megatron-fsdp --ckpt-format fsdp_dtensor --overlap-moe-expert-parallel-comm "
       "--use-nccl-ub"},
      {"MF724",
       "--use-megatron-fsdp --ckpt-format fsdp_dtensor --overlap-moe-expert-parallel-comm "
       "--cuda-graph-impl local"},
      {"MF724",
       "--use-megatron-fsdp --ckpt-format fsdp_dtensor --overlap-moe-expert-parallel-comm "
       "--cuda-graph-impl local --cuda-graph-scope attn"},
      {"MF725", "--use-distributed-optimizer --use-precision-aware-optimizer --optimizer sgd"},
      {"MF725", "--use-precision-aware-optimizer"},
      {"MF726",
       "--use-megatron-fsdp-v2 --ckpt-format fsdp_dtensor --pipeline-model-parallel-size 2"},
      {"MF726",
       "--use-megatron-fsdp-v2 --ckpt-format fsdp_dtensor --data-parallel-sharding-strategy optim"},
      {"MF726", "--use-megatron-fsdp-v2 --ckpt-format fsdp_dtensor --calculate-per-token-loss"},
      {"MF726",
       "--use-megatron-fsdp-v2 --ckpt-format fsdp_dtensor --use-nccl-ub "
       "--disable-symmetric-registration"},
      {"MF726", kGood2 + "--use-nccl-ub"},
      {"MF726", kGood2 + "--gradient-accumulation-fusion"},
      {"MF726", kGood2 + "--tensor-model-parallel-size 2"},
      {"MF726", kGood2 + "--fp8-format hybrid"},
      {"MF726", kGood2 + "--suggested-communication-unit-size 400000000"},
      {"MF726", kGood2 + "--ddp-num-buckets 4"},
      {"MF726", kGood2 + "--cuda-graph-impl full_iteration"},
      {"MF726", kGood2 + "--cuda-graph-impl local --cuda-graph-scope full_iteration"},
      {"MF726", "--use-megatron-fsdp --megatron-fsdp-version 2 --ckpt-format fsdp_dtensor"},
      {"MF726",
       R"({"dist": {"use_megatron_fsdp": true}, "ddp": {"megatron_fsdp_version": 2,
           "data_parallel_sharding_strategy": "optim_grads_params",
           "megatron_fsdp_use_decoupled_grad": true}})"},
      {"MF727", "--cpu-offloading-num-layers 2 --recompute-granularity full"},
      {"MF727", "--cpu-offloading-num-layers 2 --recompute-activations"},
      {"MF727", R"({"model": {"cpu_offloading": true, "pipeline_model_parallel_size": 2}})"},
      {"MF727", "--cpu-offloading-num-layers 2 --cuda-graph-impl local"},
      {"MF728", "--overlap-grad-reduce --overlap-param-gather"},
      {"MF729", "{" + kBridge + R"(, "x": {"megatron_fsdp_version": 3}})"},
      {"MF730", "--ddp-num-buckets 4 --ddp-bucket-size 40000000"},
      {"MF730", R"({"ddp": {"num_buckets": 0}})"},
      {"MF731", "CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1} run " + kGood},
      {"MF731", "CUDA_DEVICE_MAX_CONNECTIONS=1 run " + kGood},
      {"MF731",
       "CUDA_DEVICE_MAX_CONNECTIONS=1 run --use-torch-fsdp2 "
       "--no-gradient-accumulation-fusion --untie-embeddings-and-output-weights"},
      {"MF732",
       "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:9,expandable_segments:True run " + kGood},
      {"MF733", "NCCL_DEBUG=WARN run " + kGood + "--create-all-gather-group"},
      {"MF734", "CUDA_LAUNCH_BLOCKING=1 run " + kGood},
      {"MF735", "TORCH_NCCL_BLOCKING_WAIT=1 run " + kGood},
      {"MF736", "TORCH_NCCL_AVOID_RECORD_STREAMS=1 run " + kGood},
      {"MF737", "NCCL_NVLS_ENABLE=0 run " + kGood},
      {"MF738", "NCCL_P2P_DISABLE=1 run " + kGood},
      {"MF739", "NCCL_CUMEM_ENABLE=0 run " + kGood},
      {"MF739", "NCCL_WIN_ENABLE=0 run " + kGood},
      {"MF740", "NCCL_ALGO=NVLS run " + kGood + "--deterministic-mode"},
      {"MF741", "--tensor-model-parallel-size 8 --num-attention-heads 36"},
      {"MF741", "--tensor-model-parallel-size 8 --num-attention-heads 48 --num-query-groups 6"},
      {"MF741",
       R"({"model": {"tensor_model_parallel_size": 4, "sequence_parallel": true,
           "num_attention_heads": 32, "ffn_hidden_size": 2050}})"},
      {"MF741", "--tensor-model-parallel-size 2 --sequence-parallel --seq-length 8191"},
      {"MF746", "--tensor-model-parallel-size 0"},
      {"MF746", "--context-parallel-size two"},
      {"MF747", "--context-parallel-size 2 --cp-comm-type ring"},
      {"MF747", R"({"model": {"cp_comm_type": ["p2p", "gather"]}})"},
      {"MF748", "torchrun --nproc-per-node 8 --nnodes=2 x --tensor-model-parallel-size 32"},
      {"MF748",
       "torchrun --nproc_per_node=4 x --tensor-model-parallel-size 2 --context-parallel-size 2 "
       "--pipeline-model-parallel-size 2"},
      {"MF742", "--context-parallel-size 4 --seq-length 8196"},
      {"MF742",
       "--context-parallel-size 4 --cp-comm-type a2a --tensor-model-parallel-size 4 "
       "--sequence-parallel --num-attention-heads 32 --num-query-groups 8"},
      {"MF743", "--context-parallel-size 2 --window-size 128,0"},
      {"MF744", "--tensor-model-parallel-size 4 --tp-comm-overlap"},
      {"MF744",
       R"({"model": {"tensor_model_parallel_size": 4, "sequence_parallel": false,
           "tp_comm_overlap": true}})"},
      {"MF745", "--sequence-parallel"},
      {"MF745", R"({"model": {"tensor_model_parallel_size": 1, "sequence_parallel": true}})"},
  };
  return list;
}

TEST(ConfigurationRules, EachFiresAlone) {
  for (const auto& [rule, text] : cases()) EXPECT_THAT(broken(text), ElementsAre(rule)) << text;
  // Meta tensors without sharding break the advice to shard as well.
  EXPECT_THAT(broken("--use-megatron-fsdp --ckpt-format fsdp_dtensor --init-model-with-meta-device "
                     "--data-parallel-sharding-strategy no_shard"),
              ElementsAre("MF707", "MF722"));
}

TEST(ConfigurationRules, EachHasACaseAndARowOfTheTable) {
  std::set<std::string> tried{"MF707"};
  for (const Case& row : cases()) tried.insert(row.rule);
  for (const auto rules : {configuration_rules(), environment_rules(), axis_rules()}) {
    EXPECT_TRUE(std::ranges::is_sorted(rules, {}, &ConfigurationRule::id));
    for (const ConfigurationRule& rule : rules) {
      EXPECT_NE(find_rule(rule.id), nullptr) << rule.id;
      EXPECT_EQ(tried.count(std::string(rule.id)), 1U) << rule.id;
      EXPECT_FALSE(rule.source.empty()) << rule.id;
    }
  }
}

TEST(ConfigurationRules, GoodOnesAreClean) {
  EXPECT_THAT(broken(kGood), IsEmpty());
  for (const char* launch : {"--nproc-per-node 8 --nnodes 2 x", "--nproc-per-node gpu x",
                             "--nproc-per-node 1 --nnodes 1:4 x", "--nnodes $N --nproc-per-node 1"})
    EXPECT_THAT(broken(std::string("torchrun ") + launch +
                       " --tensor-model-parallel-size 4 --context-parallel-size 4 --cp-comm-type "
                       "a2a+p2p"),
                IsEmpty())
        << launch;
  EXPECT_THAT(
      broken("NCCL_LAUNCH_ORDER_IMPLICIT=1 CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_NVLS_ENABLE=1 "
             "NCCL_ALGO=Ring run --create-all-gather-group --deterministic-mode " +
             kGood),
      IsEmpty());
  EXPECT_THAT(broken("{" + kBridge + "}"), IsEmpty());
  // Megatron-LM enables manual registration together with NCCL's user buffers.
  EXPECT_THAT(broken("--use-megatron-fsdp --ckpt-format fsdp_dtensor --use-nccl-ub"), IsEmpty());
  EXPECT_THAT(broken(R"({"dist": {"use_megatron_fsdp": true}, "ddp": {"megatron_fsdp_version": 2,
                        "data_parallel_sharding_strategy": "optim_grads_params",
                        "use_distributed_optimizer": false}})"),
              IsEmpty());
  EXPECT_THAT(broken("--use-megatron-fsdp --ckpt-format fsdp_dtensor "
                     "--overlap-moe-expert-parallel-comm --cuda-graph-impl full_iteration"),
              IsEmpty());
  EXPECT_THAT(broken("--use-megatron-fsdp-v2 --ckpt-format fsdp_dtensor "
                     "--overlap-moe-expert-parallel-comm --fsdp-double-buffer"),
              IsEmpty());
  EXPECT_THAT(broken(kGood + "--use-precision-aware-optimizer"), IsEmpty());
  EXPECT_THAT(broken(kGood2 + "--cuda-graph-impl none --ddp-bucket-size 40000000"), IsEmpty());
  EXPECT_THAT(broken("--use-megatron-fsdp --ckpt-format fsdp_dtensor --cuda-graph-impl local "
                     "--overlap-moe-expert-parallel-comm --cuda-graph-scope full_iteration"),
              IsEmpty());
  EXPECT_THAT(broken("--cpu-offloading-num-layers 0 --recompute-granularity full"), IsEmpty());
  EXPECT_THAT(broken("--cpu-offloading-num-layers 2 --cuda-graph-impl full_iteration"), IsEmpty());
  EXPECT_THAT(broken("--overlap-grad-reduce --overlap-param-gather --optimizer dist_muon"),
              IsEmpty());
  EXPECT_THAT(broken("--ddp-num-buckets 4"), IsEmpty());
  EXPECT_THAT(broken("--ckpt-format torch_dist " + kGood), IsEmpty());  // the last one counts
  EXPECT_THAT(broken("export CUDA_DEVICE_MAX_CONNECTIONS=1\nunset CUDA_DEVICE_MAX_CONNECTIONS\n"
                     "run " +
                     kGood),
              IsEmpty());
  EXPECT_THAT(broken(kGood + "--outer-dp-sharding-strategy optim "
                             "--num-distributed-optimizer-instances $GROUPS"),
              IsEmpty());
  EXPECT_THAT(broken(R"({"actor": {"megatron": {"use_megatron_fsdp": true,
                        "use_distributed_optimizer": true, "tensor_model_parallel_size": 1}}})"),
              IsEmpty());
  EXPECT_THAT(broken("CUDA_DEVICE_MAX_CONNECTIONS=1 run --tensor-model-parallel-size 8"),
              IsEmpty());
  EXPECT_THAT(broken("--tensor-model-parallel-size 8 --sequence-parallel --tp-comm-overlap "
                     "--context-parallel-size 2 --cp-comm-type a2a --seq-length 32768 "
                     "--num-attention-heads 64 --num-query-groups 16 --ffn-hidden-size 28672"),
              IsEmpty());
  EXPECT_THAT(broken("--tensor-model-parallel-size 8 --num-attention-heads 64 "
                     "--num-query-groups 4 --context-parallel-size 2 --cp-comm-type all_gather "
                     "--window-size 128,0"),
              IsEmpty());
  EXPECT_THAT(broken("--sequence-parallel --tensor-model-parallel-size $TP"), IsEmpty());
  // Roles of verl that leave sizes to their models.
  EXPECT_THAT(broken(R"({"actor": {"megatron": {"sequence_parallel": true}}})"), IsEmpty());
}

TEST(ConfigurationRules, MessagesSayWhereWhyAndWhatToDo) {
  const auto list = read_configurations("CUDA_DEVICE_MAX_CONNECTIONS=1 run " + kGood, "run.sh");
  const std::vector<Finding> findings = check_configuration(list->front());
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].message,
            "run.sh: CUDA_DEVICE_MAX_CONNECTIONS=1: all streams share one hardware queue: gathers "
            "cannot run beside compute; leave it unset, or set it to 8 or more");
}

PlanConfig plan_on(std::int64_t gpus) {
  PlanConfig config;
  config.mesh.resize(Axis::dp_shard, gpus);
  return config;
}

TEST(CheckPlanConfig, FindsWhatKeepsItsCommunicationFromHiding) {
  EXPECT_THAT(check_configuration(plan_on(8)), IsEmpty());
  PlanConfig slow = plan_on(8);
  slow.prefetch = 0;
  slow.grad_slots = 1;
  EXPECT_THAT(rules_of(check_configuration(slow)), ElementsAre("MF751", "MF752"));
  slow.strategy = Strategy::optim;  // gathers once, reduces once
  EXPECT_THAT(check_configuration(slow), IsEmpty());
  slow = plan_on(1);
  slow.prefetch = 0;
  EXPECT_THAT(check_configuration(slow), IsEmpty());
}

TEST(CheckPlanConfig, KnowsItsEnvironment) {
  EXPECT_THAT(rules_of(check_configuration(
                  plan_on(8), {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}, {"NCCL_DEBUG", "WARN"}})),
              ElementsAre("MF731", "MF733"));
  EXPECT_THAT(check_configuration(plan_on(8), {{"NCCL_LAUNCH_ORDER_IMPLICIT", "1"}}), IsEmpty());
}

TEST(CheckPlanConfig, KnowsTheOuterAxis) {
  PlanConfig config = plan_on(8);
  config.mesh.resize(Axis::dp_outer, 2);
  config.outer_strategy = Strategy::optim;
  EXPECT_THAT(check_configuration(config), IsEmpty());
  config.strategy = Strategy::optim_grads;
  EXPECT_THAT(rules_of(check_configuration(config)), ElementsAre("MF705"));
}

}  // namespace
}  // namespace mfsdp::traces
