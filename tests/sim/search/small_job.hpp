// Jobs and their requests for tests of searches, with a small model of their own.
#pragma once

#include <fstream>
#include <string>

#include "sim/search/prediction_requests.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp::test {

class SmallJobs {
 public:
  /// Four blocks, 4,096 positions; as small as llama_nano otherwise.
  [[nodiscard]] std::string model(bool tied_embeddings) const {
    const std::string path = folder_ / (tied_embeddings ? "tied.json" : "untied.json");
    std::ofstream(path) << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
      "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 192, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 4, "vocab_size": 264,
      "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": )"
                        << (tied_embeddings ? "true" : "false") << "}";
    return path;
  }

  PredictionRequests& requests() { return requests_; }

 private:
  ScratchFolder folder_;
  PredictionRequests requests_{kScenarios};
};

/// A job of a built-in model or a file.
[[nodiscard]] inline JobOptions job(const std::string& model, std::int64_t gpus = 8) {
  JobOptions job;
  job.common.model = model;
  job.common.gpus = gpus;
  job.given = {"--model", "--gpus"};
  return job;
}

}  // namespace mfsdp::test
